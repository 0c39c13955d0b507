// Plan: a sweep as the list of stages to run, each once, and the grid that the results are laid out on.
// results/collect.h has the same structures for its input; sweeps does not depend on results, so the launcher
// copies them over.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
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

// One stage, in a few bytes: Plan says the rest of it.
struct PlanStage {
  std::uint64_t hash = 0;   // its id, as a number
  std::uint64_t point = 0;  // number of the first of the sweep's points that its trial is
  std::int32_t parent = -1;  // prune: index of its train stage in Plan::stages
  std::int32_t order = -1;   // prune: which of the sweep's orders and seeds
};

// Stages are kept as PlanStage alone and resolved again when they are asked for: 100,000 trials are 2.4 MB. Not thread-safe: like
// Sweep, and the last point is remembered.
struct Plan {
  std::string name;
  std::vector<PlanAxis> axes;
  std::vector<PlanStage>
      stages;  // parents before their children; a train stage is followed by its prune stages
  std::uint64_t points = 0, excluded = 0, merged = 0,
                trials = 0;          // trials = points - excluded - merged: train stages
  std::vector<Diagnostic> warnings;  // the sweep's, then merged points

  // All of an element of `stages`.
  std::string Id(const PlanStage& stage) const;  // "" without fingerprints
  StageConfig Config(const PlanStage& stage) const;
  // Of a train stage: the points of the sweep that it is, as their numbers and as indices into axes. Of a prune stage: none.
  std::vector<std::uint64_t> PointNumbers(const PlanStage& stage) const;
  std::vector<std::vector<int>> Points(const PlanStage& stage) const;

  // --- What these are computed from
  std::optional<Sweep> sweep;
  bool identified = false;                                         // there are fingerprints
  std::map<std::pair<std::string, int>, std::string> fingerprints;  // of (corpus, vocabulary)
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> merged_points;  // first point -> the others
  std::unordered_map<std::uint64_t, std::vector<int>> included;    // indices of the points of [[include]]
  mutable std::optional<std::pair<std::uint64_t, StageConfig>> last;  // a point, and its train stage without id
};

// The fingerprint of a task's data (data/corpus.h: CorpusFingerprint). Called once for each corpus and
// vocabulary.
using FingerprintOf = std::function<std::string(const TaskConfig&)>;

inline constexpr std::uint64_t kMostCompared = 250'000;  // points that are compared to find duplicates
inline constexpr std::uint64_t kMostStages = 1'000'000;    // of a plan: what a scheduler that knows each of them can bear

// fingerprint_of may be empty: then ids stay empty and the corpus' name stands for its data when points are
// compared. Throws ConfigError: too many points or stages, or a point of a large grid that turns out wrong.
// on_stage: is told every stage as it is found, with its place in Plan::stages.
using OnStage = std::function<void(const StageConfig& config, std::size_t place)>;
Plan MakePlan(const Sweep& sweep, const FingerprintOf& fingerprint_of, const OnStage& on_stage = {});

// The same without stages: counts, axes and warnings, in about 50 bytes a trial.
Plan CountPlan(const Sweep& sweep);

}  // namespace headsweep
