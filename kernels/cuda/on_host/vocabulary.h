// CUDA's device vocabulary for a plain C++ compiler, as far as the kernels use it: qualifiers, built-in
// variables, vector types, barriers, warp operations, atomics, bit and mathematical functions. Names and
// meanings are those of the CUDA C++ Programming Guide (docs.nvidia.com/cuda/cuda-c-programming-guide); a
// kernel that needs one more adds it here. Not here: unqualified __shared__, so that a shared array that is
// not declared by HS_SHARED does not compile.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/on_host/executor.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

#define threadIdx (::headsweep::cuda_on_host::internal::current->index)
#define blockIdx (::headsweep::cuda_on_host::internal::current->block->index)
#define blockDim (::headsweep::cuda_on_host::internal::current->block->dim)
#define gridDim (::headsweep::cuda_on_host::internal::current->block->grid)

namespace headsweep::cuda_on_host {

inline constexpr int warpSize = 32;

struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// --- Barriers
// --------------------------------------------------------------------------------------------------------
inline void __syncthreads() { internal::MeetBlock(); }
inline void __syncwarp(unsigned mask = ~0u) { internal::MeetWarp(mask, "__syncwarp", nullptr, nullptr); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// --- Warp operations
// -------------------------------------------------------------------------------------------------
namespace internal {

template <class T>
struct ShuffleArguments {
  T value;
  unsigned source;
  T result;
};

template <class T>
T Shuffle(unsigned mask, const char* what, T value, int source) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "a shuffle moves 4 or 8 bytes");
  ShuffleArguments<T> arguments{value, static_cast<unsigned>(source), value};
  MeetWarp(mask, what, &arguments, [](const WarpMeeting& meeting) {
    for (unsigned lane = 0; lane < 32; ++lane) {
      if ((meeting.lanes >> lane & 1) == 0) continue;
      auto* mine = static_cast<ShuffleArguments<T>*>(meeting.arguments[lane]);
      if (meeting.lanes >> mine->source & 1) {
        mine->result = static_cast<ShuffleArguments<T>*>(meeting.arguments[mine->source])->value;
      } else {
        Poison(&mine->result, sizeof(T));  // CUDA: undefined
      }
    }
  });
  return arguments.result;
}

struct VoteArguments {
  bool predicate;
  unsigned votes;
};

inline unsigned Vote(unsigned mask, const char* what, bool predicate) {
  VoteArguments arguments{predicate, 0};
  MeetWarp(mask, what, &arguments, [](const WarpMeeting& meeting) {
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (meeting.lanes >> lane & 1 && static_cast<VoteArguments*>(meeting.arguments[lane])->predicate)
        votes |= 1u << lane;
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (meeting.lanes >> lane & 1) static_cast<VoteArguments*>(meeting.arguments[lane])->votes = votes;
    }
  });
  return arguments.votes;
}

inline int Lane() { return static_cast<int>(current->lane); }

}  // namespace internal

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int first = internal::Lane() & ~(width - 1);
  return internal::Shuffle(mask, "__shfl_sync", value, first + (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const int end = (internal::Lane() & ~(width - 1)) + width, source = internal::Lane() ^ lanes;
  return internal::Shuffle(mask, "__shfl_xor_sync", value, source < end ? source : internal::Lane());
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int end = (internal::Lane() & ~(width - 1)) + width,
            source = internal::Lane() + static_cast<int>(delta);
  return internal::Shuffle(mask, "__shfl_down_sync", value, source < end ? source : internal::Lane());
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int first = internal::Lane() & ~(width - 1), source = internal::Lane() - static_cast<int>(delta);
  return internal::Shuffle(mask, "__shfl_up_sync", value, source >= first ? source : internal::Lane());
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return internal::Vote(mask, "__ballot_sync", predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return internal::Vote(mask, "__any_sync", predicate != 0) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return internal::Vote(mask, "__all_sync", predicate == 0) == 0;
}
inline unsigned __activemask() { return internal::LiveLanes(); }

// --- Atomics
// ---------------------------------------------------------------------------------------------------------
namespace internal {

template <class T, class Change>
T Atomically(T* p, Change change) {
  T before, after;
  __atomic_load(p, &before, __ATOMIC_RELAXED);
  do {
    after = change(before);
  } while (!__atomic_compare_exchange(p, &before, &after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return before;
}

}  // namespace internal

template <class T>
T atomicAdd(T* p, std::common_type_t<T> value) {
  return internal::Atomically(p, [value](T before) { return static_cast<T>(before + value); });
}
template <class T>
T atomicMax(T* p, std::common_type_t<T> value) {
  return internal::Atomically(p, [value](T before) { return before > value ? before : value; });
}
template <class T>
T atomicMin(T* p, std::common_type_t<T> value) {
  return internal::Atomically(p, [value](T before) { return before < value ? before : value; });
}
template <class T>
T atomicOr(T* p, std::common_type_t<T> value) {
  return internal::Atomically(p, [value](T before) { return static_cast<T>(before | value); });
}
template <class T>
T atomicExch(T* p, std::common_type_t<T> value) {
  return internal::Atomically(p, [value](T) { return value; });
}
template <class T>
T atomicCAS(T* p, std::common_type_t<T> compare, std::common_type_t<T> value) {
  T before = compare;
  __atomic_compare_exchange(p, &before, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return before;
}

// --- Bits
// ------------------------------------------------------------------------------------------------------------
namespace internal {

template <class To, class From>
To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace internal

template <class T>
T __ldg(const T* p) {
  return *p;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }
inline float __int_as_float(int x) { return internal::BitCast<float>(x); }
inline int __float_as_int(float x) { return internal::BitCast<int>(x); }
inline float __uint_as_float(unsigned x) { return internal::BitCast<float>(x); }
inline unsigned __float_as_uint(float x) { return internal::BitCast<unsigned>(x); }

// --- Mathematics
// ----------------------------------------------------------------------------------------------------- The
// global ones of <math.h> (expf, fmaxf, tanhf, …) are there already. Fast variants are exact here.
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
template <class T>
constexpr std::enable_if_t<std::is_arithmetic_v<T>, T> min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr std::enable_if_t<std::is_arithmetic_v<T>, T> max(T a, T b) {
  return a < b ? b : a;
}

}  // namespace headsweep::cuda_on_host
