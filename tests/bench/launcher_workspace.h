// What the parts of suite "launcher" share: sweeps of no-op trials, and where everything lies.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/planned_sweep.h"
#include "tests/bench/report.h"
#include "tests/bench/suites.h"

namespace headsweep::bench {

// A sweep of `trials` small trials, no two alike: rates and seeds. first_seed: another one, another set of trials.
std::string NoopSweepToml(const std::string& name, const std::string& corpus, int trials, int first_seed = 1);

// The same as the launcher plans it; the corpus is not read.
PlannedSweep PlanNoopSweep(int trials);

// Where one trial of each kind of measurement costs what: a sweep through GNU parallel and through `headsweep run`.
Table NoopTrialsTable(const std::string& folder, double seconds);
// The coordinator by itself, with an agent that only answers.
Table CoordinatorTable(const std::string& folder);
// 10,000 and 100,000 trials planned, replayed, looked at, resumed and collected.
Table ScaleTable(const std::string& folder, int trials);
// 1,000 nodes of 8 devices that finish 50 trials a second.
Table ClusterTable(double seconds);

}  // namespace headsweep::bench
