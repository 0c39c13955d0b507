#include "trainer/stage.h"

#include "cluster/base/errors.h"
#include "cluster/base/log.h"
#include "trainer/stage_files.h"

namespace headsweep {

StageOutcome RunStage(const StageContext& context) {
  // Rank 0 looks, the others hear what it saw.
  Collective& collective = context.collective;
  std::optional<StageSummary> summary;
  if (collective.rank() == 0) summary = ReadResult(context);
  const bool is_done = !collective.AllGather(summary ? "done" : "").front().empty();
  if (is_done && collective.rank() != 0) summary = ReadResult(context);
  if (summary) {
    LogInfo("{} is there: nothing to do", ResultPath(context));
    return {summary->outcome, *summary};
  }
  switch (context.config.kind) {
    case StageKind::kTrain:
      return RunTrainStage(context);
    case StageKind::kPrune:
      return RunPruneStage(context);
  }
  HEADSWEEP_CHECK(false, "stage kind {}", static_cast<int>(context.config.kind));
}

}  // namespace headsweep
