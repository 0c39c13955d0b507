// NCCL, in builds with CUDA: see collective.h for what a Collective promises. Beside that: sums of float*
// follow what the backend has enqueued on its stream so far, and Wait() returns when they are there. Throws
// Unsupported when the library is not installed.
#pragma once

#include <memory>

#include "trainer/collective.h"

namespace headsweep {

// compute_stream: Backend::CardStream().
std::unique_ptr<Collective> MakeNcclCollective(const CollectiveOptions& options, Rendezvous& rendezvous,
                                               void* compute_stream);

// 22809 for 2.28.9, of the library that is loaded.
int NcclVersion();

}  // namespace headsweep
