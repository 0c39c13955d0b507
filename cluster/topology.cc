#include "cluster/topology.h"

#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "cluster/base/run_program.h"

namespace headsweep {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

HwlocTopology LoadHwloc(const std::string& synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw Error("hwloc cannot be started");
  HwlocTopology topology(raw);
  if (!synthetic.empty() && hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0)
    throw Error(fmt::format("hwloc does not understand the synthetic machine \"{}\"", synthetic));
  if (hwloc_topology_load(raw) != 0) throw Error("hwloc cannot read the machine's topology");
  return topology;
}

// Hardware threads this process may run on.
Bitmap AllowedThreads(hwloc_topology_t topology, const TopologySources& sources) {
  Bitmap allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology)));
  Bitmap bound(hwloc_bitmap_alloc());
  if (sources.affinity) {
    for (const int thread : *sources.affinity) hwloc_bitmap_set(bound.get(), static_cast<unsigned>(thread));
    hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
  } else if (sources.synthetic.empty() &&
             hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_PROCESS) == 0) {
    hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
  }
  return allowed;
}

void ReadCores(const TopologySources& sources, Topology& machine) {
  const HwlocTopology owner = LoadHwloc(sources.synthetic);
  hwloc_topology_t topology = owner.get();
  const Bitmap allowed = AllowedThreads(topology, sources);
  machine.machine_threads = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);

  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    machine.numa_nodes.push_back(
        {static_cast<int>(node->os_index), static_cast<std::int64_t>(node->attr->numanode.local_memory)});

  // Some virtual machines show no cores: then every hardware thread counts as one.
  const int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  const hwloc_obj_type_t type = cores > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  machine.machine_cores = cores > 0 ? cores : machine.machine_threads;
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    CpuCore core;
    const Bitmap usable(hwloc_bitmap_dup(object->cpuset));
    hwloc_bitmap_and(usable.get(), usable.get(), allowed.get());
    for (int i = hwloc_bitmap_first(usable.get()); i >= 0; i = hwloc_bitmap_next(usable.get(), i))
      core.threads.push_back(i);
    if (core.threads.empty()) continue;
    const int node = hwloc_bitmap_first(object->nodeset);
    core.numa_node = std::max(node, 0);
    machine.cores.push_back(std::move(core));
  }
}

GpuState ReadGpus(const TopologySources& sources) {
  const auto environment = [&](const char* name) {
    return sources.environment ? sources.environment(name) : std::getenv(name);
  };
  GpuState gpus;
  const std::string devices = sources.root + "/dev";
  for (const std::string& name : FileSystem::Real().List(devices))
    if (name.starts_with("nvidia") && name.size() > 6 &&
        std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c); }))
      gpus.device_files.push_back("/dev/" + name);
  if (const char* visible = environment("CUDA_VISIBLE_DEVICES")) gpus.visible_devices = visible;
  for (const char* name : {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_TASK"})
    if (const char* value = environment(name))
      gpus.slurm_variables.push_back(fmt::format("{}={}", name, value));

  gpus.nvidia_smi = FindProgram("nvidia-smi");
  if (gpus.nvidia_smi.empty()) return gpus;
  try {
    const ProgramResult result =
        RunProgram({gpus.nvidia_smi, "-L"}, sources.program_seconds, /*merge_errors=*/true);
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("GPU ")) gpus.names.push_back(line);
    if (gpus.names.empty())
      gpus.smi_failure =
          fmt::format("code {}: {}", result.exit_code, result.output.substr(0, result.output.find('\n')));
  } catch (const Error& error) {
    gpus.smi_failure = error.what();
  }
  return gpus;
}

}  // namespace

int Topology::usable_threads() const {
  std::size_t threads = 0;
  for (const CpuCore& core : cores) threads += core.threads.size();
  return static_cast<int>(threads);
}

int Topology::worker_slots() const {
  double slots = static_cast<double>(cores.size());
  if (limits.cpus) slots = std::min(slots, std::floor(*limits.cpus + 0.01));  // 1.999 CPUs are 2
  return std::max(1, static_cast<int>(slots));
}

Topology DetectTopology(const TopologySources& sources) {
  Topology machine;
  char host[256] = "";
  if (::gethostname(host, sizeof host - 1) == 0) machine.host = host;
  machine.processor = ReadProcessor(sources.root);
  ReadCores(sources, machine);
  machine.limits = ReadGroupLimits(sources.root);
  machine.memory = ReadMemory(sources.root);
  machine.huge_pages = ReadHugePages(sources.root);
  machine.gpus = ReadGpus(sources);
  return machine;
}

}  // namespace headsweep
