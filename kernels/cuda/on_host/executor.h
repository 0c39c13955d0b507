// Runs a grid of CUDA thread blocks on the CPU. Each CUDA thread is a fiber; a barrier or a warp operation is
// a meeting of fibers. Blocks run one after another, or over several host threads
// (HEADSWEEP_CUDA_ON_HOST_THREADS, default 1).
//
// Order. The threads of a block run one at a time, and each runs until it has to wait. Who goes on next is
// the thread order: rising (lowest thread that can run: warp 0 runs as far as it gets before warp 1 starts),
// falling, or shuffled by a seed. Correct kernels do not care, so a kernel that gives other results under
// another order lacks a barrier. Repeatable for any order.
//
// Caught, as DeviceError that names kernel and block: threads waiting at meetings that the others never
// reach, lanes of one warp that meet in different operations, a lane that is not in its own mask, writing
// beyond dynamic shared memory, 16-byte accesses at odd addresses. Shown as NaN: shared memory not written
// since the block began, what a shuffle reads from a lane that does not take part, the target of an
// asynchronous copy that was not waited for.
//
// What it cannot show: reordering of memory accesses within a thread, bank conflicts, speed.
// Thread-safe: several host threads may each run a grid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace headsweep::cuda_on_host {

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// Which thread goes on next. From HEADSWEEP_CUDA_ON_HOST_ORDER = rising | falling | a number, unless set
// here.
struct ThreadOrder {
  enum Kind { kRising, kFalling, kShuffled };
  Kind kind = kRising;
  std::uint64_t seed = 0;  // of kShuffled
};
ThreadOrder CurrentThreadOrder();
// For grids that run from now on, in the whole process.
void SetThreadOrder(ThreadOrder order);
std::string ToString(ThreadOrder order);  // "rising", "falling", "shuffled by 7"

namespace internal {

class Fiber;
class BlockRunner;

struct Block {
  const char* kernel = nullptr;  // its name, for messages
  dim3 grid, dim;
  uint3 index{};
  std::uint64_t serial = 0;  // differs between any two blocks that a host thread ran
  void* dynamic_shared = nullptr;
  BlockRunner* runner = nullptr;
};

// A 16-byte asynchronous copy that has been issued and not yet waited for.
struct AsyncCopy {
  void* to;
  const void* from;  // nullptr: zeros
  std::uint64_t group;
};

struct Thread {
  uint3 index{};
  unsigned lane = 0, warp = 0;
  Block* block = nullptr;
  Fiber* fiber = nullptr;  // its stack, once it has started
  std::vector<AsyncCopy> copies;
  std::uint64_t copy_group = 0;  // number of groups committed
};

inline thread_local Thread* current = nullptr;  // the CUDA thread that runs on this host thread

// A meeting of lanes of a warp: arguments[i] is what lane i brought, for lanes in `lanes`.
struct WarpMeeting {
  std::uint32_t lanes;
  void* arguments[32];
};
using MeetingWork = void (*)(const WarpMeeting&);

// Waits until all live lanes of `mask` have come, of which the last does work() for all, then goes on.
// what: name of the operation, for messages.
void MeetWarp(std::uint32_t mask, const char* what, void* arguments, MeetingWork work);
// Waits for all live threads of the block.
void MeetBlock();
std::uint32_t LiveLanes();  // of the current warp

// Ends the block with a DeviceError that says where it was.
[[noreturn]] void Misuse(const std::string& what);

inline void* DynamicShared() { return current->block->dynamic_shared; }

// Bytes that read as NaN in every floating-point format, as -1 in integers.
inline void Poison(void* memory, std::size_t bytes) { std::memset(memory, 0xFF, bytes); }

// A __shared__ array. One per host thread: a block stays on the host thread that runs it.
template <class Array>
class SharedVariable {
 public:
  Array& Enter() {
    if (serial_ != current->block->serial) {
      serial_ = current->block->serial;
      Poison(&array_, sizeof(array_));
    }
    return array_;
  }

 private:
  alignas(128) Array array_;
  std::uint64_t serial_ = 0;
};

// Runs body(arguments) once for every thread of every block. Throws what the first block that failed threw.
void RunGrid(const char* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
             void (*body)(const void* arguments), const void* arguments);

}  // namespace internal
}  // namespace headsweep::cuda_on_host
