// The C library's allocation functions, replaced for this program. glibc keeps the originals under names with
// __libc_.
#include "tests/bench/allocations.h"

#include <link.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace headsweep::bench {

namespace {

std::atomic<std::int64_t> ours{0}, onednn{0};
std::uintptr_t onednn_begin = 0, onednn_end = 0;

int FindOneDnn(dl_phdr_info* info, std::size_t, void*) {
  if (std::strstr(info->dlpi_name, "libdnnl") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    onednn_begin = info->dlpi_addr + part.p_vaddr;
    onednn_end = onednn_begin + part.p_memsz;
  }
  return 1;
}

void Count(const void* caller) {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  (address >= onednn_begin && address < onednn_end ? onednn : ours).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void StartCountingAllocations() { dl_iterate_phdr(FindOneDnn, nullptr); }

AllocationCount CountAllocations() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {ours.load(), onednn.load(), usage.ru_minflt};
}

}  // namespace headsweep::bench

extern "C" {

using headsweep::bench::Count;

void* malloc(std::size_t bytes) {
  Count(__builtin_return_address(0));
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  Count(__builtin_return_address(0));
  return __libc_calloc(count, bytes);
}

void* realloc(void* memory, std::size_t bytes) {
  Count(__builtin_return_address(0));
  return __libc_realloc(memory, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  Count(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  Count(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  Count(__builtin_return_address(0));
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"

// C++ allocations too: otherwise libstdc++ would be the caller of malloc that is seen, whoever wanted the
// memory.
namespace {

void* CountedNew(std::size_t bytes, std::size_t alignment, const void* caller) {
  Count(caller);
  void* memory =
      alignment <= alignof(std::max_align_t) ? __libc_malloc(bytes) : __libc_memalign(alignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return CountedNew(bytes, 0, __builtin_return_address(0)); }
void* operator new[](std::size_t bytes) { return CountedNew(bytes, 0, __builtin_return_address(0)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return CountedNew(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return CountedNew(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
