#include "tests/bench/gemm_skeleton.h"

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "tests/bench/onednn_gemm.h"

namespace headsweep::bench {

double StepShape::Flops() const {
  const double rows = static_cast<double>(Rows()), width = static_cast<double>(H) * D;
  const double linear = static_cast<double>(L) * (4.0 * C * width + 2.0 * C * F) + static_cast<double>(C) * V;
  const double attention = static_cast<double>(L) * 6 * T * width;  // QK^T, PV; dV, dP, dQ, dK
  return 2 * rows * (3 * linear + attention);
}

GemmSkeleton::GemmSkeleton(const StepShape& shape, int threads) : shape_(shape), threads_(threads) {
  const std::int64_t widest = std::max({3 * shape.H * shape.D, shape.F, shape.V, shape.C});
  const auto activations = static_cast<std::size_t>(shape.Rows() * widest);
  const auto weights =
      static_cast<std::size_t>(widest) * static_cast<std::size_t>(std::max(shape.C, shape.H * shape.D));
  const auto scores = static_cast<std::size_t>(shape.B) * static_cast<std::size_t>(shape.H * shape.T) *
                      static_cast<std::size_t>(shape.T);
  x_ = x_memory_.Floats(activations, threads);
  y_ = y_memory_.Floats(activations, threads);
  weight_ = weight_memory_.Floats(weights, threads);
  gradient_ = gradient_memory_.Floats(weights, threads);
  scores_ = scores_memory_.Floats(scores, threads);
  dscores_ = dscores_memory_.Floats(scores, threads);
  std::fill(x_, x_ + activations, 0.25f);
  std::fill(weight_, weight_ + weights, 0.125f);
}

void GemmSkeleton::Step() {
  const int C = shape_.C, width = shape_.H * shape_.D, F = shape_.F;
  for (int layer = 0; layer < shape_.L; ++layer) {
    Forward(C, 3 * width);
    AttentionForward();
    Forward(width, C);
    Forward(C, F);
    Forward(F, C);
  }
  Forward(C, shape_.V);
  Backward(C, shape_.V);
  for (int layer = 0; layer < shape_.L; ++layer) {
    Backward(F, C);
    Backward(C, F);
    Backward(width, C);
    AttentionBackward();
    Backward(C, 3 * width);
  }
}

void GemmSkeleton::Forward(int in, int out) {
  OneDnnGemm(false, true, shape_.Rows(), out, in, x_, in, weight_, in, 0, y_, out, threads_);
}

void GemmSkeleton::Backward(int in, int out) {
  OneDnnGemm(false, false, shape_.Rows(), in, out, x_, out, weight_, in, 0, y_, in, threads_);
  OneDnnGemm(true, false, out, in, shape_.Rows(), x_, out, y_, in, 1, gradient_, in, threads_);
}

void GemmSkeleton::AttentionForward() {
  const int T = shape_.T, D = shape_.D, width = shape_.H * D, stride = 3 * width;
  cpu::ParallelFor(threads_, static_cast<std::int64_t>(shape_.B) * shape_.H, [&](std::int64_t head, int) {
    const std::int64_t row = head / shape_.H * T, column = head % shape_.H * D;
    const float* q = x_ + row * stride + column;
    float* scores = scores_ + head * T * T;
    OneDnnGemm(false, true, T, T, D, q, stride, q + width, stride, 0, scores, T, 1);
    OneDnnGemm(false, false, T, D, T, scores, T, q + 2 * width, stride, 0, y_ + row * width + column, width,
               1);
  });
}

void GemmSkeleton::AttentionBackward() {
  const int T = shape_.T, D = shape_.D, width = shape_.H * D, stride = 3 * width;
  cpu::ParallelFor(threads_, static_cast<std::int64_t>(shape_.B) * shape_.H, [&](std::int64_t head, int) {
    const std::int64_t row = head / shape_.H * T, column = head % shape_.H * D;
    const float* q = x_ + row * stride + column;
    const float* dout = x_ + row * width + column;
    float* dq = y_ + row * stride + column;
    float* p = scores_ + head * T * T;
    float* dp = dscores_ + head * T * T;
    OneDnnGemm(true, false, T, D, T, p, T, dout, width, 0, dq + 2 * width, stride, 1);  // dV = P^T dO
    OneDnnGemm(false, true, T, T, D, dout, width, q + 2 * width, stride, 0, dp, T, 1);  // dP = dO V^T
    OneDnnGemm(false, false, T, D, T, dp, T, q + width, stride, 0, dq, stride, 1);      // dQ = dS K
    OneDnnGemm(true, false, T, D, T, dp, T, q, stride, 0, dq + width, stride, 1);       // dK = dS^T Q
  });
}

}  // namespace headsweep::bench
