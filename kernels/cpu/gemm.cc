#include "kernels/cpu/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/small_product.h"
#include "kernels/cpu/transpose.h"

namespace headsweep::cpu {

namespace {

using internal::Vector;
typedef float UnalignedVector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

// The tile of C in registers: with two vectors of B and one value of A it fills 15 of 16 registers, or 31 of
// 32. Two vectors wide, so that 12 or 28 sums hide the latency of the multipliers.
constexpr int kTileRows = kLanes == 16 ? 14 : 6;
constexpr int kTileColumns = 2 * kLanes;

// Panels of a block: kTileRows rows of A, or kTileColumns columns of B, by at most kGemmDepth of K, zero
// beyond the matrix's edge. A block of B is packed anew for each block of rows, so these are large.
constexpr std::int64_t kBlockRows = 4096 / kTileRows * kTileRows;
constexpr std::int64_t kBlockColumns = 4096 / kTileColumns * kTileColumns;

// One piece of work of a thread: at most 12 panels of A, which stay in a level 2 cache (72 rows x 256 =
// 72 KiB; 168 rows = 168 KiB with AVX-512), by 1024 columns.
constexpr std::int64_t kPiecePanelsOfA = 12;
constexpr std::int64_t kPiecePanelsOfB = 1024 / kTileColumns;

// Below this many multiplications a second thread costs more than it brings (about 5 us to start a team).
constexpr double kParallelWork = 1 << 19;

struct Matrix {  // op(X), as seen by the product
  const float* data;
  std::int64_t stride;
  bool transposed;
  const float* At(std::int64_t row, std::int64_t column) const {
    return transposed ? data + column * stride + row : data + row * stride + column;
  }
};

std::int64_t Panels(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

// to[k][i] = from[k * stride + i] for i < width, 0 for the rest of kWidth.
template <int kWidth>
void CopyPanel(const float* from, std::int64_t stride, std::int64_t depth, std::int64_t width, float* to) {
  if (width == kWidth) {
    for (std::int64_t k = 0; k < depth; ++k) {
      std::memcpy(to + k * kWidth, from + k * stride, kWidth * sizeof(float));
    }
    return;
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    std::fill(std::copy_n(from + k * stride, width, to + k * kWidth), to + (k + 1) * kWidth, 0.0f);
  }
}

// Panel of rows [row, row + rows) of A: to[k][i] = op(A)(row + i, k).
void PackRows(const Matrix& A, std::int64_t row, std::int64_t rows, std::int64_t k0, std::int64_t depth,
              float* to) {
  const float* from = A.At(row, k0);
  if (A.transposed) return CopyPanel<kTileRows>(from, A.stride, depth, rows, to);
  for (std::int64_t k = 0; k < depth; ++k) {
    if (rows == kTileRows) {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) to[k * kTileRows + i] = from[i * A.stride + k];
    } else {
      for (int i = 0; i < kTileRows; ++i) to[k * kTileRows + i] = i < rows ? from[i * A.stride + k] : 0.0f;
    }
  }
}

// Panel of columns [column, column + columns) of B: to[k][j] = op(B)(k, column + j).
void PackColumns(const Matrix& B, std::int64_t column, std::int64_t columns, std::int64_t k0,
                 std::int64_t depth, float* to) {
  const float* from = B.At(k0, column);
  if (!B.transposed) return CopyPanel<kTileColumns>(from, B.stride, depth, columns, to);
  TransposeBlock(from, B.stride, columns, depth, 1, to, kTileColumns);
  if (columns > kLanes) return;
  for (std::int64_t k = 0; k < depth; ++k) {
    std::fill(to + k * kTileColumns + kLanes, to + (k + 1) * kTileColumns, 0.0f);
  }
}

// C (kTileRows, kTileColumns) = or += a b, from packed panels. Never inlined: the registers are counted.
template <bool kAccumulate>
[[gnu::noinline]] void Tile(std::int64_t depth, const float* a, const float* b, float* C, std::int64_t ldc) {
  Vector sum[kTileRows][2];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
    __builtin_prefetch(C + i * ldc, 1);
    __builtin_prefetch(C + i * ldc + kTileColumns - 1, 1);
    sum[i][0] = sum[i][1] = Vector{};
  }
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < depth; ++k) {
    const Vector b0 = *reinterpret_cast<const Vector*>(b + k * kTileColumns);
    const Vector b1 = *reinterpret_cast<const Vector*>(b + k * kTileColumns + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
      const float value = a[k * kTileRows + i];
      sum[i][0] += value * b0;
      sum[i][1] += value * b1;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      UnalignedVector* c =
          reinterpret_cast<UnalignedVector*>(C + i * ldc + j * kLanes);  // auto would align it
      *c = kAccumulate ? *c + sum[i][j] : sum[i][j];
    }
  }
}

// A tile that reaches beyond C's edge: computed aside, its inside copied.
void EdgeTile(std::int64_t depth, const float* a, const float* b, bool accumulate, float* C, std::int64_t ldc,
              std::int64_t rows, std::int64_t columns) {
  alignas(64) float tile[kTileRows * kTileColumns];
  Tile<false>(depth, a, b, tile, kTileColumns);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      float& c = C[i * ldc + j];
      c = accumulate ? c + tile[i * kTileColumns + j] : tile[i * kTileColumns + j];
    }
  }
}

// C (rows, columns) = or += packed_a packed_b: all panels of one block, cut into pieces for the threads.
void MultiplyBlock(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* packed_a,
                   const float* packed_b, bool accumulate, float* C, std::int64_t ldc, int threads) {
  const std::int64_t panels_a = Panels(rows, kTileRows), panels_b = Panels(columns, kTileColumns);
  const std::int64_t pieces_b = Panels(panels_b, kPiecePanelsOfB);
  const std::int64_t piece =  // smaller where there would be too few pieces to share out
      threads == 1 ? kPiecePanelsOfA
                   : std::clamp<std::int64_t>(panels_a * pieces_b / (4 * threads), 1, kPiecePanelsOfA);
  ParallelFor(threads, Panels(panels_a, piece) * pieces_b, [&](std::int64_t work, int) {
    const std::int64_t first_a = work / pieces_b * piece, first_b = work % pieces_b * kPiecePanelsOfB;
    const std::int64_t end_a = std::min(panels_a, first_a + piece);
    const std::int64_t end_b = std::min(panels_b, first_b + kPiecePanelsOfB);
    for (std::int64_t q = first_b; q < end_b; ++q) {
      const float* b = packed_b + q * kTileColumns * depth;
      const std::int64_t width = std::min<std::int64_t>(kTileColumns, columns - q * kTileColumns);
      for (std::int64_t p = first_a; p < end_a; ++p) {
        const float* a = packed_a + p * kTileRows * depth;
        const std::int64_t height = std::min<std::int64_t>(kTileRows, rows - p * kTileRows);
        float* c = C + p * kTileRows * ldc + q * kTileColumns;
        if (height < kTileRows || width < kTileColumns) {
          EdgeTile(depth, a, b, accumulate, c, ldc, height, width);
        } else if (accumulate) {
          Tile<true>(depth, a, b, c, ldc);
        } else {
          Tile<false>(depth, a, b, c, ldc);
        }
      }
    }
  });
}

}  // namespace

void Gemm(bool transpose_a, bool transpose_b, std::int64_t M, std::int64_t N, std::int64_t K, const float* A,
          std::int64_t lda, const float* B, std::int64_t ldb, bool accumulate, float* C, std::int64_t ldc,
          int threads, Scratch& scratch) {
  if (M == 0 || N == 0) return;
  if (K == 0) {
    for (std::int64_t i = 0; i < M && !accumulate; ++i) std::fill_n(C + i * ldc, N, 0.0f);
    return;
  }
  const double work = static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
  if (omp_in_parallel() != 0 || work < kParallelWork) threads = 1;
  const Matrix a{A, lda, transpose_a}, b{B, ldb, transpose_b};
  const std::int64_t depth_limit = std::min(K, kGemmDepth);
  const std::int64_t size_a = Panels(std::min(M, kBlockRows), kTileRows) * kTileRows * depth_limit;
  const std::int64_t size_b = Panels(std::min(N, kBlockColumns), kTileColumns) * kTileColumns * depth_limit;
  float* packed_b = scratch.Floats(static_cast<std::size_t>(size_a + size_b), threads);  // first: aligned
  float* packed_a = packed_b + size_b;

  for (std::int64_t row = 0; row < M; row += kBlockRows) {
    const std::int64_t rows = std::min(M - row, kBlockRows), panels_a = Panels(rows, kTileRows);
    for (std::int64_t k0 = 0; k0 < K; k0 += kGemmDepth) {
      const std::int64_t depth = std::min(K - k0, kGemmDepth);
      for (std::int64_t column = 0; column < N; column += kBlockColumns) {
        const std::int64_t columns = std::min(N - column, kBlockColumns);
        const std::int64_t panels_b = Panels(columns, kTileColumns);
        const std::int64_t packs_a = column == 0 ? Panels(panels_a, 8) : 0, packs_b = Panels(panels_b, 4);
        ParallelFor(threads, packs_a + packs_b, [&](std::int64_t pack, int) {
          for (std::int64_t q = pack * 4; pack < packs_b && q < std::min(panels_b, pack * 4 + 4); ++q) {
            PackColumns(b, column + q * kTileColumns,
                        std::min<std::int64_t>(kTileColumns, columns - q * kTileColumns), k0, depth,
                        packed_b + q * kTileColumns * depth);
          }
          const std::int64_t first = (pack - packs_b) * 8;
          for (std::int64_t p = first; pack >= packs_b && p < std::min(panels_a, first + 8); ++p) {
            PackRows(a, row + p * kTileRows, std::min<std::int64_t>(kTileRows, rows - p * kTileRows), k0,
                     depth, packed_a + p * kTileRows * depth);
          }
        });
        MultiplyBlock(rows, columns, depth, packed_a, packed_b, accumulate || k0 > 0, C + row * ldc + column,
                      ldc, threads);
      }
    }
  }
}

std::string GemmDescription() { return fmt::format("products in tiles of {} x {}", kTileRows, kTileColumns); }

}  // namespace headsweep::cpu
