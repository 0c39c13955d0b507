// The GEMM-only skeleton of a training step: every matrix product of forward and backward in its real order
// and shape, through oneDNN, and nothing else. What a perfect wrapper around that library could reach; a
// whole step is measured against it. Attention products are counted in full (no causal saving), over all
// (example, head) pairs in parallel.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/allocator.h"

namespace headsweep::bench {

struct StepShape {
  int L = 6, C = 256, H = 8, D = 32, F = 1024, T = 128, B = 8, V = 8192;
  std::int64_t Rows() const { return static_cast<std::int64_t>(B) * T; }
  double Flops() const;  // of the products below
};

class GemmSkeleton {
 public:
  GemmSkeleton(const StepShape& shape, int threads);
  void Step();

 private:
  // One linear layer's products. Gradients of weights accumulate, as in training.
  void Forward(int in, int out);
  void Backward(int in, int out);
  void AttentionForward();
  void AttentionBackward();

  StepShape shape_;
  int threads_;
  cpu::Scratch x_memory_, y_memory_, weight_memory_, gradient_memory_, scores_memory_, dscores_memory_;
  float *x_, *y_, *weight_, *gradient_, *scores_, *dscores_;
};

}  // namespace headsweep::bench
