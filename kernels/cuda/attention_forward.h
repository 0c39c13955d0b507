// Attention, forward: FlashAttention-2's loop (Dao 2023, algorithm 1). A block owns 16 queries a warp of one
// head, keeps O in float32 registers, and streams tiles of keys and values. Softmax is online (Milakov &
// Gimelshein 2018) and in powers of two. No T x S array anywhere, no scratch in device memory. Deterministic:
// each sum has one owner and one order.
//
// A row that sees no key gives O = 0 and lse = -infinity. Dropout multiplies probabilities, not their sum.
#pragma once

#include "kernels/cuda/attention_kernel.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

// The running softmax of a lane's rows.
template <int kRows>
struct OnlineSoftmax {
  float maximum[kRows];  // of powers' exponents, the same in all lanes of a row
  float sum[kRows];      // of powers, over this lane's columns
};

// Logits become powers exp(logit - maximum) in place; correction[r] is what earlier sums are to be multiplied
// by. limit[r]: keys that row r sees; key0: first key of the tile.
template <class E, int kStream, int kRows>
__device__ __forceinline__ void SoftmaxTile(Fragment<E, kStream>& p, float scale_log2,
                                            const int (&limit)[kRows], int key0, int lane,
                                            OnlineSoftmax<kRows>& state, float (&correction)[kRows]) {
  using Math = TileMath<E>;
  constexpr int kPerRow = Fragment<E, kStream>::kPerRow;
  if constexpr (sizeof(E) == 4) {  // the multiply-add below would spill at head size 16
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < kPerRow; ++j) p.At(r, j) *= scale_log2;
    }
    scale_log2 = 1;
  }
  if (key0 + kStream > limit[0]) {  // limits grow with the row
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < kPerRow; ++j) {
        const bool hidden = key0 + Math::Column(lane, j) >= limit[r];
        if (HS_MUTANT_VALUE(DROPPED_MASK, false, hidden)) p.At(r, j) = -INFINITY;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float largest = p.At(r, 0);
#pragma unroll
    for (int j = 1; j < kPerRow; ++j) largest = fmaxf(largest, p.At(r, j));
    largest = RowReduce<E>(largest, [](float x, float y) { return fmaxf(x, y); });
    largest = fmaxf(largest * scale_log2, state.maximum[r]);
    const float base = largest == -INFINITY ? 0.0f : largest;  // nothing seen yet: powers are 0, not NaN
    correction[r] = HS_MUTANT_VALUE(STALE_MAXIMUM, 1.0f, Exp2(state.maximum[r] - base));
    state.maximum[r] = largest;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kPerRow; ++j) {
      p.At(r, j) = Exp2(p.At(r, j) * scale_log2 - base);
      sum += p.At(r, j);
    }
    state.sum[r] = state.sum[r] * correction[r] + sum;
  }
}

template <class E, int kHead>
__global__ void __launch_bounds__(32 * kMaxWarps, kMinimumBlocks<AttentionPass::kForward, E, kHead>)
    AttentionForwardKernel(const AttentionForwardArguments<E> a) {
  using Math = TileMath<E>;
  constexpr TileShape kTile = kTileShape<AttentionPass::kForward, E, kHead>;
  constexpr int kStream = kTile.stream, kOut = kTile.out, kRows = Math::kRows;
  constexpr int kStageValues = kStream * (kHead + kOut);
  constexpr bool kKeep = sizeof(E) == 2 && kHead > 64 && kHead <= 128;
  HS_DYNAMIC_SHARED(E, own);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int own_rows = static_cast<int>(blockDim.x) / 32 * kWarpRows;
  E* const streamed = own + own_rows * kHead;
  E* const warp_rows = own + warp * kWarpRows * kHead;
  float* const staging =
      reinterpret_cast<float*>(streamed + a.stages * kStageValues) + warp * kStagingFloats<E, kStream>;

  const BlockPlace place = FindPlace(a, a.causal);
  const int first = place.tile * own_rows, first_of_warp = first + warp * kWarpRows;
  const int column0 = place.chunk * kOut;
  const int keys = KeyCount(a, place.b);
  const int last = first + own_rows < a.T ? first + own_rows - 1 : a.T - 1;
  const GlobalRows<const E> q = HeadRows(a.q, a.q_stride, place, a.T, a.D, 0, a.access);
  GlobalRows<const E> k = HeadRows(a.k, a.kv_stride, place, a.S, a.D, 0, a.access);
  GlobalRows<const E> v = HeadRows(a.v, a.kv_stride, place, a.S, a.D, column0, a.access);
  k.rows = v.rows = VisibleKeys(a, keys, last);  // what nobody sees reads as 0
  const std::int64_t queries = DropoutRow(a, place);

  const int steps = (a.D + 15) / 16;
  int limit[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int t = first_of_warp + Math::Row(lane, r);
    limit[r] = VisibleKeys(a, keys, t < a.T ? t : a.T - 1);
  }
  const int last_of_warp = first_of_warp + kWarpRows - 1;
  const int warp_limit = VisibleKeys(a, keys, last_of_warp < a.T ? last_of_warp : a.T - 1);

  OnlineSoftmax<kRows> state;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    state.maximum[r] = -INFINITY;
    state.sum[r] = 0;
  }
  Fragment<E, kOut> out;
  Clear<E, kOut>(out);
  typename Math::template Operand<kHead, kKeep> query;

  LoadTile<E, kHead>(own, own_rows, q, first);
  CopyAsyncCommit();
  StreamTiles(
      TileCount(k.rows, kStream), a.stages,
      [&](int j, int stage) {
        E* const tile = streamed + stage * kStageValues;
        LoadTile<E, kHead>(tile, kStream, k, j * kStream);
        LoadTile<E, kOut>(tile + kStream * kHead, kStream, v, j * kStream);
      },
      [&](int j, int stage) {
        const E* const tile = streamed + stage * kStageValues;
        const int key0 = j * kStream;
        if (j == 0) query.Load(warp_rows, lane);
        if (key0 >= warp_limit) return;  // causal: none of this warp's queries sees this tile
        Fragment<E, kStream> p;
        Math::Logits(query, tile, steps, lane, p);
        float correction[kRows];
        SoftmaxTile<E, kStream>(p, a.scale_log2, limit, key0, lane, state, correction);
        const std::uint32_t kept =
            KeptProbabilities<E, kStream, /*kKeysAcross=*/true>(a, queries, first_of_warp, key0, lane);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int i = 0; i < Fragment<E, kStream>::kPerRow; ++i) {
            if ((kept >> (r * Fragment<E, kStream>::kPerRow + i) & 1u) == 0) p.At(r, i) = 0;
          }
#pragma unroll
          for (int i = 0; i < Fragment<E, kOut>::kPerRow; ++i) out.At(r, i) *= correction[r];
        }
        Math::template AddProduct<kOut>(p, tile + kStream * kHead, 0, lane, staging, out);
      });
  CopyAsyncWait<0>();
  __syncthreads();  // own rows have been read: they take the results

  float factor[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float sum = RowReduce<E>(state.sum[r], [](float x, float y) { return x + y; });
    const int t = first_of_warp + Math::Row(lane, r);
    if (place.chunk == 0 && lane % Math::kRowLanes == 0 && t < a.T) {
      a.lse[place.head * a.T + t] = sum == 0 ? -INFINITY : state.maximum[r] / a.to_log2 + logf(sum);
    }
    factor[r] = sum == 0 ? 0.0f : a.kept_scale / sum;  // a NaN stays one
  }
  const std::int64_t dense = static_cast<std::int64_t>(a.H) * a.D;
  Math::Round(out, factor, lane, warp_rows);
  __syncwarp();
  StoreWarpRows<E, kOut>(warp_rows, HeadRows(a.out, dense, place, a.T, a.D, column0, a.access), first_of_warp,
                         lane);
  if (a.gates == nullptr) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) factor[r] *= a.gates[place.h];
  __syncwarp();
  Math::Round(out, factor, lane, warp_rows);
  __syncwarp();
  StoreWarpRows<E, kOut>(warp_rows, HeadRows(a.gated, dense, place, a.T, a.D, column0, a.access),
                         first_of_warp, lane);
}

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
