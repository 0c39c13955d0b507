// glibc keeps the functions replaced here under names with __libc_.
#include "tests/support/allocations.h"

#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace headsweep::testing {

namespace {
std::atomic<std::int64_t> allocations{0};
void Count() { allocations.fetch_add(1, std::memory_order_relaxed); }
}  // namespace

AllocationCount CountAllocations() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {allocations.load(), usage.ru_minflt};
}

}  // namespace headsweep::testing

using headsweep::testing::Count;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace {
void* Take(std::size_t bytes) { return std::malloc(bytes); }
void* Take(std::size_t bytes, std::size_t alignment) {
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
}  // namespace

#else

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  Count();
  return __libc_calloc(count, bytes);
}

void* realloc(void* memory, std::size_t bytes) {
  Count();
  return __libc_realloc(memory, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  Count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"

namespace {
void* Take(std::size_t bytes) { return __libc_malloc(bytes); }
void* Take(std::size_t bytes, std::size_t alignment) { return __libc_memalign(alignment, bytes); }
}  // namespace

#endif

namespace {

template <class... Size>
void* CountedNew(Size... size) {
  Count();
  void* memory = Take(size...);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return CountedNew(bytes); }
void* operator new[](std::size_t bytes) { return CountedNew(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return CountedNew(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return CountedNew(bytes, static_cast<std::size_t>(alignment));
}
// Also those that the library's algorithms use: memory of theirs is given back to the operators below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return CountedNew(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t bytes, const std::nothrow_t& nothrow) noexcept { return operator new(bytes, nothrow); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
