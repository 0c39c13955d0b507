// From what the launcher knows (plan, journal, trials) to what results/collect.h wants.
#pragma once

#include "launcher/sweep_state.h"
#include "results/collect.h"

namespace headsweep {

// A stage at a time, from the plan. What it is made from must outlive it.
CollectSource MakeCollectSource(const SweepState& state, const Workspace& workspace, const FileSystem& files);

// The resolved configuration as columns of a table: "heads" (a number, or a text when layers differ),
// "head_size", "seed", ….
std::map<std::string, AxisValue> ConfigColumns(const StageConfig& config);

}  // namespace headsweep
