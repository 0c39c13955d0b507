// A sweep file as the launcher works on it: its stages, what they are called, and what is written into each
// trial's folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/core.h"
#include "launcher/workspace.h"
#include "sweeps/plan.h"
#include "sweeps/sweep.h"

namespace headsweep {

struct PlannedSweep {
  Sweep sweep;
  Plan plan;
  std::map<std::string, std::size_t> index;  // stage id -> position in plan.stages

  const StageConfig& config(const std::string& stage) const { return plan.stages[index.at(stage)].config; }
  // What the scheduler needs to know.
  std::vector<StageSpec> Specs() const;
  // The sweep's rule for stopping trials early; stages whose values can be compared are in one group of Specs().
  EarlyStoppingRule early_stopping() const;
  // CPU threads of one trainer: the most that a stage asks for.
  int threads() const;
  std::string device()
      const;  // what slots are: GPUs ("cuda") if any stage has run.device = "cuda", or else "cpu"
  // "train heads=4 head_size=32 seed=1", "prune importance of heads=4 …".
  std::string Describe(const std::string& stage) const;
  // The trial's config.toml. divisor > 1: so many times more micro-batches, of a size that still divides the
  // batch; it needs less memory and gives the same result.
  std::string ConfigToml(const std::string& stage, int divisor) const;
};

// fingerprint_of: of the corpora's data; see sweeps/plan.h. Throws ConfigError, also for what this version
// cannot run.
PlannedSweep PlanSweep(Sweep sweep, const FingerprintOf& fingerprint_of);

// The workspace's copy of a sweep. Relative paths in it are seen from the file that was run, which the
// journal names, or the record of its submission.
Sweep LoadKeptSweep(const Workspace& workspace, const FileSystem& files, const std::string& name);

// Fingerprints of the corpora themselves, without preparing anything.
FingerprintOf FingerprintOfSource();

}  // namespace headsweep
