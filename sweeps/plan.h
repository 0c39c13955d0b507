// Plan: a sweep as the list of stages to run, each once, and the grid that the results are laid out on.
// results/collect.h has the same structures for its input; sweeps does not depend on results, so the launcher
// copies them over.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "sweeps/sweep.h"

namespace headsweep {

using AxisValue = std::variant<std::int64_t, double, std::string>;

// Values keep their written form: "embed / heads" is a label of its own, so that the grid is rectangular
// however the numbers fall. Booleans and head lists are texts ("true", "[4, 2]"). A [[zip]] is one axis,
// labelled by its first key whose values all differ (or by "a, b" of all keys); values that only [[include]]
// has are appended.
struct PlanAxis {
  std::string name;  // "heads"; unique
  std::string key;   // "model.heads"; of a [[zip]]: the key that labels it
  std::vector<AxisValue> values;
};

struct PlanStage {
  StageConfig config;  // id set if fingerprints were given
  int parent = -1;     // prune: index of its train stage in Plan::stages
  std::vector<std::vector<int>>
      points;  // train: indices into axes of each grid point that it is; prune: empty
  std::vector<std::uint64_t> point_numbers;  // train: the same points as numbers of the sweep
};

struct Plan {
  std::string name;
  std::vector<PlanAxis> axes;
  std::vector<PlanStage>
      stages;  // parents before their children; a train stage is followed by its prune stages
  std::uint64_t points = 0, excluded = 0, merged = 0,
                trials = 0;          // trials = points - excluded - merged: train stages
  std::vector<Diagnostic> warnings;  // the sweep's, then merged points
};

// The fingerprint of a task's data (data/corpus.h: CorpusFingerprint). Called once for each corpus and
// vocabulary.
using FingerprintOf = std::function<std::string(const TaskConfig&)>;

inline constexpr std::uint64_t kMostCompared = 250'000;  // points that are compared to find duplicates
inline constexpr std::uint64_t kMostStages = 1'000'000;    // of a plan (about 1 KB each)

// fingerprint_of may be empty: then ids stay empty and the corpus' name stands for its data when points are
// compared. Throws ConfigError: too many points or stages, or a point of a large grid that turns out wrong.
Plan MakePlan(const Sweep& sweep, const FingerprintOf& fingerprint_of);

// The same without stages: counts, axes and warnings, in about 100 bytes a trial.
Plan CountPlan(const Sweep& sweep);

}  // namespace headsweep
