// Token and position embeddings.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mutants.h"
#include "kernels/cuda/reduce.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

template <class E, int W>
__global__ void ForwardKernel(const std::int32_t* tokens, const E* token_table, const E* position_table,
                              E* out, std::int64_t R, int T, int C, float scale) {
  const int units = C / W;  // of W values, a row
  const std::int64_t i = GlobalThread();
  if (i >= R * units) return;
  const std::int64_t r = i / units;
  const int c = static_cast<int>(i % units) * W;
  float values[W];
  LoadFloats(token_table + static_cast<std::int64_t>(tokens[r]) * C + c, values);
#pragma unroll
  for (int j = 0; j < W; ++j) values[j] *= scale;
  if (position_table != nullptr) {
    float position[W];
    LoadFloats(position_table + r % T * C + c, position);
#pragma unroll
    for (int j = 0; j < W; ++j) values[j] += position[j];
  }
  StoreFloats(out + r * C + c, values);
}

// A block owns kTableRows rows and kTableColumns columns of the table, a thread one of the columns. It walks
// all tokens, kTokens a thread at a time, keeps those of its rows in a list in shared memory, in order, and
// adds their gradients up in shared memory: no atomics, and each value of the table is one sum over r in
// rising order. Rows that no token names are not touched.
constexpr int kTableRows = 64, kTableColumns = 128, kTokens = 8;

// Where a token of the list stands: its row of the block's part of the table, and of dout, from the list's
// first.
struct FoundToken {
  std::uint16_t row, r;
};

template <class E>
__global__ void __launch_bounds__(kTableColumns)
    TokenTableKernel(const std::int32_t* tokens, const E* dout, float* d_token_table, std::int64_t R, int C,
                     int V, float scale) {
  constexpr int kStep = kTableColumns * kTokens;
  HS_SHARED(float, sums, [kTableRows][kTableColumns]);
  HS_SHARED(FoundToken, list, [kStep]);
  HS_SHARED(int, found_by_warp, [kTableColumns / kWarpThreads]);
  HS_SHARED(int, touched, [kTableRows]);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpThreads,
            warp = thread / kWarpThreads;
  const int first_row = static_cast<int>(blockIdx.x) * kTableRows, rows = min(kTableRows, V - first_row);
  const int c = static_cast<int>(blockIdx.y) * kTableColumns + thread;
  for (int row = 0; row < rows; ++row) sums[row][thread] = 0;
  if (thread < kTableRows) touched[thread] = 0;

  for (std::int64_t begin = 0; begin < R; begin += kStep) {
    int row[kTokens], mine = 0;
#pragma unroll
    for (int j = 0; j < kTokens; ++j) {
      const std::int64_t r = begin + thread * kTokens + j;
      row[j] = r < R ? tokens[r] - first_row : -1;
      if (row[j] >= rows) row[j] = -1;
      if (row[j] >= 0) ++mine;
    }
    int before = mine;  // found by this lane and those before it; then, by all threads before
#pragma unroll
    for (int lanes = 1; lanes < kWarpThreads; lanes *= 2) {
      const int of_others = __shfl_up_sync(kAllLanes, before, static_cast<unsigned>(lanes));
      if (lane >= lanes) before += of_others;
    }
    if (lane == kWarpThreads - 1) found_by_warp[warp] = before;
    before -= mine;
    __syncthreads();  // also: the last list has been worked off
    int found = 0;
    for (int w = 0; w < kTableColumns / kWarpThreads; ++w) {
      if (w < warp) before += found_by_warp[w];
      found += found_by_warp[w];
    }
#pragma unroll
    for (int j = 0; j < kTokens; ++j) {
      if (row[j] < 0) continue;
      list[before++] = {static_cast<std::uint16_t>(row[j]), static_cast<std::uint16_t>(thread * kTokens + j)};
      touched[row[j]] = 1;
    }
    HS_MUTANT(MISSING_BARRIER, , __syncthreads());
    if (c < C) {
#pragma unroll 4
      for (int i = 0; i < found; ++i)
        sums[list[i].row][thread] += scale * ToFloat(dout[(begin + list[i].r) * C + c]);
    }
    __syncthreads();
  }
  if (c >= C) return;
  for (int row = 0; row < rows; ++row) {
    if (touched[row] != 0)
      d_token_table[static_cast<std::int64_t>(first_row + row) * C + c] += sums[row][thread];
  }
}

template <class E, int W>
__global__ void PositionTableKernel(const E* dout, float* d_position_table, int B, int T, int C) {
  const std::int64_t i = GlobalThread() * W, size = static_cast<std::int64_t>(T) * C;
  if (i >= size) return;
  float sum[W] = {};
#pragma unroll 4
  for (int b = 0; b < B; ++b) {
    float values[W];
    LoadFloats(dout + b * size + i, values);
#pragma unroll
    for (int j = 0; j < W; ++j) sum[j] += values[j];
  }
  float before[W];
  LoadFloats(d_position_table + i, before);
#pragma unroll
  for (int j = 0; j < W; ++j) sum[j] += before[j];
  StoreFloats(d_position_table + i, sum);
}

}  // namespace

template <class T>
void CudaBackend<T>::EmbeddingForward(const std::int32_t* tokens, const Element* token_table,
                                      const Element* position_table, Element* out, int B, int T_, int C,
                                      float scale) {
  const std::int64_t R = static_cast<std::int64_t>(B) * T_;
  if (R == 0 || C == 0) return;
  ByWidth<T>(C, {token_table, position_table, out}, [&](auto width) {
    constexpr int W = decltype(width)::value;
    HS_LAUNCH((ForwardKernel<T, W>), BlocksFor(R * (C / W)), kBlockThreads, 0, stream_, tokens,
              E(token_table), E(position_table), E(out), R, T_, C, scale);
  });
  CheckLaunch("EmbeddingForward");
}

template <class T>
void CudaBackend<T>::EmbeddingBackward(const std::int32_t* tokens, const Element* dout, float* d_token_table,
                                       float* d_position_table, int B, int T_, int C, int V, float scale) {
  const std::int64_t R = static_cast<std::int64_t>(B) * T_;
  if (R == 0 || C == 0 || V == 0) return;
  const dim3 tiles(static_cast<unsigned>(DivideUp(V, kTableRows)),
                   static_cast<unsigned>(DivideUp(C, kTableColumns)));
  HS_LAUNCH((TokenTableKernel<T>), tiles, kTableColumns, 0, stream_, tokens, E(dout), d_token_table, R, C, V,
            scale);
  if (d_position_table != nullptr) {
    const std::int64_t size = static_cast<std::int64_t>(T_) * C;
    ByWidth<T>(size, {dout, d_position_table}, [&](auto width) {
      constexpr int W = decltype(width)::value;
      HS_LAUNCH((PositionTableKernel<T, W>), BlocksFor(size / W), kBlockThreads, 0, stream_, E(dout),
                d_position_table, B, T_, C);
    });
  }
  CheckLaunch("EmbeddingBackward");
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
