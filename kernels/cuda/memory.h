// Owners of device resources: a stream, scratch memory that grows, pinned memory for copies. Host code.
// Errors: DeviceError.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/check.h"
#include "kernels/cuda/portable.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

// A stream that does not wait for the default stream. Destroying it waits for its work.
class Stream {
 public:
  Stream() { Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~Stream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void Synchronize() const { Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

// A moment of a stream.
class Event {
 public:
  explicit Event(unsigned flags = cudaEventDefault) {
    Check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreateWithFlags");
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }
  void Record(cudaStream_t stream) const { Check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  void Synchronize() const { Check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  // What is enqueued on the stream next comes after this moment.
  void HoldBack(cudaStream_t stream) const {
    Check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }
  // Waits for this one.
  double SecondsSince(const Event& earlier) const {
    float milliseconds = 0;
    Check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    Check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Device memory that grows when more is asked for and never shrinks; contents are lost when it grows, which
// waits for the whole device. 256-byte aligned.
class DeviceScratch {
 public:
  DeviceScratch() = default;
  ~DeviceScratch() { cudaFree(memory_); }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  template <class U>
  U* Take(std::int64_t count) {
    return static_cast<U*>(Bytes(static_cast<std::size_t>(count) * sizeof(U)));
  }
  // How often it has moved: what was recorded before the last time uses memory that is gone.
  std::int64_t moves() const { return moves_; }

 private:
  void* Bytes(std::size_t bytes) {
    if (bytes > bytes_) {
      Check(cudaFree(memory_), "cudaFree of scratch");
      memory_ = nullptr;
      bytes_ = 0;
      Check(cudaMalloc(&memory_, bytes), "cudaMalloc of scratch");
      bytes_ = bytes;
      ++moves_;
    }
    return memory_;
  }

  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::int64_t moves_ = 0;
};

// Pinned host memory through which copies from and to pageable memory go, so that a copy to the device need
// not be waited for. Two halves are used in turn; entering a half waits for the copies that were enqueued
// from it.
class Staging {
 public:
  static constexpr std::size_t kHalfBytes = std::size_t{4} << 20;

  Staging();
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Room for `bytes` (at most kHalfBytes) whose use is enqueued on `stream` before Take() is called again.
  void* Take(std::size_t bytes, cudaStream_t stream);

 private:
  char* memory_ = nullptr;
  cudaEvent_t used_[2] = {};  // the copies from each half
  int half_ = 0;
  std::size_t taken_ = 0;  // bytes of the current half
};

// Pinned memory of CopyOutMarked.
struct MarkedStaging {
  struct Half {
    Half() { Check(cudaMallocHost(&memory, Staging::kHalfBytes), "cudaMallocHost of staging memory"); }
    ~Half() { cudaFreeHost(memory); }
    Half(const Half&) = delete;
    Half& operator=(const Half&) = delete;
    void* memory = nullptr;
    Event filled{cudaEventDisableTiming};
  };
  Half halves[2];
};

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
