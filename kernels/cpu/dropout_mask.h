// Dropout multipliers of consecutive positions, many Philox blocks at a time. The formula is
// kernels/philox.h's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/philox.h"

namespace headsweep::cpu {

// out[i] = DropoutScale(rate) where position first + i is kept, else 0; i in [0, count). rate in (0, 1).
inline void DropoutMultipliers(const Dropout& dropout, std::int64_t first, std::int64_t count, float* out) {
  constexpr int kBlocks = 16;  // at a time: one AVX-512 register of each counter word
  const std::uint32_t threshold = DropoutThreshold(dropout.rate);
  const float scale = DropoutScale(dropout.rate);
  const std::uint64_t stream = dropout.site;
  std::int64_t done = 0;
  while (done < count) {
    const std::uint64_t block = static_cast<std::uint64_t>(first + done) / 4;
    std::uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
    for (int i = 0; i < kBlocks; ++i) {
      c0[i] = static_cast<std::uint32_t>(block + static_cast<std::uint64_t>(i));
      c1[i] = static_cast<std::uint32_t>((block + static_cast<std::uint64_t>(i)) >> 32);
      c2[i] = static_cast<std::uint32_t>(stream);
      c3[i] = static_cast<std::uint32_t>(stream >> 32);
    }
    std::uint32_t k0 = static_cast<std::uint32_t>(dropout.seed),
                  k1 = static_cast<std::uint32_t>(dropout.seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
#pragma omp simd
      for (int i = 0; i < kBlocks; ++i) {
        const std::uint64_t product0 = static_cast<std::uint64_t>(kPhiloxMultiplier0) * c0[i];
        const std::uint64_t product1 = static_cast<std::uint64_t>(kPhiloxMultiplier1) * c2[i];
        c0[i] = static_cast<std::uint32_t>(product1 >> 32) ^ c1[i] ^ k0;
        c1[i] = static_cast<std::uint32_t>(product1);
        c2[i] = static_cast<std::uint32_t>(product0 >> 32) ^ c3[i] ^ k1;
        c3[i] = static_cast<std::uint32_t>(product0);
      }
      k0 += kPhiloxWeyl0;
      k1 += kPhiloxWeyl1;
    }
    float multipliers[4 * kBlocks];
    for (int i = 0; i < kBlocks; ++i) {
      multipliers[4 * i + 0] = c0[i] >= threshold ? scale : 0.0f;
      multipliers[4 * i + 1] = c1[i] >= threshold ? scale : 0.0f;
      multipliers[4 * i + 2] = c2[i] >= threshold ? scale : 0.0f;
      multipliers[4 * i + 3] = c3[i] >= threshold ? scale : 0.0f;
    }
    const std::int64_t skip = (first + done) % 4;
    const std::int64_t taken = std::min<std::int64_t>(4 * kBlocks - skip, count - done);
    std::copy(multipliers + skip, multipliers + skip + taken, out + done);
    done += taken;
  }
}

}  // namespace headsweep::cpu
