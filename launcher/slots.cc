#include "launcher/slots.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cluster/topology.h"

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

}  // namespace

std::vector<int> UsableCpus() {
  TopologySources sources;
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr && std::getenv("SLURM_STEP_NUM_TASKS") == nullptr) {
    const std::vector<int> daemon = AffinityOf(::getppid());
    if (daemon.size() > AffinityOf(0).size()) sources.affinity = daemon;
  }
  const Topology topology = DetectTopology(sources);
  std::vector<int> cpus;
  for (const CpuCore& core : topology.cores) cpus.push_back(core.threads.front());
  cpus.resize(std::min(cpus.size(), static_cast<std::size_t>(topology.worker_slots())));
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
