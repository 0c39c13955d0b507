// How a prune stage is called in tables, grid and charts: by its order, and by the settings in which it
// differs from other stages of the same order ("importance, per=token"). Without them two different curves
// would be averaged into one.
#pragma once

#include <map>
#include <set>
#include <string>

#include "results/collect.h"

namespace headsweep {

// Settings are read from config_json's "prune"; the seed of an order and the step of the curve are no part of a label (they are
// averaged, and refine the curve).
class OrderLabels {
 public:
  void Look(const CollectStage& stage);  // every stage, before the first label is asked for
  std::string Of(const CollectStage& stage) const;  // "" of a train stage

 private:
  std::map<std::string, std::map<std::string, std::set<std::string>>> values_;  // order -> setting -> values seen
};

}  // namespace headsweep
