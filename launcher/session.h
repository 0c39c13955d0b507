// A session: one `headsweep run` or `resume`, from the sweep file to the report. On rank 0 (or without
// mpirun) it coordinates and looks after its own node; on every other rank it is that node's agent and
// nothing else.
#pragma once

#include <functional>
#include <string>

#include "launcher/workspace.h"
#include "sweeps/sweep.h"

namespace headsweep {

// Set by a batch job for its agents: SessionOptions::time_limit.
inline constexpr const char* kSecondsLeftVariable = "HEADSWEEP_SECONDS_LEFT";

struct SessionOptions {
  std::string workspace;
  int slots = 0;    // of each node's agent; 0 = as many as its cores allow
  int threads = 0;  // of each trainer; 0 = as the sweep says
  bool quiet = false;
  bool report = true;      // collect and report at the end
  double time_limit = 0;  // seconds from the start of this process to the end of its allocation; 0: not known
  bool finish_early_stopped = false;  // what the sweep's rule gave up is taken up again, for good
  bool join = false;       // share the sweep with other launchers (launcher/LEASES.md)
  bool take_over = false;  // also a lock whose owner cannot be looked at (see sweep_lock.h)
};

// load: reads and checks the sweep; called on rank 0 only, before anything is written.
// Returns the exit code (cluster/base/errors.h). Throws ConfigError, IoError, CommError.
int RunSession(const SessionOptions& options,
               const std::function<Sweep(const Workspace&, const FileSystem&)>& load);

}  // namespace headsweep
