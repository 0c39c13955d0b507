// Made-up results for tests: plausible curves from closed formulas and a seeded generator, no training.
#pragma once

#include <cstdint>
#include <string>

#include "results/collect.h"
#include "results/stage_file.h"

namespace headsweep::testing {

struct SyntheticModel {
  int layers = 2;
  int heads = 4;
  int head_size = 32;
  int embed = 128;
  std::uint64_t seed = 1;
};

// Rows of a train stage: steps, evaluations at several steps, importance at each evaluation.
StageTables MakeTrainTables(const SyntheticModel& model, int steps = 60, int evaluate_every = 20);
// Rows of a prune stage: a pruning curve in tenths, ablation and removal.
StageTables MakePruneTables(const SyntheticModel& model, const std::string& order,
                            std::uint64_t order_seed = 0);
StageSummary MakeSummary(const SyntheticModel& model, const StageTables& tables);
Provenance MakeProvenance(const std::string& id, const std::string& kind, const std::string& parent);

struct SyntheticSweep {
  std::string name = "fixed-head-size";
  std::vector<std::int64_t> heads = {1, 2, 4, 8};
  std::vector<AxisValue> head_sizes = {std::string("embed / heads"), std::int64_t{32}};
  int seeds = 3;
  std::vector<std::string> orders = {"importance", "ablation", "random", "reversed"};
  int random_orders = 2;  // order seeds of "random"
  int steps = 60;
  bool failures = true;   // one trial failed, one diverged, one still waiting
};

// Writes the stage files under directory and returns what a launcher would hand to Collect.
CollectInput MakeSweep(const SyntheticSweep& sweep, const std::string& directory);

}  // namespace headsweep::testing
