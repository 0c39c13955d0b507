#include "sweeps/cost.h"

#include <algorithm>
#include <cmath>

namespace headsweep {
namespace {

constexpr std::int64_t kFloat = 4;  // bytes
constexpr std::int64_t kLogitBytes = std::int64_t{32}
                                     << 20;    // the trainer makes logits in pieces of about this size
constexpr std::int64_t kEvaluationBatch = 32;  // examples of one forward pass when nothing is trained

// Program, libraries, tokenizer and a small corpus of a trainer. Measured (Debian 12, x86-64): 34 to 40 MB.
constexpr std::int64_t kProcessBytes = std::int64_t{40} << 20;

struct Shape {
  std::int64_t V, T, C, D, F;
  bool pre_norm;
};

Shape ShapeOf(const StageConfig& config) {
  return {config.task.vocabulary, config.task.length,        config.model.embed,
          config.model.head_size, config.model.feed_forward, config.model.norm == "pre"};
}

// Floats that one example leaves in memory until the backward pass: per layer the stream before and after
// attention and both norms' outputs (4 C), queries, keys, values, attention's output and its gated copy (5
// HD), both sides of the activation (2 F), log-sum-exp (H), two norms' statistics (4); once: final stream,
// hidden, branch and its gradient, the wider of the shared gradients, losses and indices.
double ActivationFloats(const StageConfig& config) {
  const Shape s = ShapeOf(config);
  double row = 0;
  std::int64_t widest = s.F;
  for (const int heads : config.model.heads) {
    const std::int64_t HD = heads * s.D;
    row += static_cast<double>((s.pre_norm ? 4 : 5) * s.C + 5 * HD + 2 * s.F + heads + 4);
    widest = std::max(widest, 4 * HD);
  }
  return static_cast<double>(s.T) * (row + static_cast<double>(4 * s.C + widest + 8));
}

std::int64_t TrainingMemory(const StageConfig& config, std::int64_t parameters) {
  const std::int64_t share = std::max<std::int64_t>(1, config.train.batch / config.run.devices);
  const std::int64_t examples =
      config.train.micro_batch > 0 ? std::min<std::int64_t>(config.train.micro_batch, share) : share;
  const double logits =
      std::min(static_cast<double>(examples) * config.task.length * config.task.vocabulary * kFloat,
               static_cast<double>(kLogitBytes));
  const std::int64_t moments = config.run.shard_optimizer ? 2 * kFloat * parameters / config.run.devices : 2 * kFloat * parameters;
  return 2 * kFloat * parameters + moments +  // and weights, gradients
         static_cast<std::int64_t>(static_cast<double>(examples * kFloat) * ActivationFloats(config) +
                                   logits);
}

double EvaluatedExamples(int asked, const CostModel& model) {
  return asked > 0 ? asked : static_cast<double>(model.examples_of_all);
}

double TotalHeads(const StageConfig& config) {
  double total = 0;
  for (const int heads : config.model.heads) total += heads;
  return total;
}

// Work to put the heads in order, in forward passes over score_examples; a backward pass counts two.
double ScoringPasses(const PruneConfig& prune, double heads, double curve_points) {
  if (prune.order == "importance" || prune.order == "reversed") return 3;
  if (prune.order == "importance-rescored") return 3 * curve_points;
  if (prune.order == "ablation") return heads + 1;
  return 0;  // random, magnitude
}

void AddPruneCost(const StageConfig& config, const CostModel& model, StageCost& cost) {
  const double points = std::ceil(1 / config.prune.step - 1e-9) + 1;  // the unpruned model is one
  const double scored = ForwardFlopsOf(config, config.prune.score_examples);
  cost.flops_per_step = ForwardFlopsOf(config, EvaluatedExamples(config.prune.evaluate_examples, model));
  cost.flops =
      points * cost.flops_per_step + ScoringPasses(config.prune, TotalHeads(config), points) * scored;
}

void AddTrainCost(const StageConfig& config, const CostModel& model, StageCost& cost) {
  const TrainConfig& train = config.train;
  const double evaluations = std::ceil(static_cast<double>(train.steps) / train.evaluate_every);
  cost.flops_per_step = 3 * ForwardFlopsOf(config, train.batch);
  cost.flops = train.steps * cost.flops_per_step +
               evaluations * ForwardFlopsOf(config, EvaluatedExamples(train.evaluate_examples, model));
}

}  // namespace

std::int64_t CountParameters(const StageConfig& config) {
  const Shape s = ShapeOf(config);
  std::int64_t count = s.V * s.C * (config.model.tied ? 1 : 2);
  if (config.model.positions == "learned") count += s.T * s.C;
  for (const int heads : config.model.heads) {
    const std::int64_t HD = heads * s.D;
    count += 4 * HD * s.C + 3 * HD + s.C;  // query, key, value, output with their biases
    count += 2 * s.C * s.F + s.F + s.C;    // feed-forward
    count += 4 * s.C;                      // two norms
  }
  return count + (s.pre_norm ? 2 * s.C : 0);  // final norm
}

double ForwardFlopsOf(const StageConfig& config, double examples) {
  const Shape s = ShapeOf(config);
  double per_row = 2.0 * static_cast<double>(s.C * s.V);
  for (const int heads : config.model.heads) {
    const std::int64_t HD = heads * s.D;
    per_row += 2.0 * static_cast<double>(4 * s.C * HD + 2 * s.T * HD + 2 * s.C * s.F);
  }
  return examples * static_cast<double>(s.T) * per_row;
}

StageCost EstimateCost(const StageConfig& config, const CostModel& model) {
  StageCost cost;
  cost.parameters = CountParameters(config);
  if (config.kind == StageKind::kPrune) {
    AddPruneCost(config, model, cost);
    StageConfig evaluation = config;
    evaluation.train.batch = kEvaluationBatch;
    evaluation.train.micro_batch = 0;
    evaluation.run.devices = 1;
    // Two models at once (the whole and the pruned one), no moments.
    cost.memory_bytes = TrainingMemory(evaluation, cost.parameters);
    cost.checkpoint_bytes = 0;
  } else {
    AddTrainCost(config, model, cost);
    cost.memory_bytes = TrainingMemory(config, cost.parameters);
    cost.checkpoint_bytes = 3 * kFloat * cost.parameters;
  }
  if (config.run.device == "cpu") {
    cost.memory_bytes += kProcessBytes;
    // While it is written: weights and moments, and the bytes of the larger of its two files.
    if (config.kind == StageKind::kTrain) cost.memory_bytes += 5 * kFloat * cost.parameters;
  }
  if (model.flops_per_second > 0) cost.seconds = cost.flops / (model.flops_per_second * config.run.devices);
  return cost;
}

}  // namespace headsweep
