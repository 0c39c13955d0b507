// sums[o][c] += over rows r of term(r, c)[o]: gradients of biases and of layer norm's gamma and beta. Two
// launches: partial sums of pieces of rows, then the pieces in order. A fixed tree: pieces depend on R alone.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

// Rows of one piece: at least 32, and at most 128 pieces.
inline std::int64_t ColumnSumRows(std::int64_t R) {
  return max(std::int64_t{32}, DivideUp<std::int64_t>(R, 128));
}

namespace internal {

constexpr int kColumnGroups = 8;  // threads that share a column of a piece

// Term: a device function object, void operator()(std::int64_t r, int c, float (&out)[kOutputs][W]) of W
// columns from c on. Block: 32 columns (times W) by kColumnGroups groups of rows.
template <int kOutputs, int W, class Term>
__global__ void __launch_bounds__(kWarpThreads* kColumnGroups)
    ColumnPiecesKernel(Term term, std::int64_t R, std::int64_t piece_rows, int C, float* partial) {
  HS_SHARED(float, of_group, [kColumnGroups][kOutputs][kWarpThreads * W]);
  const int lane = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
  const int c = (static_cast<int>(blockIdx.x) * kWarpThreads + lane) * W;
  const std::int64_t begin = blockIdx.y * piece_rows, end = min(R, begin + piece_rows);
  float sum[kOutputs][W] = {};
  if (c < C) {
    for (std::int64_t r = begin + group; r < end; r += kColumnGroups) {
      float terms[kOutputs][W];
      term(r, c, terms);
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
        for (int j = 0; j < W; ++j) sum[o][j] += terms[o][j];
      }
    }
  }
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
    for (int j = 0; j < W; ++j) of_group[group][o][lane * W + j] = sum[o][j];
  }
  __syncthreads();
  // Now a thread is one (output, column) of the piece.
  for (int i = group * kWarpThreads + lane; i < kOutputs * kWarpThreads * W;
       i += kWarpThreads * kColumnGroups) {
    const int o = i / (kWarpThreads * W), column = i % (kWarpThreads * W);
    const int at = static_cast<int>(blockIdx.x) * kWarpThreads * W + column;
    if (at >= C) continue;
    float total = 0;
#pragma unroll
    for (int g = 0; g < kColumnGroups; ++g) total += of_group[g][o][column];
    partial[(static_cast<std::int64_t>(blockIdx.y) * kOutputs + o) * C + at] = total;
  }
}

template <int kOutputs>
struct ColumnTargets {
  float* sums[kOutputs];
};

template <int kOutputs>
__global__ void ColumnTotalsKernel(const float* partial, int pieces, int C, ColumnTargets<kOutputs> targets) {
  const std::int64_t i = GlobalThread();
  if (i >= static_cast<std::int64_t>(kOutputs) * C) return;
  float total = 0;
#pragma unroll 8  // loads of several pieces are on the way at once
  for (int piece = 0; piece < pieces; ++piece)
    total += partial[static_cast<std::int64_t>(piece) * kOutputs * C + i];
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {  // constant indices keep the pointers in registers
    if (i / C == o) targets.sums[o][i % C] += total;
  }
}

}  // namespace internal

// R, C > 0; C a multiple of W. partial comes from scratch.
template <int kOutputs, int W, class Term>
void AddColumnSums(const Term& term, std::int64_t R, int C, float* const (&sums)[kOutputs],
                   DeviceScratch& scratch, cudaStream_t stream) {
  const std::int64_t rows = ColumnSumRows(R), pieces = DivideUp(R, rows);
  float* const partial = scratch.Take<float>(pieces * kOutputs * C);
  const dim3 grid(static_cast<unsigned>(DivideUp(C, kWarpThreads * W)), static_cast<unsigned>(pieces));
  HS_LAUNCH((internal::ColumnPiecesKernel<kOutputs, W, Term>), grid,
            dim3(kWarpThreads, internal::kColumnGroups), 0, stream, term, R, rows, C, partial);
  internal::ColumnTargets<kOutputs> targets;
  for (int o = 0; o < kOutputs; ++o) targets.sums[o] = sums[o];
  HS_LAUNCH((internal::ColumnTotalsKernel<kOutputs>), BlocksFor(static_cast<std::int64_t>(kOutputs) * C),
            kBlockThreads, 0, stream, partial, static_cast<int>(pieces), C, targets);
}

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
