// AdamW (Loshchilov & Hutter 2019) in one pass, and the factor of gradient clipping.
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"

namespace headsweep {

void CpuBackend::ClipScale(const float* sum_of_squares, float max_norm, float* norm, float* scale) {
  norm[0] = std::sqrt(sum_of_squares[0]);
  if (!std::isfinite(norm[0]) || std::isnan(scale[0])) {
    scale[0] = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  scale[0] = max_norm <= 0 || norm[0] <= max_norm ? 1.0f : max_norm / norm[0];
}

void CpuBackend::AdamWUpdate(const AdamW& adam, const float* rates, float* master, Element* weights, float* m,
                             float* v, const float* gradient, const float* gradient_scale,
                             std::int64_t count) {
  const float scale = gradient_scale == nullptr ? 1.0f : gradient_scale[0];
  if (std::isnan(scale)) return;
  const float beta1 = adam.beta1, beta2 = adam.beta2, epsilon = adam.epsilon;
  const float learning_rate = rates[0], correction1 = rates[1], correction2 = rates[2];
  const float decay = 1.0f - learning_rate * adam.weight_decay;
  float* rounded = cpu::F(weights);
  cpu::ParallelRanges(threads_, count, cpu::kElementGrain, [&](std::int64_t begin, std::int64_t end, int) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float g = gradient[i] * scale;
      const float mean = beta1 * m[i] + (1.0f - beta1) * g;
      const float square = beta2 * v[i] + (1.0f - beta2) * g * g;
      m[i] = mean;
      v[i] = square;
      const float update = mean * correction1 / (std::sqrt(square * correction2) + epsilon);
      master[i] = decay * master[i] - learning_rate * update;
    }
    if (rounded != master) std::copy(master + begin, master + end, rounded + begin);
  });
}

}  // namespace headsweep
