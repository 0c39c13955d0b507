// What each rank of the job step runs that `headsweep doctor --cluster` starts by srun --mpi=…: a small, real MPI program in
// this very binary, so that a library and a process launcher that do not fit are found before a sweep is submitted.
#pragma once

#include "cluster/doctor_cluster.h"

namespace headsweep {

// Finds its peers, passes a megabyte round the ring of all ranks, and adds something up with them. Never throws; an MPI
// library that cannot start may end the process, and one whose network does not work never comes back.
MpiLook LookByMpi();

}  // namespace headsweep
