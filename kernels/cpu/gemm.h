// Matrix products on CPUs, row-major float32. The only door to oneDNN (gemm.cc).
// Determinism: same bits on every call with the same operands and thread count on the same machine type.
// oneDNN may split the inner dimension over threads (seen with 2 threads at K = 1024, N = 256), so another
// thread count can change the last bits.
#pragma once

#include <cstdint>
#include <string>

namespace headsweep::cpu {

// C = alpha op(A) op(B) + beta C with op(A) (M, K), op(B) (K, N), C (M, N), row strides lda, ldb, ldc of the
// matrices as stored. beta = 0 overwrites C, whatever it held. K = 0 gives beta C. Outputs must not overlap
// inputs. Within a parallel region of more than one thread the product runs on the calling thread alone,
// whatever `threads` says. Throws DeviceError if oneDNN refuses. oneDNN allocates and frees its packing
// buffers inside (see TuneAllocator()).
void Gemm(bool transpose_a, bool transpose_b, std::int64_t M, std::int64_t N, std::int64_t K, float alpha,
          const float* A, std::int64_t lda, const float* B, std::int64_t ldb, float beta, float* C,
          std::int64_t ldc, int threads);

std::string GemmLibrary();  // "oneDNN 2.6.3 (avx512_core)"

}  // namespace headsweep::cpu
