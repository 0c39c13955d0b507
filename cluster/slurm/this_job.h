// The Slurm job around this process, from its environment (cluster/base/batch_job.h).
#pragma once

#include <string>

namespace headsweep {

std::string ThisJob();   // as scontrol takes it: "123", or "123_4" of an array; "" outside Slurm
int ThisJobsRestarts();  // how often it was requeued; 0 outside Slurm

}  // namespace headsweep
