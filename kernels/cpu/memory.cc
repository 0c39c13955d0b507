// Memory, copies, and what the backend says about itself.
#include <omp.h>

#include <cstring>
#include <fstream>

#include "cluster/base/errors.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"

namespace headsweep {

namespace {

// "model name" of /proc/cpuinfo, or the architecture where there is none.
std::string ProcessorName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
#if defined(__x86_64__)
  return "x86-64 processor";
#elif defined(__aarch64__)
  return "aarch64 processor";
#else
  return "processor";
#endif
}

constexpr const char* kCompiledFor =
#if defined(__AVX512F__)
    "AVX-512";
#elif defined(__AVX2__)
    "AVX2";
#else
    "the architecture's baseline";
#endif

template <class To, class From>
void Copy(To* to, const From* from, std::int64_t count, int threads) {
  static_assert(sizeof(To) == 4 && sizeof(From) == 4);
  if (count <= 0) return;
  cpu::ParallelRanges(threads, count, 16 * cpu::kElementGrain,
                      [&](std::int64_t begin, std::int64_t end, int) {
                        std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin) * 4);
                      });
}

}  // namespace

std::string CpuBackend::description() const {
  return fmt::format("cpu: {}; loops compiled for {}; {}; {} thread{}", ProcessorName(), kCompiledFor,
                     cpu::GemmDescription(), threads_, threads_ == 1 ? "" : "s");
}

void* CpuBackend::Allocate(std::size_t bytes) { return cpu::AllocateAligned(bytes, threads_); }
void CpuBackend::Free(void* memory) noexcept { cpu::FreeAligned(memory); }

void CpuBackend::CopyIn(float* to, const float* host_from, std::int64_t count) {
  Copy(to, host_from, count, threads_);
}
void CpuBackend::CopyIn(std::int32_t* to, const std::int32_t* host_from, std::int64_t count) {
  Copy(to, host_from, count, threads_);
}
void CpuBackend::CopyIn(Element* to, const float* host_from, std::int64_t count) {
  Copy(cpu::F(to), host_from, count, threads_);
}
void CpuBackend::CopyOut(float* host_to, const float* from, std::int64_t count) {
  Copy(host_to, from, count, threads_);
}
void CpuBackend::CopyOut(std::int32_t* host_to, const std::int32_t* from, std::int64_t count) {
  Copy(host_to, from, count, threads_);
}
void CpuBackend::CopyOut(float* host_to, const Element* from, std::int64_t count) {
  Copy(host_to, cpu::F(from), count, threads_);
}

void CpuBackend::Fill(float* x, float value, std::int64_t count) {
  cpu::ParallelRanges(
      threads_, count, 16 * cpu::kElementGrain,
      [&](std::int64_t begin, std::int64_t end, int) { std::fill(x + begin, x + end, value); });
}

}  // namespace headsweep
