// Attention, backward, without atomics: two kernels, each of which draws the probabilities again from lse, so
// that each gradient has one owner that sums in one order (the price: logits and dP are computed twice, 7
// products of tiles, not 5). With P = softmax, m = dropout multiplier, g = gate, dP = dout v^T:
//   delta = sum_d dout out (by a kernel of its own, attention_launch.cu);  dS = P (m dP - delta);
//   dq = g scale dS k;  dk = g scale dS^T q;  dv = g (P m)^T dout
//
// Dao 2023, algorithm 2, with rows as owners. Rows and keys that see nobody get exact zeros. So do dq and dk
// of an example of one key, over which softmax is a constant: they would be differences of roundings.
//
// In both, columns beyond `out` of AttentionTile() are another block's: D > 256, and D > 128 for dk and dv.
#pragma once

#include "kernels/cuda/attention_kernel.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

// Owns queries: dq.
template <class E, int kHead>
__global__ void __launch_bounds__(16 * kMaxWarps, kMinimumBlocks<AttentionPass::kQueryGradient, E, kHead>)
    AttentionQueryGradientKernel(const AttentionBackwardArguments<E> a) {
  using Math = TileMath<E>;
  constexpr TileShape kTile = kTileShape<AttentionPass::kQueryGradient, E, kHead>;
  constexpr int kStream = kTile.stream, kOut = kTile.out, kRows = Math::kRows;
  constexpr int kPerRow = Fragment<E, kStream>::kPerRow, kStageValues = 2 * kStream * kHead;
  HS_DYNAMIC_SHARED(E, own_q);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int own_rows = static_cast<int>(blockDim.x) / 32 * kWarpRows;
  E* const own_dout = own_q + own_rows * kHead;
  E* const streamed = own_dout + own_rows * kHead;
  float* const staging =
      reinterpret_cast<float*>(streamed + a.stages * kStageValues) + warp * kStagingFloats<E, kStream>;

  const BlockPlace place = FindPlace(a, a.causal);
  const int first = place.tile * own_rows, first_of_warp = first + warp * kWarpRows;
  const int column0 = place.chunk * kOut;
  const int keys = KeyCount(a, place.b);
  const int last = first + own_rows < a.T ? first + own_rows - 1 : a.T - 1;
  const std::int64_t dense = static_cast<std::int64_t>(a.H) * a.D;
  GlobalRows<const E> k = HeadRows(a.k, a.kv_stride, place, a.S, a.D, 0, a.access);
  GlobalRows<const E> v = HeadRows(a.v, a.kv_stride, place, a.S, a.D, 0, a.access);
  k.rows = v.rows = VisibleKeys(a, keys, last);
  const std::int64_t queries = DropoutRow(a, place);

  const int steps = (a.D + 15) / 16;
  int limit[kRows];
  float lse[kRows], delta[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int t = first_of_warp + Math::Row(lane, r);
    const bool exists = t < a.T;
    limit[r] = exists ? VisibleKeys(a, keys, t) : keys;
    lse[r] = exists ? a.lse[place.head * a.T + t] * a.to_log2 : 0.0f;
    delta[r] = exists ? a.delta[place.head * a.T + t] : 0.0f;
  }
  const int last_of_warp = first_of_warp + kWarpRows - 1;
  const int warp_limit = VisibleKeys(a, keys, last_of_warp < a.T ? last_of_warp : a.T - 1);

  Fragment<E, kOut> dq;
  Clear<E, kOut>(dq);
  typename Math::template Operand<kHead, false> query, dout;
  query.Load(own_q + warp * kWarpRows * kHead, lane);
  dout.Load(own_dout + warp * kWarpRows * kHead, lane);

  LoadTile<E, kHead>(own_q, own_rows, HeadRows(a.q, a.q_stride, place, a.T, a.D, 0, a.access), first);
  LoadTile<E, kHead>(own_dout, own_rows, HeadRows(a.dout, dense, place, a.T, a.D, 0, a.access), first);
  CopyAsyncCommit();
  StreamTiles(
      TileCount(k.rows, kStream), a.stages,
      [&](int j, int stage) {
        E* const tile = streamed + stage * kStageValues;
        LoadTile<E, kHead>(tile, kStream, k, j * kStream);
        LoadTile<E, kHead>(tile + kStream * kHead, kStream, v, j * kStream);
      },
      [&](int j, int stage) {
        const E* const tile = streamed + stage * kStageValues;
        const int key0 = j * kStream;
        if (key0 >= warp_limit) return;
        Fragment<E, kStream> p, ds;
        Math::Logits(query, tile, steps, lane, p);
        Math::Logits(dout, tile + kStream * kHead, steps, lane, ds);
        const std::uint32_t kept =
            KeptProbabilities<E, kStream, /*kKeysAcross=*/true>(a, queries, first_of_warp, key0, lane);
        const bool masked = key0 + kStream > limit[0];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int i = 0; i < kPerRow; ++i) {
            const float multiplier = (kept >> (r * kPerRow + i) & 1u) != 0 ? a.kept_scale : 0.0f;
            const float probability = Exp2(p.At(r, i) * a.scale_log2 - lse[r]);
            const bool hidden =
                HS_MUTANT_VALUE(DROPPED_MASK, false, masked && key0 + Math::Column(lane, i) >= limit[r]);
            ds.At(r, i) = hidden ? 0.0f : probability * (multiplier * ds.At(r, i) - delta[r]);
          }
        }
        Math::template AddProduct<kHead>(ds, tile, column0, lane, staging, dq);
      });
  CopyAsyncWait<0>();
  __syncthreads();

  float factor[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    factor[r] = keys == 1 ? 0.0f : a.gates == nullptr ? a.scale : a.scale * a.gates[place.h];
  }
  E* const result = own_q + warp * kWarpRows * kHead;
  Math::Round(dq, factor, lane, result);
  __syncwarp();
  StoreWarpRows<E, kOut>(result, HeadRows(a.dq, a.q_stride, place, a.T, a.D, column0, a.access),
                         first_of_warp, lane);
}

// Owns keys and values: dk, dv. Tiles are transposed: own rows are keys, columns queries.
template <class E, int kHead>
__global__ void __launch_bounds__(16 * kMaxWarps, kMinimumBlocks<AttentionPass::kKeyGradient, E, kHead>)
    AttentionKeyGradientKernel(const AttentionBackwardArguments<E> a) {
  using Math = TileMath<E>;
  constexpr TileShape kTile = kTileShape<AttentionPass::kKeyGradient, E, kHead>;
  constexpr int kStream = kTile.stream, kOut = kTile.out, kRows = Math::kRows;
  constexpr int kPerRow = Fragment<E, kStream>::kPerRow, kStageValues = 2 * kStream * kHead;
  HS_DYNAMIC_SHARED(E, own_k);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int own_rows = static_cast<int>(blockDim.x) / 32 * kWarpRows;
  E* const own_v = own_k + own_rows * kHead;
  E* const streamed = own_v + own_rows * kHead;
  float* const row_terms = reinterpret_cast<float*>(streamed + a.stages * kStageValues);  // stage: lse, delta
  float* const staging = row_terms + a.stages * 2 * kStream + warp * kStagingFloats<E, kStream>;

  const BlockPlace place = FindPlace(a, false);
  const int first = place.tile * own_rows, first_of_warp = first + warp * kWarpRows;
  const int column0 = place.chunk * kOut;
  const int keys = KeyCount(a, place.b);
  const std::int64_t dense = static_cast<std::int64_t>(a.H) * a.D;
  const GlobalRows<const E> q = HeadRows(a.q, a.q_stride, place, a.T, a.D, 0, a.access);
  const GlobalRows<const E> dout_rows = HeadRows(a.dout, dense, place, a.T, a.D, 0, a.access);
  const float* const lse = a.lse + place.head * a.T;
  const float* const delta = a.delta + place.head * a.T;
  const std::int64_t queries = DropoutRow(a, place);

  const int steps = (a.D + 15) / 16;
  int first_query[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) first_query[r] = FirstQuery(a, keys, first_of_warp + Math::Row(lane, r));
  const int block_query = FirstQuery(a, keys, first), warp_query = FirstQuery(a, keys, first_of_warp);
  const int skipped = block_query < a.T ? block_query / kStream : 0;
  const int count = block_query < a.T ? TileCount(a.T, kStream) - skipped : 0;

  Fragment<E, kOut> dk, dv;
  Clear<E, kOut>(dk);
  Clear<E, kOut>(dv);
  typename Math::template Operand<kHead, false> key, value;
  key.Load(own_k + warp * kWarpRows * kHead, lane);
  value.Load(own_v + warp * kWarpRows * kHead, lane);

  LoadTile<E, kHead>(own_k, own_rows, HeadRows(a.k, a.kv_stride, place, a.S, a.D, 0, a.access), first);
  LoadTile<E, kHead>(own_v, own_rows, HeadRows(a.v, a.kv_stride, place, a.S, a.D, 0, a.access), first);
  CopyAsyncCommit();
  StreamTiles(
      count, a.stages,
      [&](int j, int stage) {
        E* const tile = streamed + stage * kStageValues;
        float* const terms = row_terms + stage * 2 * kStream;
        const int query0 = (skipped + j) * kStream;
        LoadTile<E, kHead>(tile, kStream, q, query0);
        LoadTile<E, kHead>(tile + kStream * kHead, kStream, dout_rows, query0);
        for (int i = static_cast<int>(threadIdx.x); i < kStream; i += static_cast<int>(blockDim.x)) {
          const bool exists = query0 + i < a.T;
          terms[i] = exists ? lse[query0 + i] * a.to_log2 : 0.0f;
          terms[kStream + i] = exists ? delta[query0 + i] : 0.0f;
        }
      },
      [&](int j, int stage) {
        const E* const tile = streamed + stage * kStageValues;
        const float* const terms = row_terms + stage * 2 * kStream;
        const int query0 = (skipped + j) * kStream;
        if (warp_query >= query0 + kStream) return;
        Fragment<E, kStream> p, ds;
        Math::Logits(key, tile, steps, lane, p);
        Math::Logits(value, tile + kStream * kHead, steps, lane, ds);
        const std::uint32_t kept =
            KeptProbabilities<E, kStream, /*kKeysAcross=*/false>(a, queries, first_of_warp, query0, lane);
        const bool masked = query0 + kStream > a.T || query0 < first_query[kRows - 1];
#pragma unroll
        for (int i = 0; i < kPerRow; ++i) {
          const int column = Math::Column(lane, i);
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const bool keep = (kept >> (r * kPerRow + i) & 1u) != 0;
            const float probability = Exp2(p.At(r, i) * a.scale_log2 - terms[column]);
            const bool hidden = HS_MUTANT_VALUE(
                DROPPED_MASK, false, masked && (query0 + column < first_query[r] || query0 + column >= a.T));
            ds.At(r, i) =
                hidden ? 0.0f
                       : probability * ((keep ? a.kept_scale : 0.0f) * ds.At(r, i) - terms[kStream + column]);
            p.At(r, i) = hidden || !keep ? 0.0f : probability;
          }
        }
        Math::template AddProduct<kHead>(p, tile + kStream * kHead, column0, lane, staging, dv);
        Math::template AddProduct<kHead>(ds, tile, column0, lane, staging, dk);
      });
  CopyAsyncWait<0>();
  __syncthreads();

  const float gate = a.gates == nullptr ? 1.0f : a.gates[place.h];
  float key_factor[kRows], value_factor[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    key_factor[r] = keys == 1 ? 0.0f : gate * a.scale;
    value_factor[r] = gate * a.kept_scale;
  }
  E* const dk_rows = own_k + warp * kWarpRows * kHead;
  E* const dv_rows = own_v + warp * kWarpRows * kHead;
  Math::Round(dk, key_factor, lane, dk_rows);
  Math::Round(dv, value_factor, lane, dv_rows);
  __syncwarp();
  StoreWarpRows<E, kOut>(dk_rows, HeadRows(a.dk, a.kv_stride, place, a.S, a.D, column0, a.access),
                         first_of_warp, lane);
  StoreWarpRows<E, kOut>(dv_rows, HeadRows(a.dv, a.kv_stride, place, a.S, a.D, column0, a.access),
                         first_of_warp, lane);
}

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
