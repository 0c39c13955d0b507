// Work that is repeated as a CUDA graph, and copies beside which the host or the device goes on.
#include <algorithm>
#include <cstring>

#include "kernels/cuda/cuda_backend.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

// The graph of one stretch of work. Its launches are done when it goes.
class GraphRecording final : public Backend::Recording {
 public:
  explicit GraphRecording(cudaStream_t stream) : stream_(stream) {}
  ~GraphRecording() override { Forget(); }

  bool holds(std::int64_t scratch_moves) const {
    return graph_ != nullptr && scratch_moves == scratch_moves_;
  }

  void Record(const std::function<void()>& enqueue, std::int64_t scratch_moves) {
    Forget();
    // Other threads (NCCL's) may go on allocating.
    Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    Check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    const cudaError_t error = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    Check(error, "cudaGraphInstantiate");
    scratch_moves_ = scratch_moves;
  }

  void Launch() const { Check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); }

 private:
  void Forget() {
    if (graph_ == nullptr) return;
    cudaStreamSynchronize(stream_);
    cudaGraphExecDestroy(graph_);
    graph_ = nullptr;
  }

  const cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
  std::int64_t scratch_moves_ = 0;
};

class PinnedMailbox final : public Backend::Mailbox {
 public:
  PinnedMailbox(cudaStream_t stream, std::int64_t floats) : stream_(stream) {
    void* memory = nullptr;
    const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(floats, 1)) * sizeof(float);
    Check(cudaMallocHost(&memory, bytes), "cudaMallocHost of a mailbox");
    values_ = static_cast<float*>(memory);
  }
  ~PinnedMailbox() override {
    cudaEventSynchronize(posted_.get());
    cudaFreeHost(values_);
  }
  void Post(std::int64_t at, const float* from, std::int64_t count) override {
    if (count <= 0) return;
    Check(cudaMemcpyAsync(values_ + at, from, static_cast<std::size_t>(count) * sizeof(float),
                          cudaMemcpyDeviceToHost, stream_),
          "cudaMemcpyAsync to a mailbox");
    posted_.Record(stream_);
  }
  const float* Wait() override {
    posted_.Synchronize();
    return values_;
  }

 private:
  const cudaStream_t stream_;
  const Event posted_{cudaEventDisableTiming};
  float* values_ = nullptr;
};

}  // namespace

template <class T>
void CudaBackend<T>::Repeat(std::unique_ptr<Recording>& recording, const std::function<void()>& enqueue) {
  if (!run_ahead_) return enqueue();
  HEADSWEEP_CHECK(!recording_, "a Repeat in a Repeat");
  if (recording == nullptr) {
    enqueue();  // as it is: scratch grows, algorithms of products are chosen
    recording = std::make_unique<GraphRecording>(stream_);
    return;
  }
  auto& graph = static_cast<GraphRecording&>(*recording);
  if (!graph.holds(scratch_.moves())) {
    struct Recording_ {
      bool& flag;
      explicit Recording_(bool& f) : flag(f) { flag = true; }
      ~Recording_() { flag = false; }
    } const while_recording(recording_);
    graph.Record(enqueue, scratch_.moves());
  }
  graph.Launch();
}

template <class T>
std::unique_ptr<Backend::Mailbox> CudaBackend<T>::MakeMailbox(std::int64_t floats) {
  return std::make_unique<PinnedMailbox>(stream_, floats);
}

template <class T>
void CudaBackend<T>::Mark() {
  HEADSWEEP_CHECK(!recording_, "Mark in a Repeat");
  mark_.Record(stream_);
}

// Both halves of a staging memory of its own are on the way at any time: one filled by the device, one
// emptied by the host.
template <class T>
void CudaBackend<T>::CopyOutMarked(float* host_to, const float* from, std::int64_t count) {
  constexpr auto kPart = static_cast<std::int64_t>(Staging::kHalfBytes / sizeof(float));
  if (count <= 0) return;
  if (marked_staging_ == nullptr) marked_staging_ = std::make_unique<MarkedStaging>();
  mark_.HoldBack(copies_);
  const std::int64_t parts = (count + kPart - 1) / kPart;
  const auto size = [&](std::int64_t part) { return std::min(kPart, count - part * kPart); };
  for (std::int64_t part = 0; part <= parts; ++part) {
    if (part < parts) {
      const MarkedStaging::Half& half = marked_staging_->halves[part % 2];
      Check(cudaMemcpyAsync(half.memory, from + part * kPart,
                            static_cast<std::size_t>(size(part)) * sizeof(float), cudaMemcpyDeviceToHost,
                            copies_),
            "cudaMemcpyAsync of marked values");
      half.filled.Record(copies_);
    }
    if (part == 0) continue;
    const MarkedStaging::Half& half = marked_staging_->halves[(part - 1) % 2];
    half.filled.Synchronize();
    std::memcpy(host_to + (part - 1) * kPart, half.memory,
                static_cast<std::size_t>(size(part - 1)) * sizeof(float));
  }
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
