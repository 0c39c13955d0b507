// The machine as this process may use it: cores, memory, GPUs. Cores come from hwloc, less what the affinity
// mask and the control group's CPU set forbid; the CPU quota and the memory limit come from the control
// group. Nothing is changed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cluster/proc_files.h"

namespace headsweep {

struct CpuCore {
  std::vector<int> threads;  // hardware threads this process may run on, by the system's numbers; never empty
  int numa_node = 0;         // by the system's number
};

struct NumaNode {
  int number = 0;
  std::int64_t memory_bytes = 0;
};

struct GpuState {
  std::vector<std::string> device_files;       // /dev/nvidia0, …
  std::string nvidia_smi;                      // its path; "" = not on PATH
  std::vector<std::string> names;              // one line of `nvidia-smi -L` each
  std::string smi_failure;                     // why names is empty although nvidia-smi is there
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES as it is set
  std::vector<std::string> slurm_variables;    // "SLURM_JOB_GPUS=0,1", …
};

struct Topology {
  std::string host;
  ProcessorInfo processor;
  int machine_threads = 0;  // hardware threads of the whole machine
  int machine_cores = 0;
  std::vector<CpuCore> cores;  // usable ones, in hwloc's order (neighbours share caches)
  std::vector<NumaNode> numa_nodes;
  GroupLimits limits;
  MemoryInfo memory;
  std::string huge_pages;  // ReadHugePages
  GpuState gpus;

  int usable_threads() const;  // hardware threads over all usable cores
  // Processes that can compute at full speed at once: usable cores, and no more than the CPU quota; at
  // least 1.
  int worker_slots() const;
};

// Where to look. The default is this machine; tests show another one.
struct TopologySources {
  std::string root;       // put before /proc, /sys and /dev
  std::string synthetic;  // hwloc's synthetic description ("numa:2 core:4 pu:2") instead of the real machine
  std::optional<std::vector<int>> affinity;             // hardware threads instead of this process's mask
  std::function<const char*(const char*)> environment;  // instead of getenv
  double program_seconds = 20;  // deadline for nvidia-smi (a broken driver can make it hang)
};

// Throws Error if hwloc cannot read the machine at all; whatever else is missing is left unknown.
Topology DetectTopology(const TopologySources& sources = {});

}  // namespace headsweep
