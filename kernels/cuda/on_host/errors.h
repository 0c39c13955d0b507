// What runtime.cc tells the calling thread about errors.
#pragma once

#include <string>

#include "kernels/cuda/on_host/runtime.h"

namespace headsweep::cuda_on_host::internal {

// Returns `error`, and keeps it for cudaGetLastError() if it is one.
cudaError_t Report(cudaError_t error);

// What cudaGetErrorString() says of cudaErrorLaunchFailure from now on.
void SetLaunchFailure(const std::string& text);

}  // namespace headsweep::cuda_on_host::internal
