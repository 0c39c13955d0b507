// First include of every file that holds kernels: one source, compiled by nvcc for the card, or by a plain
// C++ compiler (with HEADSWEEP_CUDA_ON_HOST defined) for tests on the CPU, where each CUDA thread is a fiber
// (on_host/executor.h). Both compilations may be linked into one program, so everything lives in namespace
// headsweep::HEADSWEEP_CUDA_NAMESPACE: `cuda` on the card, `cuda_on_host` on the CPU. C++17, as nvcc
// wants it.
//
// clang-format off
//   HS_SHARED(float, tile, [32][33]);   a __shared__ array; on the CPU full of NaN when a block begins
//   HS_DYNAMIC_SHARED(float, buffer);   float* buffer, the launch's dynamic shared memory, 16-byte aligned
//   HS_LAUNCH((kernel<float>), grid, block, shared_bytes, stream, x, n);
//                                       enqueues; CheckLaunch() tells what went wrong
// clang-format on
//
// Everything else is CUDA's own vocabulary: threadIdx, __syncthreads(), __shfl_xor_sync(), cudaMemcpyAsync()
// and so on. What the CPU build knows of it is in on_host/vocabulary.h (device code) and on_host/runtime.h
// (host code).
#pragma once

#if defined(HEADSWEEP_CUDA_ON_HOST)

#define HEADSWEEP_CUDA_NAMESPACE cuda_on_host
#include "kernels/cuda/on_host/vocabulary.h"
// The runtime comes second: its launches name the vector types.
#include "kernels/cuda/on_host/runtime.h"

#define HS_SHARED(type, name, extents)                                                              \
  typedef type name##_HsShared extents;                                                             \
  static thread_local ::headsweep::cuda_on_host::internal::SharedVariable<name##_HsShared> name##_; \
  name##_HsShared& name = name##_.Enter()
#define HS_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::headsweep::cuda_on_host::internal::DynamicShared())
#define HS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                     \
  ::headsweep::cuda_on_host::internal::LaunchKernel(#kernel, kernel, (grid), (block), (shared_bytes), \
                                                    (stream)__VA_OPT__(, ) __VA_ARGS__)

#else

#define HEADSWEEP_CUDA_NAMESPACE cuda
#include <cuda_runtime.h>

#define HS_SHARED(type, name, extents) __shared__ type name extents
#define HS_DYNAMIC_SHARED(type, name)                                 \
  extern __shared__ __align__(16) unsigned char hs_dynamic_shared_[]; \
  type* const name = reinterpret_cast<type*>(hs_dynamic_shared_)
#define HS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

#endif
