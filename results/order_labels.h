// How a prune stage is called in tables, grid and charts: by its order, and by the settings in which it
// differs from other stages of the same order ("importance, per=token"). Without them two different curves
// would be averaged into one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "results/collect.h"

namespace headsweep {

// Label of every prune stage, by stage id. Settings are read from config_json's "prune"; the seed of an order
// and the step of the curve are no part of a label (they are averaged, and refine the curve).
std::map<std::string, std::string> OrderLabels(const std::vector<CollectStage>& stages);

}  // namespace headsweep
