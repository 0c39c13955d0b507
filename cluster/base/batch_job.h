// The batch system's job around this process, from its environment.
#pragma once

#include <string>

namespace headsweep {

struct BatchJob {
  enum class System { kNone, kSlurm, kPbs };
  System system = System::kNone;
  std::string id;   // as that system's commands take it: Slurm's "123", or "123_4" of an array (whose SLURM_JOB_ID may be that
                    // of the whole array); PBS's "123.server", "123[4].server"; "" outside a job
  int restart = 0;  // how often it was requeued before (SLURM_RESTART_COUNT); PBS does not say
};
BatchJob ThisBatchJob();

}  // namespace headsweep
