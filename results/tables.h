// The rows of headsweep's long tables, as plain structs: what a trainer records and what `collect` concatenates.
// results/schema.h maps each to HDF5 columns (names, types, units); results/SCHEMA.md documents them.
// Columns marked (t) are timings: excluded from digests, since they differ from run to run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headsweep {

struct StepRow {              // one optimiser step
  std::int64_t step = 0;      // counts from 1
  double loss = 0;            // mean over targets, with label smoothing, nats
  double learning_rate = 0;
  double gradient_norm = 0;   // before clipping
  std::int64_t targets = 0;   // target tokens in the effective batch
  double seconds = 0;         // (t)
  double tokens_per_second = 0;  // (t)
};

struct EvaluationRow {
  std::int64_t step = 0;
  std::string split;          // "valid" | "test"
  double nll = 0;             // mean nats per piece
  double perplexity_per_piece = 0;
  double perplexity_per_word = 0;
  std::int64_t pieces = 0;
  double seconds = 0;         // (t)
};

struct ImportanceRow {        // one head at one step
  std::int64_t step = 0;
  int layer = 0;
  std::string attention = "self";  // "self" | "cross" | "encoder"
  int head = 0;               // index in the trained model
  double per_example = 0;     // mean over examples of |dLoss/dgate|
  double per_token = 0;       // mean over tokens of |row term|
  double normalized = 0;      // the score the order used: chosen `per`, divided by its layer's l2 norm if asked for
  double magnitude = 0;       // l2 norm of the head's weights
};

struct PruningRow {           // one point of a pruning curve
  std::string order;          // "importance", "random", …
  std::uint64_t order_seed = 0;
  double fraction = 0;        // of all heads asked to be removed
  std::int64_t heads_removed = 0, heads_left = 0;
  double nll = 0, perplexity_per_piece = 0, perplexity_per_word = 0;
  double loss_increase = 0;   // nll - nll of the unpruned model
  double seconds = 0;         // (t) of the evaluation, removed heads really cut out
};

struct AblationRow {          // one head gated off alone
  int layer = 0;
  std::string attention = "self";
  int head = 0;
  double nll = 0, loss_increase = 0;
};

struct RemovalRow {           // the order itself: which head went when
  std::string order;
  std::uint64_t order_seed = 0;
  std::int64_t position = 0;  // 0 = first to be removed
  int layer = 0, head = 0;
  double score = 0;
};

// All that one stage recorded.
struct StageTables {
  std::vector<StepRow> steps;
  std::vector<EvaluationRow> evaluations;
  std::vector<ImportanceRow> importance;
  std::vector<PruningRow> pruning;
  std::vector<AblationRow> ablation;
  std::vector<RemovalRow> removal;
};

// Hash over every value that must repeat bit by bit: all columns but timings, and the weights' checksum. 16 hex digits.
// Doubles count bit by bit (NaN is equal to itself, -0 differs from 0). A table read back from a file has the same digest.
std::string TablesDigest(const StageTables& tables, std::uint64_t weights_checksum);

struct Provenance {
  std::string stage_id, kind, parent, config_toml, config_json;  // config_json: canonical
  std::string version, git_commit, backend, host, device;
  std::string job;            // of the batch system (cluster/base/batch_job.h); "" outside one
  std::string data_fingerprint;
  int attempt = 0, threads = 0, job_restart = 0;
  double started_at = 0;      // (t) unix seconds
};

}  // namespace headsweep
