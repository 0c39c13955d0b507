// Philox4x32-10: counter-based random numbers. A number is a pure function of (seed, stream, position):
// nothing is stored, any thread, restart or device draws the same one. Used for dropout masks, initialisation
// and random pruning orders. Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", and
// the Random123 known-answer vectors. C++17-clean: also compiled by nvcc. Thread-safe: pure functions.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define HEADSWEEP_HOST_DEVICE __host__ __device__
#else
#define HEADSWEEP_HOST_DEVICE
#endif

namespace headsweep {

struct PhiloxBlock {
  std::uint32_t word[4];
};

inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9,
                               kPhiloxWeyl1 = 0xBB67AE85;  // golden ratio, sqrt(3) - 1
inline constexpr int kPhiloxRounds = 10;

// The generator itself: 128-bit counter and 64-bit key (word 0 = lowest bits) to 128 random bits.
HEADSWEEP_HOST_DEVICE inline PhiloxBlock Philox4x32(std::uint64_t counter_low, std::uint64_t counter_high,
                                                    std::uint64_t key) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter_low),
                c1 = static_cast<std::uint32_t>(counter_low >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(counter_high),
                c3 = static_cast<std::uint32_t>(counter_high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = static_cast<std::uint64_t>(kPhiloxMultiplier0) * c0;
    const std::uint64_t product1 = static_cast<std::uint64_t>(kPhiloxMultiplier1) * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(product0);
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

// The block that holds positions 4*block .. 4*block + 3 of a stream. Everything below draws through this.
HEADSWEEP_HOST_DEVICE inline PhiloxBlock RandomBlock(std::uint64_t seed, std::uint64_t stream,
                                                     std::uint64_t block) {
  return Philox4x32(block, stream, seed);
}

// 32 random bits at a position of a stream.
HEADSWEEP_HOST_DEVICE inline std::uint32_t RandomBits(std::uint64_t seed, std::uint64_t stream,
                                                      std::uint64_t position) {
  return RandomBlock(seed, stream, position / 4).word[position % 4];
}

// Uniform in [0, 1), multiples of 2^-24.
HEADSWEEP_HOST_DEVICE inline float RandomUniform(std::uint64_t seed, std::uint64_t stream,
                                                 std::uint64_t position) {
  return static_cast<float>(RandomBits(seed, stream, position) >> 8) * 0x1p-24f;
}

// Standard normal (Box & Muller 1958): positions 2i and 2i + 1 are the cosine and sine of one pair of words.
HEADSWEEP_HOST_DEVICE inline double RandomNormal(std::uint64_t seed, std::uint64_t stream,
                                                 std::uint64_t position) {
  const PhiloxBlock block = RandomBlock(seed, stream, position / 4);
  const unsigned pair = position % 4 < 2 ? 0 : 2;
  const double radius = std::sqrt(-2 * std::log((block.word[pair] + 1.0) * 0x1p-32));
  const double angle = block.word[pair + 1] * (2 * 3.14159265358979323846 * 0x1p-32);
  return radius * (position % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// Dropout: a value is kept when its 32 bits are >= DropoutThreshold(rate), which happens with probability 1 -
// rate (to 2^-32), and is multiplied by DropoutScale(rate). rate in [0, 1).
HEADSWEEP_HOST_DEVICE inline std::uint32_t DropoutThreshold(float rate) {
  return static_cast<std::uint32_t>(static_cast<double>(rate) * 4294967296.0);
}
HEADSWEEP_HOST_DEVICE inline float DropoutScale(float rate) { return 1.0f / (1.0f - rate); }

}  // namespace headsweep
