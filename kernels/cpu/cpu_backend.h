// CpuBackend: float32 on CPU cores. Each op family is defined in a file of its own beside this header;
// contracts are in kernels/backend.h. Everything happens at once on the calling thread and its OpenMP team,
// so nothing is ever pending. Elements are floats. Every op gives the same bits for any thread count.
#pragma once

#include <algorithm>

#include "kernels/backend.h"
#include "kernels/cpu/allocator.h"

namespace headsweep {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : Backend(sizeof(float)), threads_(threads) {}

  std::string name() const override { return "cpu"; }
  std::string description() const override;

  void* Allocate(std::size_t bytes) override;
  void Free(void* memory) noexcept override;
  void CopyIn(float* to, const float* host_from, std::int64_t count) override;
  void CopyIn(std::int32_t* to, const std::int32_t* host_from, std::int64_t count) override;
  void CopyIn(Element* to, const float* host_from, std::int64_t count) override;
  void CopyIn(PassNumbers* to, const PassNumbers& from) override { *to = from; }
  void CopyOut(float* host_to, const float* from, std::int64_t count) override;
  void CopyOut(std::int32_t* host_to, const std::int32_t* from, std::int64_t count) override;
  void CopyOut(float* host_to, const Element* from, std::int64_t count) override;
  void Fill(float* x, float value, std::int64_t count) override;
  void Synchronize() override {}

  void EmbeddingForward(const std::int32_t* tokens, const Element* token_table, const Element* position_table,
                        Element* out, int B, int T, int C, float scale) override;
  void EmbeddingBackward(const std::int32_t* tokens, const Element* dout, float* d_token_table,
                         float* d_position_table, int B, int T, int C, int V, float scale) override;

  void LinearForward(const Element* x, const Element* weight, const Element* bias, Element* y, Element* pre,
                     std::int64_t R, int I, int O, Activation activation) override;
  void LinearBackward(const Element* dy, const Element* x, const Element* weight, Element* dx,
                      float* d_weight, float* d_bias, std::int64_t R, int I, int O,
                      bool accumulate_dx) override;
  void ActivationBackward(const Element* dy, const Element* pre, Element* dpre, std::int64_t count,
                          Activation activation) override;

  void LayerNormForward(const Element* x, const Element* residual, Element* sum, const Element* gamma,
                        const Element* beta, Element* y, float* mean, float* rstd, std::int64_t R, int C,
                        float epsilon) override;
  void LayerNormBackward(const Element* dy, const Element* x, const Element* gamma, const float* mean,
                         const float* rstd, const Element* d_residual, Element* dx, float* d_gamma,
                         float* d_beta, std::int64_t R, int C) override;

  void AttentionForward(const AttentionShape& shape, const Element* q, const Element* k, const Element* v,
                        const float* gates, Element* out, Element* gated, float* lse) override;
  void AttentionBackward(const AttentionShape& shape, const Element* q, const Element* k, const Element* v,
                         const float* gates, const Element* out, const float* lse, const Element* dout,
                         Element* dq, Element* dk, Element* dv, float* delta) override;
  void HeadImportance(const float* delta, int B, int H, int T, float scale, float* per_example,
                      float* per_token, float* squares, float* gate_gradient) override;

  void Add(const Element* a, const Element* b, Element* out, std::int64_t count) override;
  void ApplyDropout(const Element* x, Element* y, int B, std::int64_t N, const Dropout& dropout) override;

  void CrossEntropy(Element* logits, const std::int32_t* targets, float* losses, std::int32_t* predictions,
                    std::int64_t R, int V, float smoothing, float gradient_scale,
                    const PassNumbers* numbers) override;

  void SumOfSquares(const float* x, std::int64_t count, float* result) override;
  void Sum(const float* x, std::int64_t count, float* result) override;
  void ClipScale(const float* sum_of_squares, float max_norm, float* norm, float* scale) override;
  void AdamWUpdate(const AdamW& adam, const float* rates, float* master, Element* weights, float* m, float* v,
                   const float* gradient, const float* gradient_scale, std::int64_t count) override;

 private:
  // sums[c] += sum over rows of x[r][c]: bias gradients. Fixed tree over rows. linear.cc
  void AddColumnSums(const float* x, std::int64_t R, std::int64_t columns, float* sums);

  const int threads_;
  cpu::Scratch scratch_;  // of one op at a time; every op takes it anew
};

namespace cpu {

inline float* F(Element* p) { return reinterpret_cast<float*>(p); }
inline const float* F(const Element* p) { return reinterpret_cast<const float*>(p); }

// Reductions over rows are cut into pieces of this many rows, a function of R alone: at most 64 pieces, at
// least 32 rows each, so that partial sums stay small and the tree does not depend on the thread count.
inline std::int64_t ReductionRows(std::int64_t R) { return std::max<std::int64_t>(32, (R + 63) / 64); }

}  // namespace cpu

}  // namespace headsweep
