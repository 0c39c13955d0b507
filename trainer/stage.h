// A stage as a trainer process runs it: everything it may touch, handed in; the outcome, handed back.
// To add a stage kind: a function like these, a case in RunStage, and its configuration in sweeps/stage_config.h.
#pragma once

#include <atomic>
#include <string>

#include "cluster/base/file_system.h"
#include "data/corpus.h"
#include "kernels/backend.h"
#include "results/stage_file.h"
#include "sweeps/stage_config.h"
#include "trainer/collective.h"
#include "trainer/reporter.h"

namespace headsweep {

struct StageContext {
  const StageConfig& config;
  std::string trials_root;         // <workspace>/trials
  std::string directory;           // <workspace>/trials/<id>: checkpoint/ and result.h5 go here
  std::string attempt_directory;   // <directory>/attempt-<n>: metrics.h5 goes here; exists
  int attempt = 1;
  const PreparedCorpus& corpus;
  Backend& backend;
  Collective& collective;
  FileSystem& files;
  Reporter& reporter;
  const std::atomic<bool>& stop;   // set by a signal or the control channel: checkpoint, return "stopped"
  std::string fence = {};          // of SealInPlace, for checkpoints and the result; "" = none
};

struct StageOutcome {
  std::string outcome;             // control_protocol.h: finished | diverged | stopped
  StageSummary summary;            // of finished and diverged; result.h5 is sealed when this is returned
};

StageOutcome RunStage(const StageContext& context);
StageOutcome RunTrainStage(const StageContext& context);  // training.cc
StageOutcome RunPruneStage(const StageContext& context);  // pruning.cc; needs the parent's last checkpoint

}  // namespace headsweep
