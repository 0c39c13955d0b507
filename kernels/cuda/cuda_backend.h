// CudaBackend: the ops of kernels/backend.h as CUDA kernels, on one card, or on the CPU with every CUDA
// thread a fiber (portable.h). T is the compute type: float, or bf16 with float32 master weights, statistics
// and accumulation. Each op family is defined in the file of its name, with the same names as in kernels/cpu.
// All work is enqueued on one stream of the backend's own; no op waits for it or allocates, except while
// scratch grows to the largest shape seen. Determinism: no float atomics anywhere, all reductions are fixed
// trees that depend on shapes alone.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>

#include "kernels/backend.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/portable.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

template <class T>
class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, bool run_ahead);
  ~CudaBackend() override;

  std::string name() const override;  // "cuda", or "cuda-on-host"
  std::string description() const override;

  void* Allocate(std::size_t bytes) override;
  void Free(void* memory) noexcept override;
  void CopyIn(float* to, const float* host_from, std::int64_t count) override;
  void CopyIn(std::int32_t* to, const std::int32_t* host_from, std::int64_t count) override;
  void CopyIn(Element* to, const float* host_from, std::int64_t count) override;
  void CopyIn(PassNumbers* to, const PassNumbers& from) override;
  void CopyOut(float* host_to, const float* from, std::int64_t count) override;
  void CopyOut(std::int32_t* host_to, const std::int32_t* from, std::int64_t count) override;
  void CopyOut(float* host_to, const Element* from, std::int64_t count) override;
  void Fill(float* x, float value, std::int64_t count) override;
  void Synchronize() override;
  std::optional<std::int64_t> FreeDeviceMemory() const override;
  std::optional<std::int64_t> PeakDeviceMemory() const override;
  bool RunsBehind() const override { return run_ahead_; }
  void Repeat(std::unique_ptr<Recording>& recording, const std::function<void()>& enqueue) override;
  std::unique_ptr<Mailbox> MakeMailbox(std::int64_t floats) override;
  void Mark() override;
  void CopyOutMarked(float* host_to, const float* from, std::int64_t count) override;
  void* CardStream() const override;
  double Seconds(const std::function<void()>& enqueue) override;

  void EmbeddingForward(const std::int32_t* tokens, const Element* token_table, const Element* position_table,
                        Element* out, int B, int T_, int C, float scale) override;
  void EmbeddingBackward(const std::int32_t* tokens, const Element* dout, float* d_token_table,
                         float* d_position_table, int B, int T_, int C, int V, float scale) override;

  void LinearForward(const Element* x, const Element* weight, const Element* bias, Element* y, Element* pre,
                     std::int64_t R, int I, int O, Activation activation) override;
  void LinearBackward(const Element* dy, const Element* x, const Element* weight, Element* dx,
                      float* d_weight, float* d_bias, std::int64_t R, int I, int O,
                      bool accumulate_dx) override;
  void ActivationBackward(const Element* dy, const Element* pre, Element* dpre, std::int64_t count,
                          Activation activation) override;

  void LinearBackwardThroughActivation(const Element* dy, const Element* weight, const Element* pre,
                                       Element* dpre, std::int64_t R, int I, int O,
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
  void HeadImportance(const float* delta, int B, int H, int T_, float scale, float* per_example,
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
  static T* E(Element* p) { return reinterpret_cast<T*>(p); }
  static const T* E(const Element* p) { return reinterpret_cast<const T*>(p); }

  Staging& StagingOf(const char* copy);  // throws while Repeat records: a graph would copy the same memory again

  const int device_;
  const bool run_ahead_;
  Stream stream_, copies_;  // copies_: of CopyOutMarked
  Event mark_{cudaEventDisableTiming};
  DeviceScratch scratch_;  // of one op at a time; every op takes it anew
  Staging staging_;        // between pageable host memory and the device
  std::unique_ptr<MarkedStaging> marked_staging_;  // taken when a copy is first marked
  bool recording_ = false;                         // in a Repeat that records
  MatMul<T> matmul_;
  std::unordered_map<void*, std::size_t> held_;  // by Allocate
  std::int64_t held_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
