// bfloat16 as the upper half of a float32: rounding to nearest, ties to even; NaN stays NaN. Host code.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace headsweep {

inline std::uint16_t ToBfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value))
    return static_cast<std::uint16_t>((bits >> 16) | 0x40);  // quiet, whatever the lower half was
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float FromBfloat16(std::uint16_t value) { return std::bit_cast<float>(std::uint32_t{value} << 16); }

}  // namespace headsweep
