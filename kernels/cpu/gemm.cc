#include "kernels/cpu/gemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <string_view>

#include "cluster/base/errors.h"

namespace headsweep::cpu {

namespace {

// C = beta C, for products whose inner dimension is empty.
void ScaleRows(std::int64_t M, std::int64_t N, float beta, float* C, std::int64_t ldc) {
  for (std::int64_t row = 0; row < M; ++row) {
    float* c = C + row * ldc;
    if (beta == 0) {
      std::fill(c, c + N, 0.0f);
    } else {
      for (std::int64_t i = 0; i < N; ++i) c[i] *= beta;
    }
  }
}

std::string_view IsaName(dnnl_cpu_isa_t isa) {
  switch (isa) {
    case dnnl_cpu_isa_sse41:
      return "sse41";
    case dnnl_cpu_isa_avx:
      return "avx";
    case dnnl_cpu_isa_avx2:
      return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
      return "avx2_vnni";
    case dnnl_cpu_isa_avx512_mic:
      return "avx512_mic";
    case dnnl_cpu_isa_avx512_core:
      return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "generic";
  }
}

}  // namespace

void Gemm(bool transpose_a, bool transpose_b, std::int64_t M, std::int64_t N, std::int64_t K, float alpha,
          const float* A, std::int64_t lda, const float* B, std::int64_t ldb, float beta, float* C,
          std::int64_t ldc, int threads) {
  if (M == 0 || N == 0) return;
  if (K == 0) {
    ScaleRows(M, N, beta, C, ldc);
    return;
  }
  const int before = omp_get_max_threads();  // a setting of the calling thread alone; oneDNN reads it
  omp_set_num_threads(threads);
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', M, N, K, alpha, A,
                                          lda, B, ldb, beta, C, ldc);
  omp_set_num_threads(before);
  if (status != dnnl_success) {
    throw DeviceError(fmt::format("dnnl_sgemm({}x{}x{})", M, N, K), status,
                      status == dnnl_out_of_memory ? "out of memory" : "refused", 0);
  }
}

std::string GemmLibrary() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{} ({})", version->major, version->minor, version->patch,
                     IsaName(dnnl_get_effective_cpu_isa()));
}

}  // namespace headsweep::cpu
