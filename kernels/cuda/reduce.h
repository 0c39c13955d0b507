// Sums and maxima over a warp and over a block, always in the same order: the same bits on every call.
// All threads of the warp or block must call, and all get the result. WarpX: whole warps only. BlockX:
// blockDim.x a multiple of 32, one-dimensional blocks; begins with a barrier, so calls may follow each other.
#pragma once

#include "kernels/cuda/portable.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

template <class T>
__device__ __forceinline__ T WarpSum(T x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}

__device__ __forceinline__ float WarpMax(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
  return x;
}

namespace internal {

template <class T, class Combine>
__device__ __forceinline__ T BlockReduce(T x, T none, Combine combine) {
  HS_SHARED(T, of_warp, [32]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x = combine(x);
  __syncthreads();
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  x = combine(lane < blockDim.x / 32 ? of_warp[lane] : none);
  return x;
}

struct Summing {
  template <class T>
  __device__ T operator()(T x) const {
    return WarpSum(x);
  }
};
struct Maximum {
  __device__ float operator()(float x) const { return WarpMax(x); }
};

}  // namespace internal

template <class T>
__device__ __forceinline__ T BlockSum(T x) {
  return internal::BlockReduce(x, T{0}, internal::Summing());
}
__device__ __forceinline__ float BlockMax(float x) {
  return internal::BlockReduce(x, -INFINITY, internal::Maximum());
}

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
