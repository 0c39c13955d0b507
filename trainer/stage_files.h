// Files of a stage that every kind of stage writes in the same way: result.h5, and the provenance that goes
// into all of them.
#pragma once

#include <optional>
#include <string>

#include "results/stage_file.h"
#include "trainer/stage.h"

namespace headsweep {

std::string ResultPath(const StageContext& context);      // <directory>/result.h5
std::string CheckpointRoot(const StageContext& context);  // <directory>/checkpoint

// Who, what, where, from which data and program; started_at is now.
Provenance MakeProvenance(const StageContext& context);

// Writes result.h5 and seals it: when this returns the stage is done, even after a power cut.
void SealResult(const StageContext& context, const Provenance& provenance, const StageTables& tables,
                const StageSummary& summary);

// The summary of a stage that is done. A result.h5 that does not read is moved aside (result.h5.damaged) with
// a warning, so that the stage runs again.
std::optional<StageSummary> ReadResult(const StageContext& context);

}  // namespace headsweep
