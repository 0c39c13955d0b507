// Dropout multipliers of consecutive positions, many Philox blocks at a time. The formula is
// kernels/philox.h's; here each 64-bit lane of a vector computes one block, its counter words in the low
// halves (what is above them is never looked at).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cpu/small_product.h"
#include "kernels/philox.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace headsweep::cpu {

namespace internal {

inline constexpr int kPhiloxLanes = kLanes / 2;
typedef std::uint64_t Words64 __attribute__((vector_size(kPhiloxLanes * sizeof(std::uint64_t))));
typedef std::uint32_t Words32 __attribute__((vector_size(kPhiloxLanes * sizeof(std::uint64_t))));
typedef float PhiloxFloats __attribute__((vector_size(kPhiloxLanes * sizeof(std::uint64_t))));

// Lane by lane, the full product of the low halves: one instruction where plain C++ would multiply 64 by 64
// bits.
inline Words64 MultiplyLowHalves(Words64 a, Words64 b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Words64>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Words64>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

template <std::size_t... kLane>
Words64 Count(std::uint64_t first, std::index_sequence<kLane...>) {
  return Words64{(first + kLane)...};
}

// Lane order that interleaves two vectors of 64-bit words, from word kFirst of each on.
template <std::size_t kFirst, std::size_t... kLane>
constexpr Words64 Interleave(std::index_sequence<kLane...>) {
  return Words64{(kFirst + kLane / 2 + (kLane % 2) * kPhiloxLanes)...};
}

}  // namespace internal

// Draws this many blocks at once: enough independent vectors to hide the multiplier's latency.
inline constexpr int kPhiloxVectors = 4;
inline constexpr int kPhiloxBatch = kPhiloxVectors * internal::kPhiloxLanes * 4;  // numbers

// out[0 .. kPhiloxBatch): multipliers of the positions from 4 * block on.
inline void DropoutMultiplierBatch(const Dropout& dropout, std::uint64_t block, float* out) {
  using namespace internal;
  constexpr auto kSequence = std::make_index_sequence<kPhiloxLanes>();
  Words64 c0[kPhiloxVectors], c1[kPhiloxVectors], c2[kPhiloxVectors], c3[kPhiloxVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kPhiloxVectors; ++i) {
    c0[i] = Count(block + static_cast<std::uint64_t>(i * kPhiloxLanes), kSequence);
    c1[i] = c0[i] >> 32;
    c2[i] = Words64{} + dropout.site;
    c3[i] = c2[i] >> 32;
  }
  const Words64 multiplier0 = Words64{} + kPhiloxMultiplier0, multiplier1 = Words64{} + kPhiloxMultiplier1;
  std::uint32_t k0 = static_cast<std::uint32_t>(dropout.seed),
                k1 = static_cast<std::uint32_t>(dropout.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
#pragma GCC unroll 4
    for (int i = 0; i < kPhiloxVectors; ++i) {
      const Words64 product0 = MultiplyLowHalves(multiplier0, c0[i]),
                    product1 = MultiplyLowHalves(multiplier1, c2[i]);
      c0[i] = (product1 >> 32) ^ c1[i] ^ k0;
      c1[i] = product1;
      c2[i] = (product0 >> 32) ^ c3[i] ^ k1;
      c3[i] = product0;
    }
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  const Words32 threshold = Words32{} + DropoutThreshold(dropout.rate);
  const PhiloxFloats scale = PhiloxFloats{} + DropoutScale(dropout.rate);
  const auto store = [&](Words64 words, int at) {
    const PhiloxFloats kept = reinterpret_cast<Words32>(words) >= threshold ? scale : PhiloxFloats{};
    std::memcpy(out + at * 2 * kPhiloxLanes, &kept, sizeof(kept));
  };
#pragma GCC unroll 4
  for (int i = 0; i < kPhiloxVectors; ++i) {
    const Words64 first = (c0[i] & 0xffffffffu) | (c1[i] << 32),
                  second = (c2[i] & 0xffffffffu) | (c3[i] << 32);
    store(__builtin_shuffle(first, second, Interleave<0>(kSequence)), 2 * i);
    store(__builtin_shuffle(first, second, Interleave<kPhiloxLanes / 2>(kSequence)), 2 * i + 1);
  }
}

// With its numbers, if it has any, added.
inline Dropout Settled(Dropout dropout) {
  if (dropout.numbers == nullptr) return dropout;
  dropout.site += dropout.numbers->site;
  dropout.first_example += dropout.numbers->first_example;
  dropout.numbers = nullptr;
  return dropout;
}

// dropout: settled. out[i] = DropoutScale(rate) where position first + i is kept, else 0; i in [0, count).
// rate in (0, 1).
inline void DropoutMultipliers(const Dropout& dropout, std::int64_t first, std::int64_t count, float* out) {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t skip = (first + done) % 4;
    const auto block = static_cast<std::uint64_t>(first + done) / 4;
    if (skip == 0 && count - done >= kPhiloxBatch) {
      DropoutMultiplierBatch(dropout, block, out + done);
      done += kPhiloxBatch;
      continue;
    }
    float batch[kPhiloxBatch];
    DropoutMultiplierBatch(dropout, block, batch);
    const std::int64_t taken = std::min<std::int64_t>(kPhiloxBatch - skip, count - done);
    std::copy(batch + skip, batch + skip + taken, out + done);
    done += taken;
  }
}

}  // namespace headsweep::cpu
