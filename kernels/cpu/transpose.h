// Transposition of small blocks in registers.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/cpu/small_product.h"

namespace headsweep::cpu {

namespace internal {

typedef std::int32_t LaneIndex __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

// Lane i of the result: first half interleaves the low halves of a and b, second half the high ones.
template <std::size_t... kLane>
constexpr std::pair<LaneIndex, LaneIndex> InterleaveIndices(std::index_sequence<kLane...>) {
  return {LaneIndex{static_cast<std::int32_t>(kLane / 2 + (kLane % 2) * kLanes)...},
          LaneIndex{static_cast<std::int32_t>(kLanes / 2 + kLane / 2 + (kLane % 2) * kLanes)...}};
}

// kLanes rows in registers become kLanes columns. Interleaving row i with row i + kLanes/2, log2(kLanes)
// times over, is a transposition (a perfect shuffle of the index bits).
inline void TransposeRegisters(Vector (&rows)[kLanes]) {
  const auto [low, high] = InterleaveIndices(std::make_index_sequence<kLanes>());
#pragma GCC unroll 4
  for (int step = 1; step < kLanes; step *= 2) {
    Vector next[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = __builtin_shuffle(rows[i], rows[i + kLanes / 2], low);
      next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + kLanes / 2], high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

}  // namespace internal

// to (columns, padded rows) = factor * from (rows, columns) transposed; row strides `to_stride` and
// `from_stride`. Rows of `to` are written up to a multiple of kLanes, with zeros beyond `rows`. to and
// to_stride aligned to kLanes floats.
inline void TransposeBlock(const float* from, std::int64_t from_stride, std::int64_t rows,
                           std::int64_t columns, float factor, float* to, std::int64_t to_stride) {
  typedef float Unaligned __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));
  for (std::int64_t r = 0; r < rows; r += kLanes) {
    for (std::int64_t c = 0; c < columns; c += kLanes) {
      const std::int64_t height = rows - r < kLanes ? rows - r : kLanes;
      const std::int64_t width = columns - c < kLanes ? columns - c : kLanes;
      const float* block = from + r * from_stride + c;
      internal::Vector tile[kLanes];
      if (height == kLanes && width == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i)
          tile[i] = factor * *reinterpret_cast<const Unaligned*>(block + i * from_stride);
      } else {  // the edge: nothing beyond it is read
        alignas(64) float edge[kLanes * kLanes] = {};
        for (std::int64_t i = 0; i < height; ++i) {
          std::memcpy(edge + i * kLanes, block + i * from_stride,
                      static_cast<std::size_t>(width) * sizeof(float));
        }
        for (int i = 0; i < kLanes; ++i)
          tile[i] = factor * *reinterpret_cast<const internal::Vector*>(edge + i * kLanes);
      }
      internal::TransposeRegisters(tile);
      if (width == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i)
          *reinterpret_cast<internal::Vector*>(to + (c + i) * to_stride + r) = tile[i];
      } else {
        for (std::int64_t i = 0; i < width; ++i)
          *reinterpret_cast<internal::Vector*>(to + (c + i) * to_stride + r) = tile[i];
      }
    }
  }
}

}  // namespace headsweep::cpu
