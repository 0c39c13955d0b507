// The C library's allocator, set up for a process that multiplies matrices, and scratch memory that is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace headsweep {

// Call first thing in main(), before any thread starts. Keeps freed memory in the process instead of giving
// it back to the system: with glibc's defaults each large block is a fresh mapping whose pages fault in
// again (about 15 us a page on virtual machines, which for libraries that take and free packing buffers of a
// few MiB within each product comes to twice the time of a whole training step). Costs nothing else than that the process's
// memory does not shrink. Does nothing outside glibc.
void TuneAllocator();

namespace cpu {

// Zeroed memory, 64-byte aligned; large blocks on 2 MiB boundaries with huge pages asked for, and every page
// touched by `threads` threads (first touch places pages on NUMA nodes and takes the faults now). Throws
// std::bad_alloc.
void* AllocateAligned(std::size_t bytes, int threads);
void FreeAligned(void* memory) noexcept;

// A buffer that grows when more is asked for and never shrinks. Contents are lost when it grows.
class Scratch {
 public:
  float* Floats(std::size_t count, int threads) {
    return static_cast<float*>(Bytes(count * sizeof(float), threads));
  }
  double* Doubles(std::size_t count, int threads) {
    return static_cast<double*>(Bytes(count * sizeof(double), threads));
  }

 private:
  void* Bytes(std::size_t bytes, int threads) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_.reset(AllocateAligned(bytes, threads));
      bytes_ = bytes;
    }
    return memory_.get();
  }

  struct Free {
    void operator()(void* memory) const noexcept { FreeAligned(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace cpu
}  // namespace headsweep
