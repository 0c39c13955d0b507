// Reporter: what a running stage tells whoever supervises it. The same events go to a launcher's control
// channel (JSON lines, see trainer/control_protocol.h), to a terminal, or nowhere (tests).
#pragma once

#include <cstdint>
#include <string>

#include "results/stage_file.h"
#include "results/tables.h"

namespace headsweep {

class Reporter {
 public:
  virtual ~Reporter() = default;
  // Configuration, data and (if there was one) checkpoint are loaded; work goes on after `step` of `steps`.
  virtual void Started(std::int64_t /*step*/, std::int64_t /*steps*/) {}
  // Called after every step and every batch of a pass: also the occasion to look for requests.
  // phase: "load" | "train" | "evaluate" | "score" | "prune"; step of steps within the stage's whole work.
  virtual void Progress(const std::string& phase, std::int64_t step, std::int64_t steps, double loss,
                        double tokens_per_second) = 0;
  virtual void Evaluated(const EvaluationRow& row) = 0;
  virtual void Checkpointed(std::int64_t step, const std::string& path) = 0;
};

}  // namespace headsweep
