// Small words of the simple kernels: who am I, how many blocks, values by the pack.
#pragma once

#include <cstdint>

#include "kernels/cuda/numeric.h"
#include "kernels/cuda/portable.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

inline constexpr int kBlockThreads = 256;  // of kernels that have no reason for another number
inline constexpr int kWarpThreads = 32;

// Number of this thread in a one-dimensional grid of one-dimensional blocks.
__device__ __forceinline__ std::int64_t GlobalThread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

template <class Integer>
__host__ __device__ constexpr Integer DivideUp(Integer a, Integer b) {
  return (a + b - 1) / b;
}

// Blocks of kBlockThreads for `threads` threads, at least one.
inline unsigned BlocksFor(std::int64_t threads) {
  return static_cast<unsigned>(threads <= 0 ? 1 : DivideUp<std::int64_t>(threads, kBlockThreads));
}

// Values that one thread moves at a time: W at consecutive, 16-byte aligned addresses, by packs where W
// allows, else one by one.
template <int W, class T>
__device__ __forceinline__ void LoadFloats(const T* from, float (&to)[W]) {
  constexpr int kPack = Pack<T>::kSize;
  if constexpr (W % kPack == 0) {
#pragma unroll
    for (int p = 0; p < W / kPack; ++p) {
      const Pack<T> pack = Pack<T>::Load(from + p * kPack);
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[p * kPack + i] = ToFloat(pack.value[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < W; ++i) to[i] = ToFloat(from[i]);
  }
}
template <int W, class T>
__device__ __forceinline__ void StoreFloats(T* to, const float (&from)[W]) {
  constexpr int kPack = Pack<T>::kSize;
  if constexpr (W % kPack == 0) {
#pragma unroll
    for (int p = 0; p < W / kPack; ++p) {
      Pack<T> pack;
#pragma unroll
      for (int i = 0; i < kPack; ++i) pack.value[i] = FromFloat<T>(from[p * kPack + i]);
      pack.Store(to + p * kPack);
    }
  } else {
#pragma unroll
    for (int i = 0; i < W; ++i) to[i] = FromFloat<T>(from[i]);
  }
}

// Calls launch(width) with the number of values that a thread may move at a time: a whole pack of T when rows
// of `columns` values at these addresses allow it, else 1. The width is an integral constant.
template <int N>
struct Width {
  static constexpr int value = N;
};
template <class T, class Launch>
void ByWidth(std::int64_t columns, std::initializer_list<const void*> addresses, Launch launch) {
  if (PacksFit<T>(columns, addresses)) {
    launch(Width<Pack<T>::kSize>());
  } else {
    launch(Width<1>());
  }
}

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
