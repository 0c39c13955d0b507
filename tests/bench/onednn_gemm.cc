#include "tests/bench/onednn_gemm.h"

#include <fmt/format.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <stdexcept>

namespace headsweep::bench {

void OneDnnGemm(bool transpose_a, bool transpose_b, std::int64_t M, std::int64_t N, std::int64_t K,
                const float* A, std::int64_t lda, const float* B, std::int64_t ldb, float beta, float* C,
                std::int64_t ldc, int threads) {
  const int before = omp_get_max_threads();  // a setting of the calling thread alone; oneDNN reads it
  omp_set_num_threads(threads);
  const dnnl_status_t status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', M, N, K, 1, A, lda, B, ldb, beta, C, ldc);
  omp_set_num_threads(before);
  if (status != dnnl_success) {
    throw std::runtime_error(
        fmt::format("dnnl_sgemm({} x {} x {}): status {}", M, N, K, static_cast<int>(status)));
  }
}

std::string OneDnnVersion() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace headsweep::bench
