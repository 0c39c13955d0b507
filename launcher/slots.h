// Slots: the places of one node where a trial's process can run, each with CPUs of its own. Pure, except
// UsableCpus.
#pragma once

#include <string>
#include <vector>

namespace headsweep {

// One hardware thread of each core that this process may use; no more than the control group's CPU quota.
// Under mpirun the affinity that counts is that of mpirun's daemon: mpirun binds each rank to a core or two,
// which says nothing about what the rank's trials may use.
std::vector<int> UsableCpus();

struct SlotRequest {
  std::vector<int> cpus;  // usable on this host
  int threads = 1;        // of one trainer
  int slots = 0;          // asked for; 0 = as many as fit
  int rank_on_host = 0;   // agents of one host share its CPUs
  int ranks_on_host = 1;
};

// One entry a slot: the CPUs it is bound to, `threads` of them. Empty lists (not bound) when more slots were
// asked for than fit. Never no slot.
std::vector<std::vector<int>> PlanSlots(const SlotRequest& request);

}  // namespace headsweep
