#include "launcher/slots.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cluster/base/log.h"
#include "cluster/topology.h"

namespace headsweep {
namespace {

// Context, modules and the libraries' own memory of a process on a GPU. Chosen, on the safe side: contexts alone take 300 to 600 MiB.
constexpr std::int64_t kCudaBytesOfProcess = std::int64_t{1} << 30;

}  // namespace


void UndoMpirunBinding() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr || std::getenv("SLURM_STEP_NUM_TASKS") != nullptr)
    return;
  cpu_set_t own, daemon;
  CPU_ZERO(&own);
  CPU_ZERO(&daemon);
  if (::sched_getaffinity(0, sizeof own, &own) != 0) return;
  if (::sched_getaffinity(::getppid(), sizeof daemon, &daemon) != 0) return;
  if (CPU_COUNT(&daemon) > CPU_COUNT(&own) && ::sched_setaffinity(0, sizeof daemon, &daemon) != 0)
    LogWarning(
        "mpirun has bound this rank to {} of {} CPUs and it cannot be undone; use mpirun --bind-to none",
        CPU_COUNT(&own), CPU_COUNT(&daemon));
}

std::vector<int> UsableCpus() {
  const Topology topology = DetectTopology();
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
  // Crowded on purpose, or leaving cores to others (perhaps to another sweep, whose trials must not be bound
  // to the same ones): the kernel shares them out better than fixed places would.
  if (wanted != fit) return slots;
  for (std::size_t slot = 0; slot < wanted; ++slot)
    for (std::size_t thread = 0; thread < threads; ++thread)
      slots[slot].push_back(request.cpus[first + slot * threads + thread]);
  return slots;
}

std::vector<std::string> PlanGpuSlots(const std::vector<std::string>& gpus, int slots) {
  std::vector<std::string> places;
  if (gpus.empty()) return places;
  const std::size_t wanted = slots > 0 ? static_cast<std::size_t>(slots) : gpus.size();
  for (std::size_t slot = 0; slot < wanted; ++slot) places.push_back(gpus[slot % gpus.size()]);
  return places;
}

std::vector<std::int64_t> GpuSlotBytes(const std::vector<std::string>& gpus, const std::vector<std::string>& entries,
                                       const GpuReport& report, std::size_t slots) {
  const auto processes = static_cast<std::int64_t>((slots + gpus.size() - 1) / std::max<std::size_t>(1, gpus.size()));
  std::vector<std::int64_t> bytes;
  for (const std::string& gpu : gpus) {
    const auto entry = static_cast<std::size_t>(std::find(entries.begin(), entries.end(), gpu) - entries.begin());
    const std::int64_t free = entry < report.devices.size() ? report.devices[entry].free_bytes : 0;
    bytes.push_back(std::max<std::int64_t>(0, free - processes * kCudaBytesOfProcess));
  }
  return bytes;
}

}  // namespace headsweep
