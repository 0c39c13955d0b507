// Matrix products on CPUs, row-major float32, by packed panels and a tile of C kept in registers
// (Goto & van de Geijn 2008, "Anatomy of high-performance matrix multiplication").
// Determinism: each value of C is a sum over k in rising order, cut every kGemmDepth values; nothing else
// enters. So the same bits come out for any thread count, any vector width (where the compiler fuses
// multiply and add alike), and whether a row is multiplied alone or among others.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cpu/allocator.h"

namespace headsweep::cpu {

inline constexpr std::int64_t kGemmDepth = 256;  // of the inner dimension that is packed at a time

// C = op(A) op(B), or C += op(A) op(B) when accumulate, with op(A) (M, K), op(B) (K, N), C (M, N); lda, ldb,
// ldc are the row strides of the matrices as stored, op transposes when asked. Without accumulate C is
// overwritten, whatever it held; K = 0 then gives zeros. C must not overlap A or B. Allocates nothing but
// `scratch`, which grows to at most 8.2 MiB. Within a parallel region the product runs on the calling thread
// alone, which needs a scratch of its own.
void Gemm(bool transpose_a, bool transpose_b, std::int64_t M, std::int64_t N, std::int64_t K, const float* A,
          std::int64_t lda, const float* B, std::int64_t ldb, bool accumulate, float* C, std::int64_t ldc,
          int threads, Scratch& scratch);

std::string GemmDescription();  // "products in tiles of 6 x 16"

}  // namespace headsweep::cpu
