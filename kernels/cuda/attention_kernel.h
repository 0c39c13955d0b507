// What the attention kernels share: their arguments, who works on what, who sees whom, the stream of tiles,
// dropout.
#pragma once

#include <climits>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/attention_math.h"
#include "kernels/cuda/heuristics.h"
#include "kernels/cuda/mutants.h"
#include "kernels/philox.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

// What every launch knows. E: element. Shapes, strides and layouts: AttentionShape in kernels/backend.h.
template <class E>
struct AttentionArguments {
  const E *q = nullptr, *k = nullptr, *v = nullptr;
  const float* gates = nullptr;  // (H) or nullptr

  int T = 0, S = 0, H = 0, D = 0;
  std::int64_t q_stride = 0, kv_stride = 0;
  bool causal = false;
  const std::int32_t* key_lengths = nullptr;
  float scale = 1;
  // Exponents of two are to_log2 * logits, scale_log2 * q.k: log2(e) times them. But over one key alone (S =
  // 1) softmax is 1 whatever the logit, and so it is to the last bit with a factor that leaves next to
  // nothing, by a power of two.
  float to_log2 = 0, scale_log2 = 0;

  bool dropout = false;
  std::uint32_t threshold = 0;  // DropoutThreshold(rate)
  float kept_scale = 1;         // DropoutScale(rate), 1 without dropout
  std::uint64_t seed = 0, site = 0;
  std::int64_t first_example = 0;
  const PassNumbers* numbers = nullptr;  // Dropout's

  int access = 0;                         // bytes: AccessBytes() of every tensor of the launch
  int stages = 0, tiles = 0, chunks = 0;  // AttentionPlan
};

template <class E>
struct AttentionForwardArguments : AttentionArguments<E> {
  E *out = nullptr, *gated = nullptr;  // gated: nullptr exactly when gates is
  float* lse = nullptr;
};

template <class E>
struct AttentionBackwardArguments : AttentionArguments<E> {
  const E *out = nullptr, *dout = nullptr;
  const float* lse = nullptr;
  E *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float* delta = nullptr;  // written by the first kernel, read by the others
};

// Heuristics as constants of a kernel.
template <AttentionPass kPass, class E, int kHead>
inline constexpr TileShape kTileShape = AttentionTile(kPass, static_cast<int>(sizeof(E)), kHead);
template <AttentionPass kPass, class E, int kHead>
inline constexpr int kMinimumBlocks = MinimumBlocks(kPass, static_cast<int>(sizeof(E)), kHead);
template <class E, int kStream>
inline constexpr int kStagingFloats = StagingFloats(static_cast<int>(sizeof(E)), kStream);

// What a block works on: chunks of one tile lie side by side in the grid, then tiles, then heads, so that
// blocks that read the same rows run at the same time.
struct BlockPlace {
  std::int64_t head;  // b * H + h
  int b, h, tile, chunk;
};

// backwards: the last tile of a head comes first, where a causal mask gives it the most work.
template <class E>
__device__ __forceinline__ BlockPlace FindPlace(const AttentionArguments<E>& a, bool backwards) {
  unsigned rest = blockIdx.x;
  BlockPlace place;
  place.chunk = static_cast<int>(rest % static_cast<unsigned>(a.chunks));
  rest /= static_cast<unsigned>(a.chunks);
  const int tile = static_cast<int>(rest % static_cast<unsigned>(a.tiles));
  place.tile = backwards ? a.tiles - 1 - tile : tile;
  rest /= static_cast<unsigned>(a.tiles);
  place.head = rest;
  place.b = static_cast<int>(rest / static_cast<unsigned>(a.H));
  place.h = static_cast<int>(rest % static_cast<unsigned>(a.H));
  return place;
}

// Rows of one head of q (rows = T), k or v (rows = S), from a column on.
template <class E>
__device__ __forceinline__ GlobalRows<E> HeadRows(E* base, std::int64_t stride, const BlockPlace& place,
                                                  int rows, int D, int column, int access) {
  return {base + static_cast<std::int64_t>(place.b) * rows * stride + static_cast<std::int64_t>(place.h) * D +
              column,
          stride, rows, D - column, access};
}

// Keys of example b that exist.
template <class E>
__device__ __forceinline__ int KeyCount(const AttentionArguments<E>& a, int b) {
  if (HS_MUTANT_VALUE(DROPPED_LENGTH_MASK, true, a.key_lengths == nullptr)) return a.S;
  const int length = a.key_lengths[b];
  return length < 0 ? 0 : length < a.S ? length : a.S;
}

// Query t sees keys [0, result).
template <class E>
__device__ __forceinline__ int VisibleKeys(const AttentionArguments<E>& a, int keys, int t) {
  const int before = a.causal ? a.S - (a.T - 1 - t) : keys;
  return before < 0 ? 0 : before < keys ? before : keys;
}

// Key s is seen by queries [result, T).
template <class E>
__device__ __forceinline__ int FirstQuery(const AttentionArguments<E>& a, int keys, int s) {
  if (s >= keys) return INT_MAX;
  return a.causal && s > a.S - a.T ? s - (a.S - a.T) : 0;
}

// Tiles 0 .. count - 1, one after another: load(j, stage) asks for one by LoadTile, work(j, stage) uses it.
// With two stages, tile j + 1 travels while j is worked on, and there is one barrier a tile: whoever passes
// it knows that tile j has arrived and that nobody works on j - 1 any more, whose place tile j + 1 takes.
template <class Load, class Work>
__device__ __forceinline__ void StreamTiles(int count, int stages, const Load& load, const Work& work) {
  const auto arrive = [] {
    HS_MUTANT(MISSING_COPY_WAIT, , CopyAsyncWait<0>());
    HS_MUTANT(MISSING_BARRIER, , __syncthreads());
  };
#pragma unroll 1
  for (int j = 1 - stages; j < count; ++j) {
    if (j + stages >= 2) arrive();
    const int next = j + stages - 1;
    if (next < count) {
      load(next, stages == 2 ? next % 2 : 0);
      CopyAsyncCommit();
    }
    if (j < 0) continue;
    if (stages == 1) arrive();
    work(j, stages == 2 ? j % 2 : 0);
  }
}

__device__ __forceinline__ int TileCount(int rows, int tile) {
  return HS_MUTANT_VALUE(TILE_EDGE, rows / tile, (rows + tile - 1) / tile);
}

// Row (b, h, t = 0) of the probabilities, as AttentionShape counts dropout's positions.
template <class E>
__device__ __forceinline__ std::int64_t DropoutRow(const AttentionArguments<E>& a, const BlockPlace& place) {
  const std::int64_t moved = a.dropout && a.numbers != nullptr ? a.numbers->first_example : 0;
  return ((a.first_example + moved + place.b) * a.H + place.h) * a.T;
}

// Which probabilities of a warp's tile dropout keeps: bit r * kPerRow + j of the result is At(r, j)'s. All
// bits without dropout. queries: DropoutRow(). kKeysAcross: columns are keys and own
// rows queries; otherwise the reverse. own0, streamed0: index of the warp's first own row, and of the tile's
// first.
//
// One Philox block serves four neighbouring keys, which up to four lanes hold. Where S is a multiple of four,
// each of four such lanes draws a quarter of the blocks and they exchange the outcomes, four bits a block.
// Otherwise blocks begin anywhere in a row, and each lane draws for itself.
template <class E, int kStream, bool kKeysAcross>
__device__ __forceinline__ std::uint32_t KeptProbabilities(const AttentionArguments<E>& a,
                                                           std::int64_t queries, int own0, int streamed0,
                                                           int lane) {
  using Math = TileMath<E>;
  constexpr int kPerRow = Fragment<E, kStream>::kPerRow;
  constexpr bool kHalf = sizeof(E) == 2;
  static_assert(Math::kRows * kPerRow <= 32, "one bit a probability");
  if (!a.dropout) return ~0u;
  const std::uint64_t site = a.numbers == nullptr ? a.site : a.site + a.numbers->site;
  std::uint32_t kept = 0;
  if (a.S % 4 != 0) {
    std::uint64_t drawn = ~std::uint64_t{0};
    PhiloxBlock block{};
#pragma unroll 1
    for (int i = 0; i < Math::kRows * kPerRow; ++i) {
      const int own = own0 + Math::Row(lane, i / kPerRow),
                streamed = streamed0 + Math::Column(lane, i % kPerRow);
      const std::int64_t t = kKeysAcross ? own : streamed, s = kKeysAcross ? streamed : own;
      const auto position = static_cast<std::uint64_t>((queries + t) * a.S + s);
      if (position / 4 != drawn) {
        drawn = position / 4;
        block = RandomBlock(a.seed, site, drawn);
      }
      const unsigned word = position % 4;
      const std::uint32_t bits = word < 2 ? (word == 0 ? block.word[0] : block.word[1])
                                          : (word == 2 ? block.word[2] : block.word[3]);
      const std::uint32_t keeps = bits >= a.threshold ? 1 : 0;
      kept |= keeps << i;
    }
    return kept;
  }
  constexpr int kDistance = kKeysAcross ? 1 : kHalf ? 4 : 8;  // between the four lanes
  const int mine = lane / kDistance % 4;
  std::uint32_t outcomes = 0;
#pragma unroll 1
  for (int n = 0; n < kStream / 8; ++n) {  // eight columns at a time
    int t, s;
    if (kKeysAcross) {
      t = own0 + (kHalf ? Math::Row(lane, mine / 2) : Math::Row(lane, mine));
      s = streamed0 + 8 * n + 4 * (kHalf ? mine % 2 : lane % 8 / 4);
    } else {
      t = streamed0 + 8 * n + (kHalf ? 2 * (lane % 4) + mine % 2 : lane % 8);
      s = own0 + (kHalf ? lane / 16 * 4 + mine / 2 * 8 : 4 * mine);
    }
    const auto position = static_cast<std::uint64_t>((queries + t) * a.S + s);
    const PhiloxBlock block = RandomBlock(a.seed, site, position / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t keeps = block.word[i] >= a.threshold ? 1 : 0;
      outcomes |= keeps << (4 * n + i);
    }
  }
  std::uint32_t drawn[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) drawn[i] = __shfl_sync(0xffffffffu, outcomes, lane + (i - mine) * kDistance);
#pragma unroll
  for (int r = 0; r < Math::kRows; ++r) {
#pragma unroll
    for (int j = 0; j < kPerRow; ++j) {
      std::uint32_t from;
      int bit;
      if (!kHalf) {
        from = drawn[r];
        bit = 4 * j + (kKeysAcross ? lane % 4 : lane / 8);
      } else if (kKeysAcross) {
        from = lane % 4 < 2 ? drawn[2 * r % 4] : drawn[(2 * r + 1) % 4];
        bit = 4 * (j / 2) + 2 * (lane % 2) + j % 2;
      } else {
        from = drawn[(2 * r + j % 2) % 4];
        bit = 4 * (j / 2) + lane / 4 % 4;
      }
      kept |= (from >> bit & 1u) << (r * kPerRow + j);
    }
  }
  return kept;
}

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
