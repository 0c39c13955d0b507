// How kernels/backend.cc reaches the two compilations of this folder without seeing CUDA.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace headsweep {

namespace cuda {  // only in builds with CUDA
std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options);
}
namespace cuda_on_host {
std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options);
}

}  // namespace headsweep
