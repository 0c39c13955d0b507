#include "launcher/early_stopping.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace headsweep {
namespace {

using Values = std::map<std::int64_t, double>;

// The best value up to that step; the trial has one.
double BestBy(const Values& values, std::int64_t step) {
  double best = std::numeric_limits<double>::infinity();
  for (auto it = values.begin(); it != values.end() && it->first <= step; ++it)
    best = std::min(best, it->second);
  return best;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  // Not the mean of infinities: that is what a trial that diverged has.
  return values.size() % 2 == 1 || values[half - 1] == values[half] ? values[half]
                                                                    : (values[half - 1] + values[half]) / 2;
}

}  // namespace

void EarlyStopping::Observe(const std::string& group, const StageId& trial, std::int64_t step, double value) {
  groups_[group][trial][step] = std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
}

std::optional<std::string> EarlyStopping::Judge(const std::string& group, const StageId& trial,
                                                std::int64_t step) const {
  const auto found = groups_.find(group);
  if (found == groups_.end() || !found->second.contains(trial) || step < rule_.min_steps) return std::nullopt;
  switch (rule_.kind) {
    case EarlyStoppingRule::Kind::kNone:
      return std::nullopt;
    case EarlyStoppingRule::Kind::kMedian:
      return JudgeByMedian(found->second, trial, step);
    case EarlyStoppingRule::Kind::kSuccessiveHalving:
      break;
  }
  return JudgeByRung(found->second, trial, step);
}

std::optional<std::string> EarlyStopping::JudgeByMedian(const std::map<StageId, Values>& group,
                                                        const StageId& trial, std::int64_t step) const {
  std::vector<double> others;
  for (const auto& [other, values] : group)
    if (other != trial && values.rbegin()->first >= step) others.push_back(BestBy(values, step));
  if (static_cast<int>(others.size()) < rule_.min_trials) return std::nullopt;
  const double best = BestBy(group.at(trial), step);
  const double median = Median(others);
  if (!(best > median)) return std::nullopt;
  return fmt::format("median rule: its best {} by step {} is {:.5g}, above {:.5g}, the median of {} other trials",
                     rule_.metric, step, best, median, others.size());
}

std::optional<std::string> EarlyStopping::JudgeByRung(const std::map<StageId, Values>& group,
                                                      const StageId& trial, std::int64_t step) const {
  std::int64_t rung = rule_.min_steps;
  while (rung <= step / rule_.reduction_factor) rung *= rule_.reduction_factor;
  const auto at_rung = [&](const Values& values) { return values.lower_bound(rung); };
  const auto own = at_rung(group.at(trial));
  if (own == group.at(trial).end() || own->first != step) return std::nullopt;  // judged when it came to the rung
  int better = 0, seen = 0;
  for (const auto& [other, values] : group) {
    const auto there = at_rung(values);
    if (there == values.end()) continue;
    ++seen;
    better += there->second < own->second;
  }
  const int kept = (seen + rule_.reduction_factor - 1) / rule_.reduction_factor;
  if (better < kept) return std::nullopt;
  return fmt::format(
      "successive halving: its {} of {:.5g} at the rung of {} steps is place {} of {}, and {} go on", rule_.metric,
      own->second, rung, better + 1, seen, kept);
}

}  // namespace headsweep
