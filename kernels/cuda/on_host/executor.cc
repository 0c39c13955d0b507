#include "kernels/cuda/on_host/executor.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

#include "cluster/base/errors.h"
#include "kernels/cuda/on_host/fiber.h"

namespace headsweep::cuda_on_host {

namespace {

ThreadOrder OrderFromEnvironment() {
  const char* set = std::getenv("HEADSWEEP_CUDA_ON_HOST_ORDER");
  if (set == nullptr || *set == '\0') return {};
  const std::string text = set;
  if (text == "rising") return {};
  if (text == "falling") return {ThreadOrder::kFalling, 0};
  char* end = nullptr;
  const std::uint64_t seed = std::strtoull(set, &end, 10);
  if (*end != '\0') {
    throw ConfigError(fmt::format(
        "HEADSWEEP_CUDA_ON_HOST_ORDER={}: rising, falling or a seed (a number) is understood", text));
  }
  return {ThreadOrder::kShuffled, seed};
}

int HostThreads() {
  const char* set = std::getenv("HEADSWEEP_CUDA_ON_HOST_THREADS");
  return set == nullptr ? 1 : std::clamp(std::atoi(set), 1, 256);
}

std::mutex order_mutex;
std::optional<ThreadOrder> order_set;

}  // namespace

ThreadOrder CurrentThreadOrder() {
  const std::lock_guard<std::mutex> lock(order_mutex);
  if (!order_set.has_value()) order_set = OrderFromEnvironment();
  return *order_set;
}

void SetThreadOrder(ThreadOrder order) {
  const std::lock_guard<std::mutex> lock(order_mutex);
  order_set = order;
}

std::string ToString(ThreadOrder order) {
  switch (order.kind) {
    case ThreadOrder::kRising:
      return "rising";
    case ThreadOrder::kFalling:
      return "falling";
    case ThreadOrder::kShuffled:
      return fmt::format("shuffled by {}", order.seed);
  }
  return "unknown";
}

namespace internal {

namespace {

constexpr unsigned kMaxThreads = 1024, kWarp = 32;
constexpr std::size_t kSharedGuard = 64;  // bytes behind dynamic shared memory that nobody may write
constexpr unsigned char kSharedGuardByte = 0xA5;

struct BlockAborted {};  // unwinds the threads of a block that has failed

// Lanes of a warp on their way to one meeting.
struct Gathering {
  std::uint32_t mask = 0;  // 0: free
  const char* what = nullptr;
  MeetingWork work = nullptr;
  WarpMeeting meeting{};
};

struct Warp {
  std::uint32_t live = 0;        // lanes that have not returned
  std::uint32_t ready = 0;       // lanes that can run
  std::uint32_t at_barrier = 0;  // lanes that wait at __syncthreads
  std::vector<Gathering> gatherings;
};

std::uint32_t Lowest(std::uint32_t bits) { return static_cast<std::uint32_t>(std::countr_zero(bits)); }
std::uint32_t Highest(std::uint32_t bits) { return 31 - static_cast<std::uint32_t>(std::countl_zero(bits)); }

}  // namespace

// Runs blocks on one host thread, one after another. Keeps its fibers. A fiber that has run a thread to its
// end takes the next one that has not started, so that a block that never waits needs one fiber and two
// switches.
class BlockRunner {
 public:
  void Run(Block& block, void (*body)(const void*), const void* arguments) {
    Prepare(block, body, arguments);
    current = nullptr;
    home_.Switch(TakeIdle());
    current = nullptr;
    if (live_ == 0 && error_ == nullptr) return;
    const std::string stuck = error_ == nullptr ? DescribeStuck() : "";
    Abort();
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
    throw DeviceError(Place(), 0, stuck, 0);
  }

  void MeetBlock() {
    Warp& warp = warps_[current->warp];
    warp.at_barrier |= 1u << current->lane;
    ++at_barrier_;
    OpenBarrierIfAllCame();
    Suspend();
  }

  void MeetWarp(std::uint32_t mask, const char* what, void* arguments, MeetingWork work) {
    const std::uint32_t bit = 1u << current->lane;
    if ((mask & bit) == 0) {
      Misuse(
          fmt::format("lane {} calls {} with mask {:#010x}, in which it is not", current->lane, what, mask));
    }
    Warp& warp = warps_[current->warp];
    Gathering* gathering = FindGathering(warp, mask);
    if (gathering->meeting.lanes == 0) {
      gathering->what = what;
      gathering->work = work;
    } else if (gathering->work != work) {
      Misuse(fmt::format("lane {} calls {} while lanes {:#010x} of its warp wait in {} with the same mask",
                         current->lane, what, gathering->meeting.lanes, gathering->what));
    }
    gathering->meeting.lanes |= bit;
    gathering->meeting.arguments[current->lane] = arguments;
    OpenIfAllCame(warp, current->warp, *gathering);
    Suspend();
  }

  std::uint32_t LiveLanes() const { return warps_[current->warp].live; }

  std::string Place() const {
    return fmt::format("kernel {}, block ({}, {}, {}) of {} threads", block_->kernel, block_->index.x,
                       block_->index.y, block_->index.z, threads_count_);
  }

  ~BlockRunner() {
    stopping_ = true;
    for (Fiber* idle : idle_) home_.Switch(*idle);
  }

 private:
  void Prepare(Block& block, void (*body)(const void*), const void* arguments) {
    block_ = &block;
    block.runner = this;
    body_ = body;
    arguments_ = arguments;
    order_ = CurrentThreadOrder();
    random_ = (order_.seed + block.serial) * 0x9E3779B97F4A7C15u | 1u;
    threads_count_ = block.dim.x * block.dim.y * block.dim.z;
    live_ = threads_count_;
    at_barrier_ = 0;
    error_ = nullptr;
    ready_warps_ = 0;
    for (unsigned i = 0; i < threads_count_; ++i) {
      Thread& thread = threads_[i];
      thread.index = {i % block.dim.x, i / block.dim.x % block.dim.y, i / (block.dim.x * block.dim.y)};
      thread.lane = i % kWarp;
      thread.warp = i / kWarp;
      thread.block = &block;
      thread.fiber = nullptr;
      thread.copies.clear();
      thread.copy_group = 0;
    }
    for (unsigned w = 0; w * kWarp < threads_count_; ++w) {
      const unsigned lanes = std::min(kWarp, threads_count_ - w * kWarp);
      Warp& warp = warps_[w];
      warp.live = lanes == kWarp ? ~0u : (1u << lanes) - 1;
      warp.ready = warp.live;
      warp.at_barrier = 0;
      for (Gathering& gathering : warp.gatherings) gathering = {};
      ready_warps_ |= 1u << w;
    }
  }

  // The next thread that goes on, by the thread order; nullptr when none can.
  Thread* Pick() {
    if (ready_warps_ == 0) return nullptr;
    std::uint32_t w, lane;
    switch (order_.kind) {
      case ThreadOrder::kRising:
        w = Lowest(ready_warps_);
        lane = Lowest(warps_[w].ready);
        break;
      case ThreadOrder::kFalling:
        w = Highest(ready_warps_);
        lane = Highest(warps_[w].ready);
        break;
      default:
        w = AnyOf(ready_warps_);
        lane = AnyOf(warps_[w].ready);
        break;
    }
    Warp& warp = warps_[w];
    warp.ready &= ~(1u << lane);
    if (warp.ready == 0) ready_warps_ &= ~(1u << w);
    return &threads_[w * kWarp + lane];
  }
  std::uint32_t AnyOf(std::uint32_t bits) {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    const int turn = static_cast<int>(random_ >> 59);
    return (Lowest(std::rotr(bits, turn)) + static_cast<std::uint32_t>(turn)) % 32;
  }

  void MakeReady(unsigned w, std::uint32_t lanes) {
    if (lanes == 0) return;
    warps_[w].ready |= lanes;
    ready_warps_ |= 1u << w;
  }

  void OpenBarrierIfAllCame() {
    if (at_barrier_ == 0 || at_barrier_ < live_) return;
    at_barrier_ = 0;
    for (unsigned w = 0; w * kWarp < threads_count_; ++w)
      MakeReady(w, std::exchange(warps_[w].at_barrier, 0));
  }

  Gathering* FindGathering(Warp& warp, std::uint32_t mask) {
    Gathering* free = nullptr;
    for (Gathering& gathering : warp.gatherings) {
      if (gathering.mask == mask) return &gathering;
      if (gathering.mask == 0) free = &gathering;
    }
    if (free == nullptr) free = &warp.gatherings.emplace_back();
    free->mask = mask;
    return free;
  }

  void OpenIfAllCame(Warp& warp, unsigned w, Gathering& gathering) {
    if (gathering.meeting.lanes == 0 || gathering.meeting.lanes != (gathering.mask & warp.live)) return;
    if (gathering.work != nullptr) gathering.work(gathering.meeting);
    MakeReady(w, gathering.meeting.lanes);
    gathering.mask = 0;
    gathering.meeting.lanes = 0;
  }

  // Leaves the current thread, which waits for something, for the next that can run.
  void Suspend() {
    Thread* const self = current;
    Thread* const next = Pick();
    if (next != self) {
      Fiber* to = &home_;
      if (next != nullptr) {
        to = next->fiber;
        if (to == nullptr) {
          handed_over_ = next;
          to = &TakeIdle();
        }
      }
      self->fiber->Switch(*to);
      current = self;
    }
    if (aborting_) throw BlockAborted();
  }

  Fiber& TakeIdle() {
    if (idle_.empty()) {
      const std::size_t number = fibers_.size();
      fibers_.push_back(std::make_unique<Fiber>(home_, [this, number] { Work(number); }));
      idle_.push_back(fibers_.back().get());
    }
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    return *fiber;
  }

  // What a fiber does all its life.
  void Work(std::size_t number) {
    Fiber& self = *fibers_[number];
    while (!stopping_) {
      Thread* next = std::exchange(handed_over_, nullptr);
      if (next == nullptr) next = aborting_ || error_ != nullptr ? nullptr : Pick();
      if (next != nullptr && next->fiber == nullptr) {
        next->fiber = &self;
        RunThread(*next);
        continue;
      }
      idle_.push_back(&self);
      self.Switch(next == nullptr ? home_ : *next->fiber);
    }
  }

  void RunThread(Thread& thread) {
    current = &thread;
    try {
      body_(arguments_);
      Warp& warp = warps_[thread.warp];
      warp.live &= ~(1u << thread.lane);
      --live_;
      // A thread that has returned no longer counts.
      for (Gathering& gathering : warp.gatherings) OpenIfAllCame(warp, thread.warp, gathering);
      OpenBarrierIfAllCame();
      thread.fiber = nullptr;
    } catch (const BlockAborted&) {
      thread.fiber = nullptr;
    } catch (const std::exception&) {
      if (error_ == nullptr) error_ = std::current_exception();
      thread.fiber = nullptr;
    }
    current = nullptr;
  }

  // Unwinds every thread that is in the middle of the kernel.
  void Abort() {
    aborting_ = true;
    for (unsigned i = 0; i < threads_count_; ++i) {
      if (threads_[i].fiber != nullptr) home_.Switch(*threads_[i].fiber);
    }
    aborting_ = false;
  }

  std::string DescribeStuck() const {
    unsigned at_barrier = 0;
    std::string elsewhere;
    for (unsigned w = 0; w * kWarp < threads_count_; ++w) {
      at_barrier += static_cast<unsigned>(std::popcount(warps_[w].at_barrier));
      for (const Gathering& gathering : warps_[w].gatherings) {
        if (gathering.meeting.lanes == 0) continue;
        elsewhere += fmt::format(
            "; {} threads of warp {} wait in {} with mask {:#010x}, of which lanes {:#010x} never come",
            std::popcount(gathering.meeting.lanes), w, gathering.what, gathering.mask,
            gathering.mask & warps_[w].live & ~gathering.meeting.lanes);
      }
    }
    return fmt::format("deadlock: {} threads wait at __syncthreads for {} others{}", at_barrier,
                       live_ - at_barrier, elsewhere);
  }

  Fiber home_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  Thread* handed_over_ = nullptr;  // to the idle fiber that is switched to
  bool stopping_ = false, aborting_ = false;

  Block* block_ = nullptr;
  void (*body_)(const void*) = nullptr;
  const void* arguments_ = nullptr;
  ThreadOrder order_;
  std::uint64_t random_ = 1;
  unsigned threads_count_ = 0, live_ = 0, at_barrier_ = 0;
  std::uint32_t ready_warps_ = 0;
  std::array<Warp, kMaxThreads / kWarp> warps_;
  std::vector<Thread> threads_ = std::vector<Thread>(kMaxThreads);
  std::exception_ptr error_;
};

void MeetWarp(std::uint32_t mask, const char* what, void* arguments, MeetingWork work) {
  current->block->runner->MeetWarp(mask, what, arguments, work);
}
void MeetBlock() { current->block->runner->MeetBlock(); }
std::uint32_t LiveLanes() { return current->block->runner->LiveLanes(); }

void Misuse(const std::string& what) {
  const uint3 t = current->index;
  throw DeviceError(fmt::format("{}, thread ({}, {}, {})", current->block->runner->Place(), t.x, t.y, t.z), 0,
                    what, 0);
}

namespace {

// Dynamic shared memory of one host thread's blocks, with a guard behind it.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes)
      : bytes_(bytes),
        memory_(
            static_cast<unsigned char*>(std::aligned_alloc(128, (bytes + kSharedGuard + 127) / 128 * 128))) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  ~SharedMemory() { std::free(memory_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void* Begin() {
    Poison(memory_, bytes_);
    std::memset(memory_ + bytes_, kSharedGuardByte, kSharedGuard);
    return memory_;
  }
  bool GuardIntact() const {
    for (std::size_t i = 0; i < kSharedGuard; ++i) {
      if (memory_[bytes_ + i] != kSharedGuardByte) return false;
    }
    return true;
  }

 private:
  const std::size_t bytes_;
  unsigned char* const memory_;
};

// Blocks `next`, next + 1, … of the grid until there are none, or one has failed.
void RunBlocks(const char* kernel, dim3 grid, dim3 dim, std::size_t shared_bytes, void (*body)(const void*),
               const void* arguments, std::atomic<std::uint64_t>& next, std::atomic<bool>& failed) {
  static thread_local BlockRunner runner;
  static thread_local std::uint64_t serial = 0;
  const std::uint64_t count = std::uint64_t{grid.x} * grid.y * grid.z;
  SharedMemory shared(shared_bytes);
  Block block;
  block.kernel = kernel;
  block.grid = grid;
  block.dim = dim;
  while (!failed) {
    const std::uint64_t number = next++;
    if (number >= count) return;
    block.index = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                   static_cast<unsigned>(number / (std::uint64_t{grid.x} * grid.y))};
    block.serial = ++serial;
    block.dynamic_shared = shared.Begin();
    runner.Run(block, body, arguments);
    if (!shared.GuardIntact()) {
      throw DeviceError(runner.Place(), 0,
                        fmt::format("wrote beyond its {} bytes of dynamic shared memory", shared_bytes), 0);
    }
  }
}

}  // namespace

void RunGrid(const char* kernel, dim3 grid, dim3 block, std::size_t shared_bytes, void (*body)(const void*),
             const void* arguments) {
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> failed{false};
  static const int threads = HostThreads();
  if (threads == 1) {
    RunBlocks(kernel, grid, block, shared_bytes, body, arguments, next, failed);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel num_threads(threads)
  try {
    RunBlocks(kernel, grid, block, shared_bytes, body, arguments, next, failed);
  } catch (const std::exception&) {
    if (!failed.exchange(true)) error = std::current_exception();
  }
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace internal
}  // namespace headsweep::cuda_on_host
