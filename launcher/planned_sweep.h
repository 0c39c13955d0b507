// A sweep file as the launcher works on it: its stages, what they are called, and what is written into each
// trial's folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/core.h"
#include "launcher/workspace.h"
#include "sweeps/plan.h"
#include "sweeps/sweep.h"

namespace headsweep {

struct PlannedSweep {
  Sweep sweep;
  Plan plan;
  std::vector<std::uint32_t> by_id;  // positions in plan.stages, in the order of the ids

  std::size_t size() const { return plan.stages.size(); }
  // Position of a stage in plan.stages; nullopt: the sweep has none of that id.
  std::optional<std::size_t> Find(std::string_view id) const;
  std::size_t At(const std::string& id) const;  // of one that it has (checked)
  bool Contains(std::string_view id) const { return Find(id).has_value(); }
  std::string IdAt(std::size_t position) const { return plan.Id(plan.stages[position]); }
  StageConfig config(const std::string& stage) const { return plan.Config(plan.stages[At(stage)]); }
  // What the scheduler needs to know.
  std::vector<StageSpec> Specs() const;
  // The sweep's rule for stopping trials early; stages whose values can be compared are in one group of Specs().
  EarlyStoppingRule early_stopping() const;
  int threads = 1;             // of the CPU, of one trainer: the most that a stage asks for
  std::string device = "cpu";  // what slots are: GPUs ("cuda") if any stage has run.device = "cuda", or else "cpu"
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
