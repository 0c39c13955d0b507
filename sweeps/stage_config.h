// StageConfig: the resolved, typed configuration of one unit of work. Every field has a key in the sweep
// language and in a trial's config.toml (sweeps/schema_table.cc is the table: key, type, default, allowed
// range, help). A stage's identity is a hash of the canonical form of this struct (of the run section only precision),
// the data's fingerprint and the numerics version.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headsweep {

enum class StageKind { kTrain, kPrune };

struct TaskConfig {
  std::string kind = "language-model";
  std::string corpus =
      "kjv";                // a known name (data/corpora.h) or the path of a text file, one sentence a line
  std::string fingerprint;  // of the prepared data; filled in by whoever prepared it
  int vocabulary = 4000;    // SentencePiece pieces asked for
  int length = 128;         // T: tokens of one example
  std::string packing =
      "stream";  // "stream": sentences joined into one stream | "sentence": one padded sentence each
};

struct ModelConfig {
  int layers = 2;
  int embed = 128;  // C
  std::vector<int> heads = {
      4, 4};                 // H per layer; one number in TOML means the same in every layer; 0 is allowed
  int head_size = 32;        // D; default expression "embed / heads"
  int feed_forward = 512;    // F; default expression "4 * embed"
  std::string norm = "pre";  // "pre" | "post"
  std::string activation = "gelu";    // "gelu" | "relu"
  std::string positions = "learned";  // "learned" | "sinusoidal"
  bool tied = true;                   // output projection = token embedding
  double dropout = 0;                 // on embeddings, attention probabilities, sub-layer outputs
};

struct TrainConfig {
  int steps = 400;
  int batch = 16;  // examples per optimiser step: the effective batch
  int micro_batch =
      0;  // examples per forward pass; 0 = batch. Changes memory, not mathematics. Not in the identity
  double learning_rate = 1e-3;
  std::string schedule = "cosine";  // "linear" | "cosine" | "inverse-sqrt"
  int warmup_steps = 40;
  double final_learning_rate = 0.1;  // linear, cosine: last rate as a fraction of the highest
  double weight_decay = 0.01;
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-8;
  double clip_norm = 1.0;  // 0 = off
  double label_smoothing = 0;
  int evaluate_every = 100;    // steps; also at the end
  int evaluate_examples = 0;   // of the validation split; 0 = all
  int checkpoint_every = 100;  // steps; also at the end. Not in the identity
};

struct PruneConfig {
  std::string
      order;  // "importance" | "importance-rescored" | "ablation" | "random" | "reversed" | "magnitude"
  double step = 0.1;                // fraction of all heads removed between two measurements
  std::string per = "example";      // "example" | "token": over what |.| of the importance is taken
  std::string normalize = "layer";  // "layer": scores divided by the l2 norm of their layer | "none"
  int score_examples = 256;         // validation examples used to score heads
  int evaluate_examples = 0;        // test examples used for each point of the curve; 0 = all
  int keep = 0;                     // at least this many heads stay in every layer
  std::uint64_t seed = 0;           // of order "random"; 0 for the others
};

// How to run it, not what it is: not part of the identity, except precision, which changes numbers.
struct RunConfig {
  int devices = 1;
  int retries = 2;
  int priority = 0;  // of the trial and its pruning; higher goes first
  int threads = 1;  // CPU threads per process
  std::string device = "cpu";  // BackendOptions::device
  // Of several processes: gradients leave in buckets of at least that much (0 = one, at the end), as values of that type.
  int bucket_megabytes = 25;
  std::string wire = "float32";  // "float32" | "bfloat16"
  bool shard_optimizer = false;  // each process keeps the optimiser state of its share of the parameters (ZeRO-1)
  std::string precision = "float32";  // "float32" | "bfloat16" (CUDA only)
};

// When a trial is given up because others do better (launcher/early_stopping.h). Not part of the identity: what was stopped early
// has no result, and another sweep may go on with it.
struct EarlyStoppingConfig {
  std::string rule = "none";                   // "none" | "median" | "successive-halving"
  std::string metric = "perplexity_per_word";  // "perplexity_per_word" | "nll", of the validation split
  int min_steps = 100;                         // nothing is stopped before that step; the first rung of successive-halving
  int min_trials = 3;                          // median: so many other trials must have come as far
  int reduction_factor = 3;                    // successive-halving: the best 1/n of a rung go on to n times as many steps
};

struct StageConfig {
  StageKind kind = StageKind::kTrain;
  std::string id;      // StageId; empty until computed
  std::string parent;  // prune: id of the train stage
  TaskConfig task;
  ModelConfig model;
  TrainConfig train;
  std::uint64_t seed = 1;
  PruneConfig prune;  // meaningful when kind == kPrune
  RunConfig run;
  EarlyStoppingConfig early_stopping;
};

// Changes whenever the same configuration would give other numbers (a new initialisation, a fixed formula,
// …).
inline constexpr int kNumericsVersion = 1;

// Canonical JSON of everything that is part of the identity: keys sorted, numbers in shortest round-trip
// form.
std::string CanonicalJson(const StageConfig& config);
std::string ComputeStageId(
    const StageConfig& config);  // needs task.fingerprint (and parent for a prune stage)

// A trial's config.toml: complete (no defaults left out), readable, reads back equal.
std::string FormatStageConfig(const StageConfig& config);
// Throws ConfigError with every complaint: file:line:column, unknown keys with the nearest known one.
StageConfig ParseStageConfig(const std::string& text, const std::string& file);

}  // namespace headsweep
