// Model: a decoder Transformer on one Backend: parameters, forward, backward, head gates.
// Not here: the optimiser and schedule (optimizer.h), the training loop (training.h), what to prune (head_orders.h).
// Heads per layer is a list and head size is free: C != H*D in general, and H = 0 means attention is skipped (output bias and
// residual kept). Removing heads and gating them to 0 gives the same outputs. Vaswani et al. 2017; pre-norm: Xiong et al. 2020.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/batches.h"
#include "kernels/backend.h"
#include "sweeps/stage_config.h"
#include "trainer/parameter_layout.h"

namespace headsweep {

struct LossSum {
  double loss = 0;           // sum over targets, with label smoothing
  std::int64_t targets = 0;
  void operator+=(const LossSum& other) {
    loss += other.loss;
    targets += other.targets;
  }
};

// Sums of |dLoss/dgate| over examples, per head, flat over layers (HeadIndex). Scaled so that the loss of one example is its
// mean over targets. Michel et al. 2019, eq. 2.
struct HeadScores {
  std::vector<double> per_example, per_token, squares;
  std::int64_t examples = 0, tokens = 0;
};

struct ForwardBackwardOptions {
  float gradient_scale = 1;      // multiplies dLoss of each target: 1 / targets of the effective batch
  float label_smoothing = 0;
  float dropout = 0;
  std::uint64_t seed = 0;        // of dropout
  std::int64_t step = 0;         // of dropout
  HeadScores* scores = nullptr;  // if given, importance is accumulated
  // Called during the backward pass when the gradients of a layer and of all behind it are complete (enqueued): with L for
  // the output projection, then L-1 … 0, then -1 for the embeddings, which a tied output projection is one of.
  std::function<void(int layer)> on_layer_done = nullptr;
};

// Of values that are copied out: as they are when all enqueued work is done, or as they were when the backend was last told to
// Mark, while work enqueued since goes on.
enum class AsOf { kNow, kMark };

class Model {
 public:
  enum class Purpose { kTrain, kEvaluate };  // kEvaluate: no gradients, no saved activations

  // max_examples: most rows of one batch. All memory is taken here; nothing is allocated later.
  Model(Backend& backend, const ModelShape& shape, int max_examples, Purpose purpose);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelShape& shape() const;
  const ParameterLayout& layout() const;
  Backend& backend();
  std::size_t memory_bytes() const;  // of the arena
  // memory_bytes() of such a model, without taking it.
  static std::size_t PlannedBytes(const Backend& backend, const ModelShape& shape, int max_examples, Purpose purpose);

  // Parameters, host side, in layout order.
  void Initialize(std::uint64_t seed);  // function of (seed, tensor name, index): independent of everything else
  void SetParameters(std::span<const float> values);
  std::vector<float> GetParameters(AsOf when = AsOf::kNow) const;
  std::vector<float> GetGradients() const;

  // Gates xi, one per head, flat over layers; stays until cleared. Without gates no gate multiply runs.
  void SetGates(std::span<const float> gates);
  void ClearGates();

  // Evaluation mode (no dropout, no smoothing). per_target: if given, receives the loss of every target, (B*T), 0 where none.
  LossSum Evaluate(const Batch& batch, std::vector<float>* per_target = nullptr);
  std::vector<float> Logits(const Batch& batch);  // (B*T, V), for tests and inspection

  // One micro-batch; gradients accumulate until ZeroGradients. kTrain only.
  void ZeroGradients();
  LossSum ForwardBackward(const Batch& batch, const ForwardBackwardOptions& options);
  // The same without waiting, and without scores: the losses of all B*T targets (0 where there is none) are posted to `losses`,
  // from value `at` on. Batches of a shape that was seen before are enqueued as one recording (Backend::Repeat).
  void ForwardBackward(const Batch& batch, const ForwardBackwardOptions& options, Backend::Mailbox& losses, std::int64_t at);

  // Device memory, for the optimiser: (layout().size()) each.
  float* master();
  Element* weights();
  float* gradients();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headsweep
