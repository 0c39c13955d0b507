// The rows: name, type, default, range, choices, use, help, field. A default may be an expression of other
// keys.
#include "sweeps/schema.h"

namespace headsweep {
namespace {

constexpr Range Between(double low, double high) { return {low, high, false, false}; }
constexpr Range Above(double low, double high) { return {low, high, true, false}; }
constexpr Range kShare = {0, 1, false, true};                      // 0 to below 1
constexpr double kMany = 1e9;                                      // steps, examples: fits an int
constexpr Range kSeeds = {0, 9223372036854775808.0, false, true};  // 63 bits: TOML integers are signed
constexpr Range kAny = {};

}  // namespace

#define FIELD(member) [](StageConfig& config) -> FieldPointer { return &config.member; }

// clang-format off
std::vector<KeySpec> MakeKeyTable() {
  using enum KeyType;
  using enum KeyUse;
  return {
      {"task.kind", kText, "language-model", kAny, {"language-model"}, kIdentity,
       "what is learnt", FIELD(task.kind)},
      {"task.corpus", kText, "kjv", kAny, {}, kDataName,
       "a known corpus, or a path (with a /) of a UTF-8 text, one sentence a line", FIELD(task.corpus)},
      {"task.fingerprint", kText, "", kAny, {}, kInternal,
       "hash of the prepared data", FIELD(task.fingerprint)},
      {"task.vocabulary", kInteger, "4000", Between(16, 1e6), {}, kIdentity,
       "sub-word pieces asked for (V)", FIELD(task.vocabulary)},
      {"task.length", kInteger, "128", Between(2, 65536), {}, kIdentity,
       "tokens of one example (T)", FIELD(task.length)},
      {"task.packing", kText, "stream", kAny, {"stream", "sentence"}, kIdentity,
       "stream: sentences joined; sentence: one padded sentence an example", FIELD(task.packing)},

      {"model.layers", kInteger, "2", Between(1, 1024), {}, kIdentity,
       "layers (L)", FIELD(model.layers)},
      {"model.embed", kInteger, "128", Between(1, 65536), {}, kIdentity,
       "model width (C)", FIELD(model.embed)},
      {"model.heads", kHeads, "4", Between(0, 4096), {}, kIdentity,
       "attention heads of every layer (H): one number, or a list with one a layer", FIELD(model.heads)},
      {"model.head_size", kInteger, "embed / heads", Between(1, 512), {}, kIdentity,
       "width of one head (D), free of embed and heads", FIELD(model.head_size)},
      {"model.feed_forward", kInteger, "4 * embed", Between(1, 1 << 20), {}, kIdentity,
       "width of the feed-forward layer (F)", FIELD(model.feed_forward)},
      {"model.norm", kText, "pre", kAny, {"pre", "post"}, kIdentity,
       "layer norm before or after each sub-layer", FIELD(model.norm)},
      {"model.activation", kText, "gelu", kAny, {"gelu", "relu"}, kIdentity,
       "of the feed-forward layer", FIELD(model.activation)},
      {"model.positions", kText, "learned", kAny, {"learned", "sinusoidal"}, kIdentity,
       "position vectors", FIELD(model.positions)},
      {"model.tied", kBoolean, "true", kAny, {}, kIdentity,
       "output projection shares the token embedding", FIELD(model.tied)},
      {"model.dropout", kNumber, "0", kShare, {}, kIdentity,
       "on embeddings, attention probabilities and sub-layer outputs", FIELD(model.dropout)},

      {"train.steps", kInteger, "400", Between(1, kMany), {}, kIdentity,
       "optimiser steps", FIELD(train.steps)},
      {"train.batch", kInteger, "16", Between(1, 1 << 24), {}, kIdentity,
       "examples of one optimiser step, over all processes", FIELD(train.batch)},
      {"train.micro_batch", kInteger, "0", Between(0, 1 << 24), {}, kExecution,
       "examples of one forward pass; 0 = batch. Memory, not mathematics", FIELD(train.micro_batch)},
      {"train.learning_rate", kNumber, "0.001", Above(0, 1000), {}, kIdentity,
       "the highest rate of the schedule", FIELD(train.learning_rate)},
      {"train.schedule", kText, "cosine", kAny, {"linear", "cosine", "inverse-sqrt"}, kIdentity,
       "of the learning rate, after the warm-up", FIELD(train.schedule)},
      {"train.warmup_steps", kInteger, "floor(steps / 10)", Between(0, kMany), {}, kIdentity,
       "steps of linear warm-up", FIELD(train.warmup_steps)},
      {"train.final_learning_rate", kNumber, "0.1", Between(0, 1), {}, kIdentity,
       "last rate of linear and cosine, as a fraction of the highest", FIELD(train.final_learning_rate)},
      {"train.weight_decay", kNumber, "0.01", Between(0, 100), {}, kIdentity,
       "decoupled (AdamW), on matrices only", FIELD(train.weight_decay)},
      {"train.beta1", kNumber, "0.9", kShare, {}, kIdentity,
       "Adam's decay of the first moment", FIELD(train.beta1)},
      {"train.beta2", kNumber, "0.98", kShare, {}, kIdentity,
       "Adam's decay of the second moment", FIELD(train.beta2)},
      {"train.epsilon", kNumber, "1e-8", Above(0, 1), {}, kIdentity,
       "Adam's epsilon", FIELD(train.epsilon)},
      {"train.clip_norm", kNumber, "1", Between(0, kMany), {}, kIdentity,
       "largest gradient norm; 0 = no clipping", FIELD(train.clip_norm)},
      {"train.label_smoothing", kNumber, "0", kShare, {}, kIdentity,
       "share of the target spread over all pieces", FIELD(train.label_smoothing)},
      {"train.evaluate_every", kInteger, "100", Between(1, kMany), {}, kIdentity,
       "steps between evaluations; the last step is always evaluated", FIELD(train.evaluate_every)},
      {"train.evaluate_examples", kInteger, "0", Between(0, kMany), {}, kIdentity,
       "validation examples of one evaluation; 0 = all", FIELD(train.evaluate_examples)},
      {"train.checkpoint_every", kInteger, "100", Between(1, kMany), {}, kExecution,
       "steps between checkpoints; the last step is always saved", FIELD(train.checkpoint_every)},

      {"seed", kInteger, "1", kSeeds, {}, kIdentity,
       "of initialisation, data order and dropout", FIELD(seed)},

      {"prune.order", kText, "", kAny,
       {"importance", "importance-rescored", "ablation", "random", "reversed", "magnitude"}, kPruning,
       "which heads go first; in a sweep one order or a list", FIELD(prune.order)},
      {"prune.step", kNumber, "0.1", Above(0, 1), {}, kPruning,
       "fraction of all heads removed between two measurements", FIELD(prune.step)},
      {"prune.per", kText, "example", kAny, {"example", "token"}, kPruning,
       "over what the absolute value in the importance is taken", FIELD(prune.per)},
      {"prune.normalize", kText, "layer", kAny, {"layer", "none"}, kPruning,
       "layer: scores divided by the l2 norm of their layer", FIELD(prune.normalize)},
      {"prune.score_examples", kInteger, "256", Between(1, kMany), {}, kPruning,
       "validation examples that score the heads", FIELD(prune.score_examples)},
      {"prune.evaluate_examples", kInteger, "0", Between(0, kMany), {}, kPruning,
       "test examples of each point of the curve; 0 = all", FIELD(prune.evaluate_examples)},
      {"prune.keep", kInteger, "0", Between(0, 4096), {}, kPruning,
       "at least so many heads stay in every layer", FIELD(prune.keep)},
      {"prune.seed", kInteger, "0", kSeeds, {}, kPruning,
       "of order random, 0 for the others; in a sweep write prune.seeds", FIELD(prune.seed)},

      {"run.devices", kInteger, "1", Between(1, 4096), {}, kExecution,
       "processes of one trial, one device each, started together", FIELD(run.devices)},
      {"run.retries", kInteger, "2", Between(0, 1000), {}, kExecution,
       "attempts beyond the first that a trial's own failures may cost", FIELD(run.retries)},
      {"run.priority", kInteger, "0", Between(-1000, 1000), {}, kExecution,
       "trials of a higher one start first; may be an expression, as \"heads\"", FIELD(run.priority)},
      {"run.threads", kInteger, "1", Between(1, 4096), {}, kExecution,
       "CPU threads of one process", FIELD(run.threads)},
      {"run.device", kText, "cpu", kAny, {"cpu", "cuda", "cuda-on-host"}, kExecution,
       "where the mathematics runs; cuda-on-host: the CUDA kernels on the CPU, slowly, for tests", FIELD(run.device)},
      {"run.bucket_megabytes", kInteger, "25", Between(0, 1 << 16), {}, kExecution,
       "gradients leave in buckets of at least that size while the backward pass runs; 0 = at its end",
       FIELD(run.bucket_megabytes)},
      {"run.wire", kText, "float32", kAny, {"float32", "bfloat16"}, kExecution,
       "gradients on their way between processes; bfloat16 halves the bytes and rounds every sum", FIELD(run.wire)},
      {"run.shard_optimizer", kBoolean, "false", kAny, {}, kExecution,
       "each process keeps the optimiser state of its share of the parameters alone", FIELD(run.shard_optimizer)},
      {"run.precision", kText, "float32", kAny, {"float32", "bfloat16"}, kLaterIdentity,
       "of activations and products; bfloat16 needs cuda and keeps float32 master weights", FIELD(run.precision)},

      {"early_stopping.rule", kText, "none", kAny, {"none", "median", "successive-halving"}, kExecution,
       "which trials are given up because others do better", FIELD(early_stopping.rule)},
      {"early_stopping.metric", kText, "perplexity_per_word", kAny, {"perplexity_per_word", "nll"}, kExecution,
       "what is compared, of the validation split", FIELD(early_stopping.metric)},
      {"early_stopping.min_steps", kInteger, "100", Between(1, kMany), {}, kExecution,
       "nothing is stopped before that step; the first rung of successive-halving", FIELD(early_stopping.min_steps)},
      {"early_stopping.min_trials", kInteger, "3", Between(1, kMany), {}, kExecution,
       "median: so many other trials must have come as far", FIELD(early_stopping.min_trials)},
      {"early_stopping.reduction_factor", kInteger, "3", Between(2, 1000), {}, kExecution,
       "successive-halving: the best 1/n of a rung go on to n times as many steps", FIELD(early_stopping.reduction_factor)},
  };
}
// clang-format on

#undef FIELD

}  // namespace headsweep
