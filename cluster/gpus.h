// Which GPUs the trainers of a node get. Pure: strings in, strings out; the devices themselves are found by a
// short-lived child (`headsweep-trainer --probe`, cluster/base/gpu_report.h), so that no launcher ever holds
// a CUDA context.
//
// CUDA_VISIBLE_DEVICES, as CUDA reads it (CUDA C++ Programming Guide, "CUDA Environment Variables"; repeated
// and half-numeric entries as observed by PyTorch, torch/cuda/__init__.py): unset shows every device;
// otherwise a list, of which CUDA takes the entries before the first invalid one. Entries are numbers (read
// like strtol: "1x" is 1), or all "GPU-<uuid>" (any unique prefix of a UUID), or all "MIG-…" ("MIG-<uuid>",
// or "MIG-GPU-<uuid>/<gi>/<ci>" before driver 470). An entry that comes twice hides all devices. "", "-1",
// "NoDevFiles" (Slurm: a job without GPUs) hide all.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/base/gpu_report.h"

namespace headsweep {

using EnvironmentLookup = std::function<const char*(const char* name)>;  // nullptr: not set

struct VisibleGpus {
  bool all = true;  // no variable names any: every GPU of the node, or of the job's control group
  std::vector<std::string> entries;  // in order, each as CUDA_VISIBLE_DEVICES spells it; only if !all
  std::string variable, value;       // which variable said so, and what; "" = none
  std::string warning;               // what CUDA does not look at, and why; "" = nothing
  bool none() const { return !all && entries.empty(); }
};

VisibleGpus ParseVisibleGpus(std::string_view value);

// The first of CUDA_VISIBLE_DEVICES, SLURM_STEP_GPUS, SLURM_JOB_GPUS and GPU_DEVICE_ORDINAL that is set, of
// which the Slurm ones may also hold ranges ("0-3,6"). An empty variable of Slurm's says nothing; an empty
// CUDA_VISIBLE_DEVICES hides all.
VisibleGpus FindVisibleGpus(const EnvironmentLookup& environment);

// What a probe, and whatever else must see these GPUs, needs in its environment: CUDA_VISIBLE_DEVICES, if
// another variable said it.
std::vector<std::pair<std::string, std::string>> GpuEnvironment(const VisibleGpus& visible);

// The value of CUDA_VISIBLE_DEVICES for each device that the probe found usable with GpuEnvironment(visible):
// a trainer that gets it sees that device alone, as its device 0.
std::vector<std::string> GpuEntries(const VisibleGpus& visible, const GpuReport& report);

// The part of entries that belongs to one of several agents on a host. Agents that see all of the node's GPUs
// share them out in order; those to whom srun has given some of their own (--gpus-per-task, --gpu-bind) keep
// them. gpus_on_node: Slurm's count for the job on this node (SLURM_GPUS_ON_NODE); 0 = not known, then all
// agents see the same ones.
std::vector<std::string> ShareOfAgent(const std::vector<std::string>& entries, int rank_on_host,
                                      int ranks_on_host, int gpus_on_node);

// "2 GPUs: NVIDIA H100 80GB HBM3 (79.6 GiB, compute capability 9.0), …; driver for CUDA 13.0, built
// for 12.8"; or "no GPU".
std::string DescribeGpus(const GpuReport& report);

}  // namespace headsweep
