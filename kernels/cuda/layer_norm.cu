// Layer norm, forward (with the residual addition fused in) and backward. Ba et al. 2016. One warp a row; a
// row is read again from the first-level cache instead of being kept, so that any C will do.
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mutants.h"
#include "kernels/cuda/reduce.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

constexpr int kRowsPerBlock = 4;

// x (R, C); residual, sum or both nullptr. The norm is of `sum` as rounded, which is what the backward pass
// will see.
template <class E, int W>
__global__ void __launch_bounds__(kWarpThreads* kRowsPerBlock)
    ForwardKernel(const E* x, const E* residual, E* sum, const E* gamma, const E* beta, E* y, float* mean,
                  float* rstd, std::int64_t R, int C, float epsilon) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.y;
  if (r >= R) return;
  const int first = static_cast<int>(threadIdx.x) * W;
  constexpr int kStep = kWarpThreads * W;
  const E* row = x + r * C;
  float total = 0;
  for (int c = first; c < C; c += kStep) {
    float values[W];
    LoadFloats(row + c, values);
    if (residual != nullptr) {
      float more[W];
      LoadFloats(residual + r * C + c, more);
#pragma unroll
      for (int j = 0; j < W; ++j) values[j] = ToFloat(FromFloat<E>(values[j] + more[j]));
      StoreFloats(sum + r * C + c, values);
    }
#pragma unroll
    for (int j = 0; j < W; ++j) total += values[j];
  }
  if (residual != nullptr) row = sum + r * C;  // a lane reads back what it wrote itself
  const float mu = WarpSum(total) / static_cast<float>(C);
  float squares = 0;
  for (int c = first; c < HS_MUTANT_VALUE(TILE_EDGE, C - 1, C); c += kStep) {
    float values[W];
    LoadFloats(row + c, values);
#pragma unroll
    for (int j = 0; j < W; ++j) squares += (values[j] - mu) * (values[j] - mu);
  }
  const float inverse = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(C) + epsilon);
  for (int c = first; c < C; c += kStep) {
    float values[W], g[W], b[W];
    LoadFloats(row + c, values);
    LoadFloats(gamma + c, g);
    LoadFloats(beta + c, b);
#pragma unroll
    for (int j = 0; j < W; ++j) values[j] = (values[j] - mu) * inverse * g[j] + b[j];
    StoreFloats(y + r * C + c, values);
  }
  if (threadIdx.x == 0) {
    mean[r] = mu;
    rstd[r] = inverse;
  }
}

// With n = (x - mean) rstd and g = dy gamma:  dx = rstd (g - mean_c(g) - n mean_c(g n)) + d_residual. The
// norm of one value alone is a constant: its gradient is no difference of roundings, but 0.
template <class E, int W>
__global__ void __launch_bounds__(kWarpThreads* kRowsPerBlock)
    BackwardKernel(const E* dy, const E* x, const E* gamma, const float* mean, const float* rstd,
                   const E* d_residual, E* dx, std::int64_t R, int C) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.y;
  if (r >= R) return;
  const int first = static_cast<int>(threadIdx.x) * W;
  constexpr int kStep = kWarpThreads * W;
  const float mu = mean[r], inverse = C == 1 ? 0.0f : rstd[r];
  float sum_g = 0, sum_gn = 0;
  for (int c = first; c < C; c += kStep) {
    float d[W], n[W], g[W];
    LoadFloats(dy + r * C + c, d);
    LoadFloats(x + r * C + c, n);
    LoadFloats(gamma + c, g);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      sum_g += d[j] * g[j];
      sum_gn += d[j] * g[j] * ((n[j] - mu) * inverse);
    }
  }
  const float mean_g = WarpSum(sum_g) / static_cast<float>(C),
              mean_gn = WarpSum(sum_gn) / static_cast<float>(C);
  for (int c = first; c < C; c += kStep) {
    float d[W], n[W], g[W], more[W] = {};
    LoadFloats(dy + r * C + c, d);
    LoadFloats(x + r * C + c, n);
    LoadFloats(gamma + c, g);
    if (d_residual != nullptr) LoadFloats(d_residual + r * C + c, more);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      d[j] = inverse * (d[j] * g[j] - mean_g - (n[j] - mu) * inverse * mean_gn) + more[j];
    }
    StoreFloats(dx + r * C + c, d);
  }
}

// Terms of d_gamma and d_beta.
template <class E, int W>
struct ParameterTerm {
  const E *dy, *x;
  const float *mean, *rstd;
  int C;
  __device__ void operator()(std::int64_t r, int c, float (&out)[2][W]) const {
    float n[W];
    LoadFloats(x + r * C + c, n);
    LoadFloats(dy + r * C + c, out[1]);
    const float mu = mean[r], inverse = rstd[r];
#pragma unroll
    for (int j = 0; j < W; ++j) out[0][j] = out[1][j] * ((n[j] - mu) * inverse);
  }
};

}  // namespace

template <class T>
void CudaBackend<T>::LayerNormForward(const Element* x, const Element* residual, Element* sum,
                                      const Element* gamma, const Element* beta, Element* y, float* mean,
                                      float* rstd, std::int64_t R, int C, float epsilon) {
  if (R == 0 || C == 0) return;
  const auto blocks = static_cast<unsigned>(DivideUp<std::int64_t>(R, kRowsPerBlock));
  ByWidth<T>(C, {x, residual, sum, gamma, beta, y}, [&](auto width) {
    constexpr int W = decltype(width)::value;
    HS_LAUNCH((ForwardKernel<T, W>), blocks, dim3(kWarpThreads, kRowsPerBlock), 0, stream_, E(x), E(residual),
              E(sum), E(gamma), E(beta), E(y), mean, rstd, R, C, epsilon);
  });
  CheckLaunch("LayerNormForward");
}

template <class T>
void CudaBackend<T>::LayerNormBackward(const Element* dy, const Element* x, const Element* gamma,
                                       const float* mean, const float* rstd, const Element* d_residual,
                                       Element* dx, float* d_gamma, float* d_beta, std::int64_t R, int C) {
  if (R == 0 || C == 0) return;
  const auto blocks = static_cast<unsigned>(DivideUp<std::int64_t>(R, kRowsPerBlock));
  ByWidth<T>(C, {dy, x, gamma, d_residual, dx}, [&](auto width) {
    constexpr int W = decltype(width)::value;
    // First the parameters: dx may be where dy is.
    AddColumnSums<2, W>(ParameterTerm<T, W>{E(dy), E(x), mean, rstd, C}, R, C, {d_gamma, d_beta}, scratch_,
                        stream_);
    HS_LAUNCH((BackwardKernel<T, W>), blocks, dim3(kWarpThreads, kRowsPerBlock), 0, stream_, E(dy), E(x),
              E(gamma), mean, rstd, E(d_residual), E(dx), R, C);
  });
  CheckLaunch("LayerNormBackward");
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
