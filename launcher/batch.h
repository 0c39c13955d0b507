// What a batch script runs (cluster/slurm/job_script.h): starts the agents, waits for their end, and sees to it that an
// unfinished sweep goes on: by requeueing this job, or, where the site does not allow that, by a new job that waits for
// the end of this one. Everything it decides is written into the submission's history first. A double start of one
// script does no harm: the sweep's lock lets one coordinator in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/journal_format.h"

namespace headsweep {

struct BatchOptions {
  std::string submission;           // directory of the submission, absolute
  int most_requeues = 100;
  std::vector<std::string> agents;  // the command that starts the agents: {"srun", …}
};

// Returns the exit code of the batch script. Throws ConfigError, IoError before anything was started.
int RunBatch(const BatchOptions& options);

// --- Pure parts, for tests -----------------------------------------------------------------------------------------------
// How far a sweep is: grows with every stage that is finished and every checkpoint that is ahead of the ones before.
std::int64_t ProgressOf(const std::vector<JournalEvent>& events);

}  // namespace headsweep
