// Backend: the mathematics of a Transformer on one device's buffers, at op granularity.
// Not here: what a model is (trainer/model.h), where buffers lie (kernels/arena.h).
//
// Letters, project-wide: B batch (examples), T target length, S source length, C model width, H heads, D head size,
// F feed-forward width, L layers, V vocabulary; R = B*T rows; I, O a linear layer's in and out widths. C != H*D in
// general. Prefix d = gradient. Everything is row-major and dense unless a row stride is named.
//
// Types of memory. Element* points at values of the backend's compute type: float on CPUs and in CUDA float32, bfloat16 in
// CUDA's mixed precision (element_bytes() tells). It is opaque: only ops look inside; use Offset() to move. float* is always
// float32: master parameters, gradients of parameters, statistics, losses. All pointers are device memory unless a name
// starts with host_.
//
// Rules for every op. Inputs and outputs must not overlap unless "may alias" is said. Outputs are overwritten, except those
// marked accumulate (+=). Sizes of zero are allowed and do nothing. Deterministic: the same bits on every call with the same
// inputs, thread count and machine type. Ops are enqueued in order; only CopyOut*, Mailbox::Wait, Synchronize, Seconds and the destructor wait.
// Scratch is private to the backend, grown when a larger shape is first seen and kept: no allocation in a steady step.
// Errors: DeviceError (sticky), Unsupported (names op and limit), std::bad_alloc from Allocate.
// Not thread-safe: one Backend per thread that drives it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cluster/base/gpu_report.h"

namespace headsweep {

struct Element;  // opaque, see above

enum class Activation { kNone, kGelu, kRelu };  // kGelu: tanh form, as cuBLASLt's epilogue (Hendrycks & Gimpel 2016)

// What changes from one pass to the next of the same shape. It lies in device memory and is read when an op runs, so that work
// that was recorded once (Backend::Repeat) can run again with other numbers. Ops take a pointer; nullptr stands for these values.
struct PassNumbers {
  std::uint64_t site = 0;          // added to Dropout::site
  std::int64_t first_example = 0;  // added to Dropout::first_example
  float gradient_scale = 1;        // multiplies CrossEntropy's
};

// Dropout keeps a value with probability 1 - rate and scales it by 1 / (1 - rate). The mask is a function of these fields
// and the value's position alone (Philox4x32-10, kernels/philox.h): nothing is stored, the backward pass draws it again.
struct Dropout {
  float rate = 0;               // 0 = off
  std::uint64_t seed = 0;       // of the trial
  std::uint64_t site = 0;       // unique per (optimiser step, layer, place)
  std::int64_t first_example = 0;  // index of this buffer's first example in the whole effective batch, so that masks do
                                   // not depend on how the batch is cut into micro-batches and processes
  const PassNumbers* numbers = nullptr;  // device memory
};

// Shape of one attention call. q row (b,t) starts at q + (b*T + t) * q_stride, head h at + h*D; k, v rows (b,s) likewise
// with kv_stride; strides count elements. out, gated, dout are dense (B, T, H, D).
struct AttentionShape {
  int B = 0, T = 0, S = 0, H = 0, D = 0;
  std::int64_t q_stride = 0;
  std::int64_t kv_stride = 0;
  bool causal = false;                        // query t sees keys s <= t + (S - T)
  const std::int32_t* key_lengths = nullptr;  // (B), nullptr = all S; keys s >= length are masked
  float scale = 1;                            // logits are scale * q.k, usually 1/sqrt(D); positive
  Dropout dropout;                            // on attention probabilities; position = ((b*H + h)*T + t)*S + s
};

class Backend {
 public:
  virtual ~Backend() = default;

  // --- Device and memory -------------------------------------------------------------------------------------------
  virtual std::string name() const = 0;  // BackendOptions::device
  virtual std::string description() const = 0;  // for provenance: device, instruction set, GEMM library and version, threads
  std::size_t element_bytes() const { return element_bytes_; }
  Element* Offset(Element* p, std::int64_t count) const {
    return reinterpret_cast<Element*>(reinterpret_cast<char*>(p) + count * static_cast<std::int64_t>(element_bytes_));
  }
  const Element* Offset(const Element* p, std::int64_t count) const { return Offset(const_cast<Element*>(p), count); }

  // Memory, 64-byte aligned, zeroed, already touched (huge pages where the system has them). Call at set-up only.
  virtual void* Allocate(std::size_t bytes) = 0;
  virtual void Free(void* memory) noexcept = 0;

  virtual void CopyIn(float* to, const float* host_from, std::int64_t count) = 0;
  virtual void CopyIn(std::int32_t* to, const std::int32_t* host_from, std::int64_t count) = 0;
  virtual void CopyIn(Element* to, const float* host_from, std::int64_t count) = 0;  // rounds to the compute type
  virtual void CopyIn(PassNumbers* to, const PassNumbers& from) = 0;
  virtual void CopyOut(float* host_to, const float* from, std::int64_t count) = 0;   // waits
  virtual void CopyOut(std::int32_t* host_to, const std::int32_t* from, std::int64_t count) = 0;  // waits
  virtual void CopyOut(float* host_to, const Element* from, std::int64_t count) = 0;              // waits
  virtual void Fill(float* x, float value, std::int64_t count) = 0;
  virtual void Synchronize() = 0;
  // Bytes that Allocate can still give of a memory of the device's own, less what the backend itself may still take (scratch).
  // nullopt: buffers lie in this process's memory, whose limits the caller knows better (cluster/base/memory.h).
  virtual std::optional<std::int64_t> FreeDeviceMemory() const { return std::nullopt; }
  // The most bytes that Allocate has given at one time of such a memory. nullopt: as above.
  virtual std::optional<std::int64_t> PeakDeviceMemory() const { return std::nullopt; }

  // --- Work that is repeated, and work beside which the host goes on --------------------------------------------------
  // True: ops return before they are done, so it pays to enqueue the next work before the results of the last are looked at.
  virtual bool RunsBehind() const { return false; }
  // What Repeat keeps. The backend must outlive it.
  class Recording {
   public:
    virtual ~Recording() = default;
  };
  // Enqueues what enqueue() enqueues: by calling it, or, from the third time on, all at once as a CUDA graph that was recorded the
  // second time. recording: nullptr the first time, then what came of it. Each time enqueue() must be the same ops with the same
  // shapes, addresses and numbers, on memory whose contents may change (PassNumbers, AdamW's rates); no copies to or from
  // the host, allocations, waits, or Repeat in it. The same bits as enqueue() alone.
  virtual void Repeat(std::unique_ptr<Recording>& recording, const std::function<void()>& enqueue);
  // Host memory that values come to while the host goes on. The backend must outlive it.
  class Mailbox {
   public:
    virtual ~Mailbox() = default;
    // Enqueues a copy of count values to [at, at + count). Until Wait they must not be posted to again.
    virtual void Post(std::int64_t at, const float* from, std::int64_t count) = 0;
    virtual const float* Wait() = 0;  // until all that was posted is there
  };
  virtual std::unique_ptr<Mailbox> MakeMailbox(std::int64_t floats);
  // CopyOutMarked gives what `from` held when Mark was last called, and waits for nothing that was enqueued since: that
  // goes on meanwhile, and must not write to `from`.
  virtual void Mark() {}
  virtual void CopyOutMarked(float* host_to, const float* from, std::int64_t count) { CopyOut(host_to, from, count); }
  // The cudaStream_t that ops are enqueued on, for libraries that must follow them; nullptr on backends that are no card.
  virtual void* CardStream() const { return nullptr; }

  // Seconds that the device takes for what enqueue() enqueues, by its own clock where it has one; waits. For benchmarks.
  virtual double Seconds(const std::function<void()>& enqueue);

  // --- Embedding -----------------------------------------------------------------------------------------------------
  // out[r] = scale * token_table[tokens[r]] + position_table[r % T].  Vaswani et al. 2017, section 3.4.
  //   tokens (B*T) in, values in [0, V); token_table (V, C) in; position_table (>= T, C) in or nullptr; out (B*T, C)
  virtual void EmbeddingForward(const std::int32_t* tokens, const Element* token_table, const Element* position_table,
                                Element* out, int B, int T, int C, float scale) = 0;
  // d_token_table (V, C) accumulate; d_position_table accumulate or nullptr; dout (B*T, C) in
  virtual void EmbeddingBackward(const std::int32_t* tokens, const Element* dout, float* d_token_table,
                                 float* d_position_table, int B, int T, int C, int V, float scale) = 0;

  // --- Linear ------------------------------------------------------------------------------------------------------
  // pre = x W^T + bias; y = activation(pre).
  //   x (R, I) in; weight (O, I) in; bias (O) in or nullptr; y (R, O) out;
  //   pre (R, O) out, needed by ActivationBackward; nullptr when activation is kNone or no backward pass follows
  virtual void LinearForward(const Element* x, const Element* weight, const Element* bias, Element* y, Element* pre,
                             std::int64_t R, int I, int O, Activation activation) = 0;
  // dx = dy W (overwritten, or accumulated when accumulate_dx); d_weight (O, I) += dy^T x; d_bias (O) += column sums of dy.
  //   dy (R, O) in, already the gradient of pre; dx (R, I) or nullptr; d_weight and d_bias may be nullptr
  virtual void LinearBackward(const Element* dy, const Element* x, const Element* weight, Element* dx, float* d_weight,
                              float* d_bias, std::int64_t R, int I, int O, bool accumulate_dx) = 0;
  // dpre = dy * activation'(pre); dpre may alias dy. count values
  virtual void ActivationBackward(const Element* dy, const Element* pre, Element* dpre, std::int64_t count,
                                  Activation activation) = 0;

  // dpre = (dy W) * activation'(pre): the gradient, back through a linear layer, of what went into the activation whose result the
  // layer read. dy (R, O), weight (O, I), pre (R, I) in; dpre (R, I) out. In bfloat16 rounded once or twice.
  virtual void LinearBackwardThroughActivation(const Element* dy, const Element* weight, const Element* pre, Element* dpre,
                                               std::int64_t R, int I, int O, Activation activation);

  // --- Layer norm --------------------------------------------------------------------------------------------------
  // y = (x - mean) * rstd * gamma + beta per row.  Ba et al. 2016. If residual is given, x is first replaced by the sum:
  //   sum = x + residual (written to sum, which may alias residual), and the norm is of sum.
  //   x (R, C) in; residual (R, C) in or nullptr; sum (R, C) out, nullptr exactly when residual is;
  //   gamma, beta (C) in; y (R, C) out; mean, rstd (R) out, needed by backward
  virtual void LayerNormForward(const Element* x, const Element* residual, Element* sum, const Element* gamma,
                                const Element* beta, Element* y, float* mean, float* rstd, std::int64_t R, int C,
                                float epsilon) = 0;
  // dx = gradient of the norm's input, plus d_residual when given (the gradient that arrives at sum by the residual path).
  //   dy (R, C) in; x (R, C) in, what was normalised (sum, if there was a residual); d_residual (R, C) in or nullptr;
  //   dx (R, C) out, may alias dy or d_residual; d_gamma, d_beta (C) accumulate
  virtual void LayerNormBackward(const Element* dy, const Element* x, const Element* gamma, const float* mean,
                                 const float* rstd, const Element* d_residual, Element* dx, float* d_gamma,
                                 float* d_beta, std::int64_t R, int C) = 0;

  // --- Attention ---------------------------------------------------------------------------------------------------
  // out[b,t,h] = softmax_s(scale * q.k + mask) v, per head; gated[b,t,h] = gates[h] * out[b,t,h].  Vaswani et al. 2017,
  // eq. 1; gates: Michel et al. 2019, section 2.3. Projections are LinearForward's business.
  //   out (B, T, H, D) out, ungated, needed by backward; gates (H) in or nullptr (all 1); gated (B, T, H, D) out, nullptr
  //   exactly when gates is; lse (B, H, T) out, log-sum-exp of the masked logits, needed by backward.
  //   A query that sees no key gives out = 0 and lse = -infinity. T != S allowed. D from 1 to 512.
  virtual void AttentionForward(const AttentionShape& shape, const Element* q, const Element* k, const Element* v,
                                const float* gates, Element* out, Element* gated, float* lse) = 0;
  // Gradients of the above.
  //   dout (B, T, H, D) in, gradient of gated (of out when gates is nullptr); dq, dk, dv out, laid out like q, k, v with
  //   the shape's strides (columns of other tensors in between are left alone);
  //   delta (B, H, T) out: sum_d dout * out (ungated), the row term whose sum over t is dLoss/dgate[h] for example b.
  virtual void AttentionBackward(const AttentionShape& shape, const Element* q, const Element* k, const Element* v,
                                 const float* gates, const Element* out, const float* lse, const Element* dout,
                                 Element* dq, Element* dk, Element* dv, float* delta) = 0;
  // Sums of delta for head importance (Michel et al. 2019, eq. 2), all accumulate, each (H), any may be nullptr:
  //   per_example += sum_b |sum_t delta|;  per_token += sum_b sum_t |delta|;  squares += sum_b (sum_t delta)^2;
  //   gate_gradient += sum_b sum_t delta.        delta (B, H, T) in; scale multiplies delta first
  virtual void HeadImportance(const float* delta, int B, int H, int T, float scale, float* per_example, float* per_token,
                              float* squares, float* gate_gradient) = 0;

  // --- Elementwise -------------------------------------------------------------------------------------------------
  // out = a + b; out may alias either.
  virtual void Add(const Element* a, const Element* b, Element* out, std::int64_t count) = 0;
  // y = dropout(x), x (B, N), position = (first_example + b) * N + i; y may alias x. Its own backward pass.
  virtual void ApplyDropout(const Element* x, Element* y, int B, std::int64_t N, const Dropout& dropout) = 0;

  // --- Loss --------------------------------------------------------------------------------------------------------
  // Softmax cross-entropy, fused: no probability tensor. Per row r with target c >= 0 (a negative target is ignored:
  // loss 0, gradient 0): losses[r] = -sum_v p*_v log softmax(logits[r])_v with p* = (1 - smoothing) onehot(c) + smoothing/V.
  // If gradient_scale != 0, logits[r] is overwritten by gradient_scale * numbers->gradient_scale * dlosses[r]/dlogits[r];
  // otherwise left alone. Where losses[r] is not a finite number all of that is NaN: the norm of the gradients tells.
  //   logits (R, V) in, out; targets (R) in; losses (R) out; predictions (R) out, argmax (first of ties), or nullptr;
  //   numbers: device memory or nullptr
  virtual void CrossEntropy(Element* logits, const std::int32_t* targets, float* losses, std::int32_t* predictions,
                            std::int64_t R, int V, float smoothing, float gradient_scale, const PassNumbers* numbers) = 0;

  // --- Optimiser and reductions ------------------------------------------------------------------------------------
  // result[0] = sum of x^2 / of x. Fixed reduction tree, float64 or compensated inside. Results stay on the device.
  virtual void SumOfSquares(const float* x, std::int64_t count, float* result) = 0;
  virtual void Sum(const float* x, std::int64_t count, float* result) = 0;
  // norm[0] = sqrt(sum_of_squares[0]); scale[0] = min(1, max_norm / norm) (1 if max_norm <= 0). No host round trip.
  //   scale in, out: NaN when the norm is not a finite number, and for ever after: a run that has diverged changes nothing more
  virtual void ClipScale(const float* sum_of_squares, float max_norm, float* norm, float* scale) = 0;

  struct AdamW {  // Loshchilov & Hutter 2019; bias-corrected, decoupled decay: w -= lr * (m^/(sqrt(v^)+eps) + decay*w)
    float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, weight_decay = 0;
    // What changes from step to step: learning rate, 1 / (1 - beta1^step), 1 / (1 - beta2^step). step counts from 1.
    std::array<float, 3> Rates(float learning_rate, std::int64_t step) const;
  };
  // rates (3) in, AdamW::Rates; master, m, v (count) in, out; gradient (count) in, multiplied by gradient_scale[0] first (device
  // memory, or nullptr = 1; if it is NaN nothing is changed); weights (count) out: master rounded to the compute type; on float32
  // backends weights == master is allowed.
  virtual void AdamWUpdate(const AdamW& adam, const float* rates, float* master, Element* weights, float* m, float* v,
                           const float* gradient, const float* gradient_scale, std::int64_t count) = 0;

 protected:
  explicit Backend(std::size_t element_bytes) : element_bytes_(element_bytes) {}

 private:
  std::size_t element_bytes_;
};

struct BackendOptions {
  std::string device = "cpu";  // "cpu" | "cuda" | "cuda-on-host": the CUDA kernels run by the CPU, slowly, for tests
  int threads = 1;             // CPU threads of this process
  std::string precision = "float32";  // of the compute type: "float32" | "bfloat16" (CUDA only)
  bool run_ahead = true;       // false: Repeat records nothing and RunsBehind() is false, to see where something fails
};

// The one place that knows which backends exist. Throws Unsupported for a device that is compiled out, ConfigError for an
// unknown name.
std::unique_ptr<Backend> MakeBackend(const BackendOptions& options);

// The GPUs that device "cuda" could run on, or why there is none. Never throws. In builds with CUDA it opens each device for a
// moment: for a short-lived process (headsweep-trainer --probe).
GpuReport ProbeGpus();

}  // namespace headsweep
