#include "trainer/stage.h"

#include "cluster/base/errors.h"
#include "cluster/base/log.h"
#include "trainer/stage_files.h"

namespace headsweep {

StageOutcome RunStage(const StageContext& context) {
  if (const auto summary = ReadResult(context)) {
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
