#include "kernels/cpu/allocator.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/cpu/parallel.h"

namespace headsweep {

void TuneAllocator() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);              // large blocks come from the heap too, so that they can be used again
  mallopt(M_MMAP_THRESHOLD, 1 << 30);  // fixed: glibc no longer adapts it
  mallopt(M_TRIM_THRESHOLD, 2047 << 20);  // the heap is not given back before 2 GiB of it are free
  mallopt(M_TOP_PAD, 64 << 20);           // and grows 64 MiB at a time
#endif
}

namespace cpu {

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

void* AllocateAligned(std::size_t bytes, int threads) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  if (bytes > SIZE_MAX - alignment) throw std::bad_alloc();
  const std::size_t rounded = bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
  char* memory = static_cast<char*>(std::aligned_alloc(alignment, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) {
    madvise(memory, rounded,
            MADV_HUGEPAGE);  // advice: a system without huge pages refuses, and nothing is lost
  }
  ParallelRanges(threads, static_cast<std::int64_t>(rounded), static_cast<std::int64_t>(kHugePage),
                 [&](std::int64_t begin, std::int64_t end, int) {
                   std::memset(memory + begin, 0, static_cast<std::size_t>(end - begin));
                 });
  return memory;
}

void FreeAligned(void* memory) noexcept { std::free(memory); }

}  // namespace cpu
}  // namespace headsweep
