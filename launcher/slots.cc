#include "launcher/slots.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace headsweep {
namespace {

std::vector<int> AffinityOf(pid_t pid) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(pid, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

// CPUs' worth of time that the control group allows (cgroup v2 cpu.max, or v1 cfs quota); 0 = no limit, or
// not known.
double CpuQuota() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0) return std::atof(quota.c_str()) / period;
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
      v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double microseconds = 0;
  if (v1_quota >> microseconds && v1_period >> period && microseconds > 0 && period > 0)
    return microseconds / period;
  return 0;
}

}  // namespace

std::vector<int> UsableCpus() {
  std::vector<int> cpus = AffinityOf(0);
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr && std::getenv("SLURM_STEP_NUM_TASKS") == nullptr) {
    const std::vector<int> daemon = AffinityOf(::getppid());
    if (daemon.size() > cpus.size()) cpus = daemon;
  }
  if (cpus.empty())
    for (unsigned cpu = 0; cpu < std::max(1u, std::thread::hardware_concurrency()); ++cpu)
      cpus.push_back(static_cast<int>(cpu));
  const double quota = CpuQuota();
  if (quota > 0)
    cpus.resize(std::min(cpus.size(), static_cast<std::size_t>(std::max(1.0, std::floor(quota)))));
  return cpus;
}

std::vector<std::vector<int>> PlanSlots(const SlotRequest& request) {
  const std::size_t ranks = static_cast<std::size_t>(std::max(1, request.ranks_on_host));
  const std::size_t rank =
      static_cast<std::size_t>(std::clamp(request.rank_on_host, 0, static_cast<int>(ranks) - 1));
  const std::size_t threads = static_cast<std::size_t>(std::max(1, request.threads));
  const std::size_t first = request.cpus.size() * rank / ranks;
  const std::size_t count = request.cpus.size() * (rank + 1) / ranks - first;
  const std::size_t fit = count / threads;
  const std::size_t wanted =
      request.slots > 0 ? static_cast<std::size_t>(request.slots) : std::max<std::size_t>(1, fit);

  std::vector<std::vector<int>> slots(wanted);
  if (wanted > fit)
    return slots;  // crowded on purpose: the kernel shares them out better than fixed places would
  for (std::size_t slot = 0; slot < wanted; ++slot)
    for (std::size_t thread = 0; thread < threads; ++thread)
      slots[slot].push_back(request.cpus[first + slot * threads + thread]);
  return slots;
}

}  // namespace headsweep
