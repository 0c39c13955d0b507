// Addition and dropout.
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/parallel.h"

namespace headsweep {

using cpu::F;

void CpuBackend::Add(const Element* a, const Element* b, Element* out, std::int64_t count) {
  cpu::ParallelRanges(threads_, count, cpu::kElementGrain, [&](std::int64_t begin, std::int64_t end, int) {
    const float* x = F(a);
    const float* y = F(b);
    float* sum = F(out);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) sum[i] = x[i] + y[i];
  });
}

void CpuBackend::ApplyDropout(const Element* x, Element* y, int B, std::int64_t N, const Dropout& given) {
  const std::int64_t count = B * N;
  if (given.rate <= 0) {
    if (x != y) CopyOut(F(y), x, count);
    return;
  }
  const Dropout dropout = cpu::Settled(given);
  cpu::ParallelRanges(threads_, count, cpu::kElementGrain, [&](std::int64_t begin, std::int64_t end, int) {
    constexpr std::int64_t kPiece = 1024;
    float multipliers[kPiece];
    for (std::int64_t i = begin; i < end; i += kPiece) {
      const std::int64_t n = std::min(kPiece, end - i);
      cpu::DropoutMultipliers(dropout, dropout.first_example * N + i, n, multipliers);
#pragma omp simd
      for (std::int64_t j = 0; j < n; ++j) F(y)[i + j] = F(x)[i + j] * multipliers[j];
    }
  });
}

}  // namespace headsweep
