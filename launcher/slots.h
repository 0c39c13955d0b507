// Slots: the places of one node where a trial's process can run, each with CPUs of its own. PlanSlots is pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/base/gpu_report.h"

namespace headsweep {

// mpirun binds each rank to a core or two, which says nothing about what the rank's trials may use: gives
// this process the affinity of mpirun's daemon again. Nothing is changed under srun, whose binding is the
// user's.
void UndoMpirunBinding();

// One hardware thread of each core that this process may use; no more than the control group's CPU quota.
std::vector<int> UsableCpus();

struct SlotRequest {
  std::vector<int> cpus;  // usable on this host
  int threads = 1;        // of one trainer
  int slots = 0;          // asked for; 0 = as many as fit
  int rank_on_host = 0;   // agents of one host share its CPUs
  int ranks_on_host = 1;
};

// One entry a slot: the CPUs it is bound to, `threads` of them; or empty lists, not bound, unless the slots
// fill what there is. Never no slot.
std::vector<std::vector<int>> PlanSlots(const SlotRequest& request);

// One entry a slot of a node whose trials run on GPUs: the CUDA_VISIBLE_DEVICES of its trainer. A slot for each GPU, or as
// many as asked for (0 = not): more than there are GPUs share them in turn. No GPU, no slot. Such slots are not bound to CPUs.
std::vector<std::string> PlanGpuSlots(const std::vector<std::string>& gpus, int slots);

// Bytes of each of `gpus` for the tensors of the trials that share it, when so many slots share all of them: what is free, less
// what CUDA takes for each process. 0: not known. entries[i] is the value of CUDA_VISIBLE_DEVICES of devices[i] of the report.
std::vector<std::int64_t> GpuSlotBytes(const std::vector<std::string>& gpus, const std::vector<std::string>& entries,
                                       const GpuReport& report, std::size_t slots);

}  // namespace headsweep
