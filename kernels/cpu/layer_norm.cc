// Layer norm, forward (with the residual addition fused in) and backward. Ba et al. 2016.
#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"

namespace headsweep {

using cpu::F;

namespace {

// One row: optional residual sum, mean and variance (two passes over a row that is in the L1 cache), result.
void ForwardRow(const float* x, const float* residual, float* sum, const float* gamma, const float* beta,
                float* y, float* mean, float* rstd, int C, float epsilon) {
  if (residual != nullptr) {
#pragma omp simd
    for (int c = 0; c < C; ++c) sum[c] = x[c] + residual[c];
    x = sum;
  }
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int c = 0; c < C; ++c) total += x[c];
  const float mu = total / static_cast<float>(C);
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int c = 0; c < C; ++c) squares += (x[c] - mu) * (x[c] - mu);
  const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(C) + epsilon);
#pragma omp simd
  for (int c = 0; c < C; ++c) y[c] = (x[c] - mu) * inverse * gamma[c] + beta[c];
  *mean = mu;
  *rstd = inverse;
}

// One row of the backward pass. With n = (x - mean) rstd and g = dy gamma:
//   dx = rstd (g - mean_c(g) - n mean_c(g n)) + d_residual;  d_gamma += dy n;  d_beta += dy
void BackwardRow(const float* dy, const float* x, const float* gamma, float mean, float rstd,
                 const float* d_residual, float* dx, float* d_gamma, float* d_beta, int C) {
  float sum_g = 0, sum_gn = 0;
#pragma omp simd reduction(+ : sum_g, sum_gn)
  for (int c = 0; c < C; ++c) {
    const float n = (x[c] - mean) * rstd;
    const float g = dy[c] * gamma[c];
    d_gamma[c] += dy[c] * n;
    d_beta[c] += dy[c];
    sum_g += g;
    sum_gn += g * n;
  }
  const float mean_g = sum_g / static_cast<float>(C), mean_gn = sum_gn / static_cast<float>(C);
  if (C == 1) rstd = 0;  // the norm of one value alone is a constant: no difference of roundings, but 0
  if (d_residual == nullptr) {
#pragma omp simd
    for (int c = 0; c < C; ++c) {
      dx[c] = rstd * (dy[c] * gamma[c] - mean_g - (x[c] - mean) * rstd * mean_gn);
    }
  } else {
#pragma omp simd
    for (int c = 0; c < C; ++c) {
      dx[c] = rstd * (dy[c] * gamma[c] - mean_g - (x[c] - mean) * rstd * mean_gn) + d_residual[c];
    }
  }
}

}  // namespace

void CpuBackend::LayerNormForward(const Element* x, const Element* residual, Element* sum,
                                  const Element* gamma, const Element* beta, Element* y, float* mean,
                                  float* rstd, std::int64_t R, int C, float epsilon) {
  cpu::ParallelRanges(threads_, R, cpu::RowGrain(C), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const bool fused = residual != nullptr;
      ForwardRow(F(x) + r * C, fused ? F(residual) + r * C : nullptr, fused ? F(sum) + r * C : nullptr,
                 F(gamma), F(beta), F(y) + r * C, mean + r, rstd + r, C, epsilon);
    }
  });
}

void CpuBackend::LayerNormBackward(const Element* dy, const Element* x, const Element* gamma,
                                   const float* mean, const float* rstd, const Element* d_residual,
                                   Element* dx, float* d_gamma, float* d_beta, std::int64_t R, int C) {
  if (R == 0 || C == 0) return;
  const std::int64_t grain = cpu::ReductionRows(R);
  const std::int64_t pieces = (R + grain - 1) / grain;
  float* partial =
      scratch_.Floats(static_cast<std::size_t>(pieces) * 2 * static_cast<std::size_t>(C), threads_);
  cpu::ParallelRanges(threads_, R, grain, [&](std::int64_t begin, std::int64_t end, int) {
    float* gamma_sum = partial + begin / grain * 2 * C;
    float* beta_sum = gamma_sum + C;
    std::fill(gamma_sum, beta_sum + C, 0.0f);
    for (std::int64_t r = begin; r < end; ++r) {
      BackwardRow(F(dy) + r * C, F(x) + r * C, F(gamma), mean[r], rstd[r],
                  d_residual == nullptr ? nullptr : F(d_residual) + r * C, F(dx) + r * C, gamma_sum, beta_sum,
                  C);
    }
  });
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const float* sums = partial + piece * 2 * C;
    for (int c = 0; c < C; ++c) d_gamma[c] += sums[c];
    for (int c = 0; c < C; ++c) d_beta[c] += sums[C + c];
  }
}

}  // namespace headsweep
