// Products of small matrices that lie in cache: what attention does per head. No packing, no allocation, no
// threads. Operands are padded by the caller: B's and C's columns to kLanes, so that there is never a partial
// vector.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headsweep::cpu {

// Floats in a vector register of the machine this is compiled for.
#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

inline constexpr std::int64_t PadToLanes(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

namespace internal {

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), may_alias));

// kRows x (kVectors * kLanes) values of C in registers, over all of K.
template <int kRows, int kVectors, bool kAccumulate>
inline void Tile(std::int64_t K, const float* A, std::int64_t a_row, std::int64_t a_column, const float* B,
                 std::int64_t ldb, float* C, std::int64_t ldc) {
  Vector sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = kAccumulate ? *reinterpret_cast<const Vector*>(C + i * ldc + j * kLanes) : Vector{};
    }
  }
  for (std::int64_t k = 0; k < K; ++k) {
    Vector b[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) b[j] = *reinterpret_cast<const Vector*>(B + k * ldb + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const float a = A[i * a_row + k * a_column];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] += a * b[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) *reinterpret_cast<Vector*>(C + i * ldc + j * kLanes) = sum[i][j];
  }
}

// All rows of one panel of columns. 8 rows by 2 vectors: 16 sums hide the latency of 2 multipliers x 4
// cycles.
template <int kVectors, bool kAccumulate>
void Panel(std::int64_t M, std::int64_t K, const float* A, std::int64_t a_row, std::int64_t a_column,
           const float* B, std::int64_t ldb, float* C, std::int64_t ldc) {
  constexpr int kRows = kLanes == 16 ? 8 : 4;  // as many sums as registers allow
  std::int64_t i = 0;
  for (; i + kRows <= M; i += kRows) {
    Tile<kRows, kVectors, kAccumulate>(K, A + i * a_row, a_row, a_column, B, ldb, C + i * ldc, ldc);
  }
  for (; i + 2 <= M; i += 2) {
    Tile<2, kVectors, kAccumulate>(K, A + i * a_row, a_row, a_column, B, ldb, C + i * ldc, ldc);
  }
  if (i < M) Tile<1, kVectors, kAccumulate>(K, A + i * a_row, a_row, a_column, B, ldb, C + i * ldc, ldc);
}

}  // namespace internal

// C (M, N) = A B, or += with kAccumulate. A's element (i, k) is at A[i*a_row + k*a_column], so A may be read
// transposed; B (K, N) and C (M, N) row-major with strides ldb, ldc; B, C and both strides aligned to kLanes
// floats, N a multiple of kLanes. Each value of C is summed over k in order: the result does not depend on M,
// N or where its row lies.
template <bool kAccumulate>
void SmallProduct(std::int64_t M, std::int64_t N, std::int64_t K, const float* A, std::int64_t a_row,
                  std::int64_t a_column, const float* B, std::int64_t ldb, float* C, std::int64_t ldc) {
  std::int64_t n = 0;
  for (; n + 2 * kLanes <= N; n += 2 * kLanes) {
    internal::Panel<2, kAccumulate>(M, K, A, a_row, a_column, B + n, ldb, C + n, ldc);
  }
  if (n < N) internal::Panel<1, kAccumulate>(M, K, A, a_row, a_column, B + n, ldb, C + n, ldc);
}

}  // namespace headsweep::cpu
