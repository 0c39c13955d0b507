// Memory, copies, and what the backend says about itself.
#include "kernels/cuda/memory.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/make_backend.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/target.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

Staging::Staging() {
  void* memory = nullptr;
  Check(cudaMallocHost(&memory, 2 * kHalfBytes), "cudaMallocHost of staging memory");
  memory_ = static_cast<char*>(memory);
  for (cudaEvent_t& event : used_) {
    Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
}

Staging::~Staging() {
  for (cudaEvent_t event : used_) {
    cudaEventSynchronize(event);
    cudaEventDestroy(event);
  }
  cudaFreeHost(memory_);
}

void* Staging::Take(std::size_t bytes, cudaStream_t stream) {
  if (taken_ + bytes > kHalfBytes) {
    Check(cudaEventRecord(used_[half_], stream), "cudaEventRecord");
    half_ = 1 - half_;
    taken_ = 0;
    Check(cudaEventSynchronize(used_[half_]), "cudaEventSynchronize");
  }
  void* const room = memory_ + static_cast<std::size_t>(half_) * kHalfBytes + taken_;
  taken_ += (bytes + 63) / 64 * 64;
  return room;
}

namespace {

void Convert(float* to, const float* from, std::int64_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}
void Convert(std::int32_t* to, const std::int32_t* from, std::int64_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(std::int32_t));
}
void Convert(PassNumbers* to, const PassNumbers* from, std::int64_t) { *to = *from; }
void Convert(bf16* to, const float* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = FromFloat<bf16>(from[i]);
}
void Convert(float* to, const bf16* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = ToFloat(from[i]);
}

// Values of Device on the device, of Host in pageable memory.
template <class Device, class Host>
void CopyToDevice(Device* to, const Host* from, std::int64_t count, Staging& staging, cudaStream_t stream) {
  constexpr auto kMost = static_cast<std::int64_t>(Staging::kHalfBytes / sizeof(Device));
  for (std::int64_t done = 0; done < count; done += kMost) {
    const std::int64_t part = std::min(kMost, count - done);
    const std::size_t bytes = static_cast<std::size_t>(part) * sizeof(Device);
    auto* const room = static_cast<Device*>(staging.Take(bytes, stream));
    Convert(room, from + done, part);
    Check(cudaMemcpyAsync(to + done, room, bytes, cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync to the device");
  }
}
template <class Device, class Host>
void CopyFromDevice(Host* to, const Device* from, std::int64_t count, Staging& staging,
                    const Stream& stream) {
  constexpr auto kMost = static_cast<std::int64_t>(Staging::kHalfBytes / sizeof(Device));
  for (std::int64_t done = 0; done < count; done += kMost) {
    const std::int64_t part = std::min(kMost, count - done);
    const std::size_t bytes = static_cast<std::size_t>(part) * sizeof(Device);
    auto* const room = static_cast<Device*>(staging.Take(bytes, stream));
    Check(cudaMemcpyAsync(room, from + done, bytes, cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync from the device");
    stream.Synchronize();
    Convert(to + done, room, part);
  }
}

__global__ void FillKernel(float* x, float value, std::int64_t count) {
  const std::int64_t i = GlobalThread();
  if (i < count) x[i] = value;
}

}  // namespace

template <class T>
CudaBackend<T>::CudaBackend(int device, bool run_ahead)
    : Backend(sizeof(T)), device_(device), run_ahead_(run_ahead), matmul_(device) {}

template <class T>
CudaBackend<T>::~CudaBackend() {
  cudaStreamSynchronize(stream_);  // before what the work uses goes
  cudaStreamSynchronize(copies_);
}

template <class T>
std::string CudaBackend<T>::name() const {
  return kTargetName;
}

template <class T>
std::string CudaBackend<T>::description() const {
  return fmt::format("{}; {}; {}", DescribeTarget(device_),
                     sizeof(T) == 2 ? "bfloat16 with float32 master weights" : "float32",
                     matmul_.description());
}

template <class T>
void* CudaBackend<T>::CardStream() const {
  return StreamOfCard(stream_);
}

template <class T>
void* CudaBackend<T>::Allocate(std::size_t bytes) {
  void* memory = nullptr;
  const std::size_t taken = std::max<std::size_t>(bytes, 1);
  const cudaError_t error = cudaMalloc(&memory, taken);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // forgotten: the caller may go on with less
    throw std::bad_alloc();
  }
  Check(error, "cudaMalloc");
  Check(cudaMemsetAsync(memory, 0, taken, stream_), "cudaMemsetAsync");
  stream_.Synchronize();
  held_[memory] = taken;
  held_bytes_ += static_cast<std::int64_t>(taken);
  peak_bytes_ = std::max(peak_bytes_, held_bytes_);
  return memory;
}

template <class T>
void CudaBackend<T>::Free(void* memory) noexcept {
  cudaFree(memory);
  const auto found = held_.find(memory);
  if (found == held_.end()) return;
  held_bytes_ -= static_cast<std::int64_t>(found->second);
  held_.erase(found);
}

template <class T>
Staging& CudaBackend<T>::StagingOf(const char* copy) {
  HEADSWEEP_CHECK(!recording_, "{} in a Repeat", copy);
  return staging_;
}

template <class T>
void CudaBackend<T>::CopyIn(float* to, const float* host_from, std::int64_t count) {
  CopyToDevice(to, host_from, count, StagingOf("CopyIn"), stream_);
}
template <class T>
void CudaBackend<T>::CopyIn(std::int32_t* to, const std::int32_t* host_from, std::int64_t count) {
  CopyToDevice(to, host_from, count, StagingOf("CopyIn"), stream_);
}
template <class T>
void CudaBackend<T>::CopyIn(Element* to, const float* host_from, std::int64_t count) {
  CopyToDevice(E(to), host_from, count, StagingOf("CopyIn"), stream_);
}
template <class T>
void CudaBackend<T>::CopyIn(PassNumbers* to, const PassNumbers& from) {
  CopyToDevice(to, &from, 1, StagingOf("CopyIn"), stream_);
}
template <class T>
void CudaBackend<T>::CopyOut(float* host_to, const float* from, std::int64_t count) {
  CopyFromDevice(host_to, from, count, StagingOf("CopyOut"), stream_);
}
template <class T>
void CudaBackend<T>::CopyOut(std::int32_t* host_to, const std::int32_t* from, std::int64_t count) {
  CopyFromDevice(host_to, from, count, StagingOf("CopyOut"), stream_);
}
template <class T>
void CudaBackend<T>::CopyOut(float* host_to, const Element* from, std::int64_t count) {
  CopyFromDevice(host_to, E(from), count, StagingOf("CopyOut"), stream_);
}

template <class T>
void CudaBackend<T>::Fill(float* x, float value, std::int64_t count) {
  if (count <= 0) return;
  HS_LAUNCH(FillKernel, BlocksFor(count), kBlockThreads, 0, stream_, x, value, count);
  CheckLaunch("Fill");
}

template <class T>
void CudaBackend<T>::Synchronize() {
  stream_.Synchronize();
}

template <class T>
std::optional<std::int64_t> CudaBackend<T>::FreeDeviceMemory() const {
  return FreeTargetMemory();
}

template <class T>
std::optional<std::int64_t> CudaBackend<T>::PeakDeviceMemory() const {
  return FreeDeviceMemory() ? std::optional(peak_bytes_) : std::nullopt;
}

template <class T>
double CudaBackend<T>::Seconds(const std::function<void()>& enqueue) {
  const Event begin, end;
  begin.Record(stream_);
  enqueue();
  end.Record(stream_);
  return end.SecondsSince(begin);
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options) {
  const int device = OpenTarget();
  if (options.precision == "float32") return std::make_unique<CudaBackend<float>>(device, options.run_ahead);
  if (options.precision == "bfloat16") return std::make_unique<CudaBackend<bf16>>(device, options.run_ahead);
  throw ConfigError(
      fmt::format("unknown precision \"{}\"; known precisions: float32, bfloat16", options.precision));
}

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
