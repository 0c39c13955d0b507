// CUDA's error codes as exceptions.
#pragma once

#include "cluster/base/errors.h"
#include "kernels/cuda/portable.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

// Throws DeviceError that names the call, CUDA's code and what it means.
inline void Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  int device = -1;
  cudaGetDevice(&device);
  throw DeviceError(call, static_cast<int>(error), cudaGetErrorString(error), device);
}

// After a launch: configuration errors of this one, or whatever broke before. op: name of the backend's op.
inline void CheckLaunch(const char* op) { Check(cudaGetLastError(), op); }

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
