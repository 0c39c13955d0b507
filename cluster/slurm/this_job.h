// The Slurm job around this process, from its environment.
#pragma once

#include <string>

namespace headsweep {

// As scontrol takes it: "123", or "123_4" of an array (whose SLURM_JOB_ID may be that of the whole array); "" outside Slurm.
std::string ThisJob();
int ThisJobsRestarts();  // how often it was requeued; 0 outside Slurm

}  // namespace headsweep
