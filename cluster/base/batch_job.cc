#include "cluster/base/batch_job.h"

#include <cstdlib>

namespace headsweep {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

BatchJob ThisBatchJob() {
  const std::string array = Environment("SLURM_ARRAY_JOB_ID"), task = Environment("SLURM_ARRAY_TASK_ID");
  const std::string slurm = !array.empty() && !task.empty() ? array + "_" + task : Environment("SLURM_JOB_ID");
  if (!slurm.empty()) return {BatchJob::System::kSlurm, slurm, std::atoi(Environment("SLURM_RESTART_COUNT").c_str())};
  const std::string pbs = Environment("PBS_JOBID");
  if (!pbs.empty()) return {BatchJob::System::kPbs, pbs, 0};
  return {};
}

}  // namespace headsweep
