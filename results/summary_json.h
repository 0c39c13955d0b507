// StageSummary as JSON: what a trainer sends when it is done and what the launcher journals. Field names are the struct's;
// a value that is not a number becomes null.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "results/stage_file.h"

namespace headsweep {

nlohmann::json ToJson(const StageSummary& summary);

}  // namespace headsweep
