// EarlyStopping: whether a trial is worth going on with, judged by what the other trials of its group had reached by the same
// step. Pure: part of the scheduler core, which records each verdict in the journal; so a resumed sweep keeps to it.
//
// Two rules, both asynchronous: a trial never waits for others, so which trials are stopped depends on the order in which they
// came by.
//   median              The median stopping rule (Golovin et al., Google Vizier, KDD 2017, section 3.2.2), comparing best value with
//                       best value: after min_steps a trial stops if its best so far is worse than the median of what at least
//                       min_trials others had as their best by the same step. Others: all that came that far, done or not.
//   successive-halving  ASHA (Li et al., A System for Massively Parallel Hyperparameter Tuning, MLSys 2020) in its stopping form: rungs
//                       at min_steps * reduction_factor^k steps. The first value at or beyond a rung counts there, and the trial
//                       goes on if it is among the best 1/reduction_factor (rounded up) of those that the rung has seen. Nothing is
//                       paused: a trial that was stopped is not taken up again when later ones are worse.
// The best trial that a step or a rung has seen always goes on, so a group never loses all its trials to a rule.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cluster/base/ids.h"

namespace headsweep {

struct EarlyStoppingRule {
  enum class Kind { kNone, kMedian, kSuccessiveHalving };
  Kind kind = Kind::kNone;
  std::string metric = "perplexity_per_word";  // for messages
  std::int64_t min_steps = 100;
  int min_trials = 3;
  int reduction_factor = 3;
};

class EarlyStopping {
 public:
  explicit EarlyStopping(EarlyStoppingRule rule = {}) : rule_(std::move(rule)) {}
  bool on() const { return rule_.kind != EarlyStoppingRule::Kind::kNone; }

  // The trial has that value at that step; lower is better, and what is not a number is worse than any. group: trials whose values
  // can be compared. Told twice, or out of order (after a restart), changes nothing in the end.
  void Observe(const std::string& group, const StageId& trial, std::int64_t step, double value);

  // Why the trial should end at that step, which has been observed; nullopt: it goes on. A sentence for people.
  // Costs O(trials of the group).
  std::optional<std::string> Judge(const std::string& group, const StageId& trial, std::int64_t step) const;

 private:
  using Values = std::map<std::int64_t, double>;  // step -> value
  std::optional<std::string> JudgeByMedian(const std::map<StageId, Values>& group, const StageId& trial,
                                           std::int64_t step) const;
  std::optional<std::string> JudgeByRung(const std::map<StageId, Values>& group, const StageId& trial,
                                         std::int64_t step) const;

  EarlyStoppingRule rule_;
  std::map<std::string, std::map<StageId, Values>> groups_;
};

}  // namespace headsweep
