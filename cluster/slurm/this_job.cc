#include "cluster/slurm/this_job.h"

#include "cluster/base/batch_job.h"

namespace headsweep {

std::string ThisJob() {
  const BatchJob job = ThisBatchJob();
  return job.system == BatchJob::System::kSlurm ? job.id : "";
}

int ThisJobsRestarts() { return ThisBatchJob().restart; }

}  // namespace headsweep
