// Deaths on request, for tests of whoever supervises a trainer. Environment:
//   HEADSWEEP_TRAINER_DIE_AT=<step>:<signal or exit code>   right after that step: "7:SIGKILL" raises the
//   signal, "7:3" calls
//                                                           _exit(3); before anything of the step is saved
//   HEADSWEEP_TRAINER_HANG_AT=<step>                        right after that step: neither progress nor
//   obedience any more HEADSWEEP_TRAINER_FAULT_ATTEMPT=<attempt>               only in that attempt (default:
//   in every one)
//   HEADSWEEP_TRAINER_FAULT_RANK=<rank>                     only in that process of a trial (default: in every one)
// A step is one of "step" in progress messages of the phases train, score and prune.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/reporter.h"

namespace headsweep {

struct FaultPlan {
  std::optional<std::int64_t> die_at, hang_at;
  int signal = 0;  // of die_at; 0: exit_code
  int exit_code = 0;
};

// Reads the environment. Throws ConfigError for a value that is not understood.
FaultPlan FaultsFromEnvironment(int attempt, int rank = 0);

// Passes everything on to another reporter, and dies when the time has come.
class FaultyReporter final : public Reporter {
 public:
  FaultyReporter(Reporter& next, const FaultPlan& plan) : next_(next), plan_(plan) {}
  void Started(std::int64_t step, std::int64_t steps) override { next_.Started(step, steps); }
  void Progress(const std::string& phase, std::int64_t step, std::int64_t steps, double loss,
                double tokens_per_second) override;
  void Evaluated(const EvaluationRow& row) override { next_.Evaluated(row); }
  void Checkpointed(std::int64_t step, const std::string& path) override { next_.Checkpointed(step, path); }

 private:
  Reporter& next_;
  FaultPlan plan_;
};

}  // namespace headsweep
