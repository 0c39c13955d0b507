// The peer of our matrix products: oneDNN's dnnl_sgemm, the fastest library product of Debian's on x86. It
// takes and frees packing buffers inside, and may split the inner dimension over threads.
#pragma once

#include <cstdint>
#include <string>

namespace headsweep::bench {

// C = op(A) op(B) + beta C, row-major, strides as in cpu::Gemm. Throws std::runtime_error if oneDNN refuses.
void OneDnnGemm(bool transpose_a, bool transpose_b, std::int64_t M, std::int64_t N, std::int64_t K,
                const float* A, std::int64_t lda, const float* B, std::int64_t ldb, float beta, float* C,
                std::int64_t ldc, int threads);

std::string OneDnnVersion();  // "oneDNN 2.6.3"

}  // namespace headsweep::bench
