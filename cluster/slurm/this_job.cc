#include "cluster/slurm/this_job.h"

#include <cstdlib>

namespace headsweep {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::string ThisJob() {
  const std::string array = Environment("SLURM_ARRAY_JOB_ID"), task = Environment("SLURM_ARRAY_TASK_ID");
  if (!array.empty() && !task.empty()) return array + "_" + task;
  return Environment("SLURM_JOB_ID");
}

int ThisJobsRestarts() { return std::atoi(Environment("SLURM_RESTART_COUNT").c_str()); }

}  // namespace headsweep
