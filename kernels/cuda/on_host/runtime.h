// CUDA's runtime for a plain C++ compiler, as far as the backend uses it: memory, streams, events, launches,
// capture into graphs. Names and meanings are those of the CUDA Runtime API
// (docs.nvidia.com/cuda/cuda-runtime-api). Built to show mistakes:
//
// - Work is late. What is enqueued on a stream runs when somebody waits for it (or a later part of it, or
// when 256 items are
//   pending), so that a missing wait reads old values, and host memory that is changed too early is copied
//   changed.
// - Fresh device and pinned memory reads as NaN. Freeing what was not allocated is an error.
// - More than 48 KB of dynamic shared memory need cudaFuncSetAttribute, more than 227 KB are refused, as are
// grids and blocks
//   beyond the limits of compute capability 9.0.
// - While a stream is captured, allocating memory and waiting are errors, as on a card.
// - An error in a kernel sticks to its stream: everything on it fails from then on, with the same text.
//
// Not supported: capture of several streams into one graph, managed memory, peers; there is one device.
// Thread-safe: one lock for the whole runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>

#include "kernels/cuda/on_host/executor.h"

namespace headsweep::cuda_on_host {

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
inline constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0, cudaEventDisableTiming = 2;

namespace internal {
struct Stream;
struct Event;
struct Graph;
struct GraphExec;
}  // namespace internal
using cudaStream_t =
    internal::Stream*;  // nullptr: the default stream, which waits for all others and runs at once
using cudaEvent_t = internal::Event*;
using cudaGraph_t = internal::Graph*;
using cudaGraphExec_t = internal::GraphExec*;
using cudaHostFn_t = void (*)(void*);

cudaError_t cudaGetLastError();  // of this host thread; forgets it
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(
    cudaError_t error);  // of cudaErrorLaunchFailure: what this host thread last saw, in full

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);  // of this machine

cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);  // waits for everything
cudaError_t cudaMallocHost(void** memory, std::size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);  // runs what is pending
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);  // runs one pending item
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument);

cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);  // runs one item of what it stands for
// By the CPU's clock, between the moments at which the work before the two events was done.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

namespace internal {

inline constexpr std::size_t kMaxArgumentBytes = 4096;  // of one launch

// What the runtime was asked for so far, and what waits now: for tests of what a program does not do.
struct Activity {
  std::uint64_t allocations = 0;   // of device and pinned memory
  std::uint64_t stream_waits = 0;  // cudaStreamSynchronize, cudaDeviceSynchronize
  std::uint64_t graph_launches = 0;
  std::size_t pending = 0;  // items enqueued and not yet run
};
Activity CurrentActivity();

// Any work of the CPU in a stream's order: captured and replayed like a kernel. What a library call would be
// on a card.
cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work);

cudaError_t Launch(const char* kernel, const void* function, dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream, std::function<void()> work);
cudaError_t SetFunctionAttribute(const void* function, cudaFuncAttribute attribute, int value);

template <class... Parameters, class... Arguments>
cudaError_t LaunchKernel(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                         std::size_t shared_bytes, cudaStream_t stream, Arguments&&... arguments) {
  static_assert((sizeof(Parameters) + ... + 0) <= kMaxArgumentBytes,
                "a launch takes at most 4 KB of arguments");
  using Call = std::pair<void (*)(Parameters...), std::tuple<std::decay_t<Parameters>...>>;
  return Launch(name, reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, stream,
                [=, call = Call(kernel, {std::forward<Arguments>(arguments)...})] {
                  RunGrid(
                      name, grid, block, shared_bytes,
                      [](const void* arguments_) {
                        const auto& [function, values] = *static_cast<const Call*>(arguments_);
                        std::apply(function, values);
                      },
                      &call);
                });
}

}  // namespace internal

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return internal::SetFunctionAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

}  // namespace headsweep::cuda_on_host
