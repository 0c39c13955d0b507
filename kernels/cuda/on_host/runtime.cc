#include "kernels/cuda/on_host/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/on_host/errors.h"

namespace headsweep::cuda_on_host {

namespace internal {

using Work = std::function<void()>;

// The part of a stream that events and waiting items refer to; it outlives the handle.
struct Queue {
  std::deque<Work> pending;
  std::uint64_t enqueued = 0, done = 0;  // items ever
  cudaError_t error = cudaSuccess;       // sticky
  std::string error_text;
};

struct Graph {
  std::vector<Work> items;
};
struct GraphExec {
  std::shared_ptr<const std::vector<Work>> items;
};
struct Stream {
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  std::unique_ptr<Graph> capture;  // while capturing
  bool capture_failed = false;
};
struct Event {
  std::shared_ptr<Queue> queue;  // nullptr: never recorded, which counts as done
  std::uint64_t position = 0;
  // When its moment came; nullptr without timing. Shared with the item that writes it.
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
};

}  // namespace internal

namespace {

using internal::Queue;
using internal::Report;
using internal::Stream;
using internal::Work;

constexpr std::size_t kMostPending = 256;
constexpr std::size_t kSharedWithoutAsking = 48 * 1024, kMostShared = 227 * 1024;
constexpr std::size_t kAlignment = 256;  // of cudaMalloc

struct Runtime {
  std::recursive_mutex mutex;
  std::set<Stream*> streams;
  std::set<void*> device_memory, host_memory;
  std::map<const void*, std::size_t> most_shared;  // of kernels for which more was asked
  internal::Activity activity;
};
Runtime& TheRuntime() {
  static Runtime* const runtime = new Runtime;  // never destroyed: others may free memory at exit
  return *runtime;
}

cudaError_t ErrorOf(const Queue& queue) {
  if (queue.error != cudaSuccess) internal::SetLaunchFailure(queue.error_text);
  return queue.error;
}

// Runs pending items until `position` of them are done.
void RunUntil(Queue& queue, std::uint64_t position) {
  while (queue.done < position && !queue.pending.empty()) {
    const Work work = std::move(queue.pending.front());
    queue.pending.pop_front();
    try {
      work();
    } catch (const std::exception& e) {
      queue.error = cudaErrorLaunchFailure;
      queue.error_text = e.what();
      queue.done += queue.pending.size();
      queue.pending.clear();
    }
    ++queue.done;
  }
}

// The first error of any stream.
cudaError_t RunEverything() {
  cudaError_t error = cudaSuccess;
  for (Stream* stream : TheRuntime().streams) {
    RunUntil(*stream->queue, stream->queue->enqueued);
    if (error == cudaSuccess) error = ErrorOf(*stream->queue);
  }
  return error;
}

bool AnyCapture() {
  return std::any_of(TheRuntime().streams.begin(), TheRuntime().streams.end(),
                     [](const Stream* stream) { return stream->capture != nullptr; });
}

// An operation that may not happen while anything is captured, and spoils the capture if it does.
bool SpoilsCapture() {
  if (!AnyCapture()) return false;
  for (Stream* stream : TheRuntime().streams) stream->capture_failed = stream->capture != nullptr;
  return true;
}

cudaError_t EnqueueLocked(Stream* stream, Work work) {
  if (stream == nullptr) {
    if (SpoilsCapture()) return cudaErrorStreamCaptureUnsupported;
    if (const cudaError_t error = RunEverything(); error != cudaSuccess) return error;
    Queue now;
    now.pending.push_back(std::move(work));
    RunUntil(now, 1);
    return ErrorOf(now);
  }
  if (stream->capture != nullptr) {
    stream->capture->items.push_back(std::move(work));
    return cudaSuccess;
  }
  Queue& queue = *stream->queue;
  if (queue.error != cudaSuccess) return ErrorOf(queue);
  queue.pending.push_back(std::move(work));
  ++queue.enqueued;
  if (queue.pending.size() > kMostPending) RunUntil(queue, queue.done + 1);
  return ErrorOf(queue);
}

std::lock_guard<std::recursive_mutex> Lock() { return std::lock_guard(TheRuntime().mutex); }

cudaError_t AllocateIn(std::set<void*>& known, void** memory, std::size_t bytes) {
  if (memory == nullptr) return cudaErrorInvalidValue;
  *memory = nullptr;
  if (SpoilsCapture()) return cudaErrorStreamCaptureUnsupported;
  if (bytes == 0) return cudaSuccess;
  ++TheRuntime().activity.allocations;
  void* p = nullptr;
  if (posix_memalign(&p, kAlignment, bytes) != 0) return cudaErrorMemoryAllocation;
  internal::Poison(p, bytes);
  known.insert(p);
  *memory = p;
  return cudaSuccess;
}

cudaError_t FreeIn(std::set<void*>& known, void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (SpoilsCapture()) return cudaErrorStreamCaptureUnsupported;
  const cudaError_t error = RunEverything();
  if (known.erase(memory) == 0) return cudaErrorInvalidValue;
  std::free(memory);
  return error;
}

}  // namespace

// --- The device
// -------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return Report(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return Report(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 3;  // small and odd: grids cut to it leave no block with the easy share
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(kMostShared);
      return cudaSuccess;
  }
  return Report(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize() {
  const auto lock = Lock();
  ++TheRuntime().activity.stream_waits;
  if (SpoilsCapture()) return Report(cudaErrorStreamCaptureUnsupported);
  return Report(RunEverything());
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  *free = page * static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES));
  *total = page * static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES));
  return cudaSuccess;
}

// --- Memory
// ----------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const auto lock = Lock();
  return Report(AllocateIn(TheRuntime().device_memory, memory, bytes));
}
cudaError_t cudaFree(void* memory) {
  const auto lock = Lock();
  return Report(FreeIn(TheRuntime().device_memory, memory));
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  const auto lock = Lock();
  return Report(AllocateIn(TheRuntime().host_memory, memory, bytes));
}
cudaError_t cudaFreeHost(void* memory) {
  const auto lock = Lock();
  return Report(FreeIn(TheRuntime().host_memory, memory));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const auto lock = Lock();
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return Report(cudaErrorInvalidValue);
  return Report(EnqueueLocked(stream, [=] { std::memcpy(to, from, bytes); }));
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  const auto lock = Lock();
  if (bytes == 0) return cudaSuccess;
  if (memory == nullptr) return Report(cudaErrorInvalidValue);
  return Report(EnqueueLocked(stream, [=] { std::memset(memory, value, bytes); }));
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}

// --- Streams and events
// ----------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const auto lock = Lock();
  *stream = new Stream;
  TheRuntime().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const auto lock = Lock();
  if (TheRuntime().streams.erase(stream) == 0) return Report(cudaErrorInvalidResourceHandle);
  RunUntil(*stream->queue, stream->queue->enqueued);
  const cudaError_t error = ErrorOf(*stream->queue);
  delete stream;
  return Report(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream == nullptr) return cudaDeviceSynchronize();
  const auto lock = Lock();
  ++TheRuntime().activity.stream_waits;
  if (stream->capture != nullptr) {
    stream->capture_failed = true;
    return Report(cudaErrorStreamCaptureUnsupported);
  }
  RunUntil(*stream->queue, stream->queue->enqueued);
  return Report(ErrorOf(*stream->queue));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const auto lock = Lock();
  Queue& queue = *stream->queue;
  RunUntil(queue, queue.done + 1);
  if (queue.error != cudaSuccess) return Report(ErrorOf(queue));
  return queue.pending.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto lock = Lock();
  if (event->queue == nullptr) return cudaSuccess;
  if (stream != nullptr && stream->capture != nullptr) {
    stream->capture_failed = true;
    return Report(cudaErrorNotSupported);
  }
  return Report(EnqueueLocked(
      stream, [queue = event->queue, position = event->position] { RunUntil(*queue, position); }));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return internal::Enqueue(stream, [=] { function(argument); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new internal::Event;
  if ((flags & cudaEventDisableTiming) == 0)
    (*event)->time = std::make_shared<std::chrono::steady_clock::time_point>();
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto lock = Lock();
  if (stream == nullptr) {
    event->queue = nullptr;
    return Report(EnqueueLocked(nullptr, [] {}));
  }
  if (stream->capture != nullptr) {
    stream->capture_failed = true;
    return Report(cudaErrorNotSupported);
  }
  if (event->time != nullptr) {
    const cudaError_t error =
        EnqueueLocked(stream, [time = event->time] { *time = std::chrono::steady_clock::now(); });
    if (error != cudaSuccess) return Report(error);
  }
  event->queue = stream->queue;
  event->position = stream->queue->enqueued;
  return Report(ErrorOf(*stream->queue));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto lock = Lock();
  if (event->queue == nullptr) return cudaSuccess;
  RunUntil(*event->queue, event->position);
  return Report(ErrorOf(*event->queue));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto lock = Lock();
  if (event->queue == nullptr) return cudaSuccess;
  Queue& queue = *event->queue;
  RunUntil(queue, std::min(event->position, queue.done + 1));
  if (queue.error != cudaSuccess) return Report(ErrorOf(queue));
  return queue.done >= event->position ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto lock = Lock();
  for (const cudaEvent_t event : {start, end}) {
    if (event->time == nullptr || event->queue == nullptr) return Report(cudaErrorInvalidResourceHandle);
    if (event->queue->done < event->position) return Report(cudaErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
  return cudaSuccess;
}

// --- Graphs
// ----------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const auto lock = Lock();
  if (stream == nullptr || stream->capture != nullptr) return Report(cudaErrorStreamCaptureUnsupported);
  stream->capture = std::make_unique<internal::Graph>();
  stream->capture_failed = false;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto lock = Lock();
  *graph = nullptr;
  if (stream == nullptr || stream->capture == nullptr) return Report(cudaErrorInvalidValue);
  const std::unique_ptr<internal::Graph> captured = std::move(stream->capture);
  if (stream->capture_failed) return Report(cudaErrorStreamCaptureUnsupported);
  *graph = new internal::Graph(*captured);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const auto lock = Lock();
  *status = stream == nullptr || stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture_failed                        ? cudaStreamCaptureStatusInvalidated
                                                            : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new internal::GraphExec{std::make_shared<const std::vector<Work>>(graph->items)};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const auto lock = Lock();
  ++TheRuntime().activity.graph_launches;
  return internal::Enqueue(stream, [items = exec->items] {
    for (const Work& work : *items) work();
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

// --- Launches
// --------------------------------------------------------------------------------------------------------

namespace internal {

Activity CurrentActivity() {
  const auto lock = Lock();
  Activity activity = TheRuntime().activity;
  for (const Stream* stream : TheRuntime().streams) activity.pending += stream->queue->pending.size();
  return activity;
}

cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work) {
  const auto lock = Lock();
  return Report(EnqueueLocked(stream, std::move(work)));
}

cudaError_t Launch(const char*, const void* function, dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream, std::function<void()> work) {
  const auto lock = Lock();
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
      grid.x > 0x7FFFFFFFu || grid.y > 65535 || grid.z > 65535) {
    return Report(cudaErrorInvalidConfiguration);
  }
  const auto asked = TheRuntime().most_shared.find(function);
  const std::size_t most = asked == TheRuntime().most_shared.end() ? kSharedWithoutAsking : asked->second;
  if (shared_bytes > most) return Report(cudaErrorInvalidValue);
  return Report(EnqueueLocked(stream, std::move(work)));
}

cudaError_t SetFunctionAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const auto lock = Lock();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<std::size_t>(value) > kMostShared) return Report(cudaErrorInvalidValue);
  TheRuntime().most_shared[function] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

}  // namespace internal
}  // namespace headsweep::cuda_on_host
