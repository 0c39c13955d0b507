// A sweep's state as JSON, for `status`, `watch` and `explain`. The members are described in `headsweep status --help`.
#pragma once

#include <nlohmann/json.hpp>

#include "launcher/submission_state.h"
#include "launcher/sweep_state.h"
#include "launcher/workspace.h"

namespace headsweep {

nlohmann::json StatusJson(const SweepState& state, const Workspace& workspace,
                          const std::vector<SubmissionView>& submissions = {});
// As latest_attempt in it, and charged: whether it counts against the stage's retries.
nlohmann::json AttemptJson(const AttemptHistory& attempt);

}  // namespace headsweep
