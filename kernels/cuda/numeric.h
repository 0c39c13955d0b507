// Numbers of the kernels: bfloat16, conversions between the compute type T (float or bf16) and float, 16-byte
// packs of T. Rounding to bf16 is to nearest, ties to even; a NaN stays a NaN (0x7FFF, as cvt.rn.bf16.f32
// gives; PTX ISA, "cvt"). The same bits on the card and on the CPU. Usable in host and device code.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "kernels/cuda/portable.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

// 8 bits of exponent, 7 of mantissa: the upper half of a float.
struct alignas(2) bf16 {
  std::uint16_t bits;
};

__host__ __device__ inline float FloatOfBits(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
#endif
}

__host__ __device__ inline std::uint16_t RoundToBf16(float x) {
#if defined(__CUDA_ARCH__)
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
#endif
}

__host__ __device__ inline float ToFloat(float x) { return x; }
__host__ __device__ inline float ToFloat(bf16 x) {
  return FloatOfBits(static_cast<std::uint32_t>(x.bits) << 16);
}

template <class T>
__host__ __device__ T FromFloat(float x);
template <>
__host__ __device__ inline float FromFloat<float>(float x) {
  return x;
}
template <>
__host__ __device__ inline bf16 FromFloat<bf16>(float x) {
  return bf16{RoundToBf16(x)};
}

// Two bf16 in a register, as mma and ldmatrix hold them: `low` in bits 0–15.
__host__ __device__ inline std::uint32_t PackBf16(float low, float high) {
#if defined(__CUDA_ARCH__)
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return RoundToBf16(low) | static_cast<std::uint32_t>(RoundToBf16(high)) << 16;
#endif
}
__host__ __device__ inline float LowBf16(std::uint32_t packed) { return FloatOfBits(packed << 16); }
__host__ __device__ inline float HighBf16(std::uint32_t packed) { return FloatOfBits(packed & 0xFFFF0000u); }

// 16 bytes of T, moved by one instruction. Addresses must be multiples of 16 bytes.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = static_cast<int>(16 / sizeof(T));
  T value[kSize];

  __device__ static Pack Load(const T* from) {
    Pack pack;
#if defined(HEADSWEEP_CUDA_ON_HOST)
    CheckAligned(from);
    std::memcpy(pack.value, from, 16);
#else
    *reinterpret_cast<uint4*>(pack.value) = *reinterpret_cast<const uint4*>(from);
#endif
    return pack;
  }
  __device__ void Store(T* to) const {
#if defined(HEADSWEEP_CUDA_ON_HOST)
    CheckAligned(to);
    std::memcpy(to, value, 16);
#else
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(value);
#endif
  }

#if defined(HEADSWEEP_CUDA_ON_HOST)
 private:
  static void CheckAligned(const void* p) {
    if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0)
      internal::Misuse("16-byte access at an address that is not a multiple of 16");
  }
#endif
};

// True if packs may be used on these addresses, and on every row when rows are `stride` elements apart.
template <class T>
inline bool PacksFit(std::int64_t stride, std::initializer_list<const void*> addresses) {
  if (stride % Pack<T>::kSize != 0) return false;
  for (const void* p : addresses) {
    if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0) return false;
  }
  return true;
}

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
