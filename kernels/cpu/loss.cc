// Softmax cross-entropy with label smoothing, in place: probabilities never get a tensor of their own.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace headsweep {

using cpu::F;

namespace {

// Largest value of a row; NaN if any value is NaN.
float RowMaximum(const float* x, int V) {
  float maximum = -std::numeric_limits<float>::infinity();
  int finite_or_infinite = 0;
#pragma omp simd reduction(max : maximum) reduction(+ : finite_or_infinite)
  for (int v = 0; v < V; ++v) {
    maximum = x[v] > maximum ? x[v] : maximum;
    finite_or_infinite += x[v] == x[v] ? 1 : 0;
  }
  return finite_or_infinite == V ? maximum : std::numeric_limits<float>::quiet_NaN();
}

std::int32_t FirstEqual(const float* x, int V, float value) {
  for (int v = 0; v < V; ++v) {
    if (x[v] == value) return v;
  }
  return 0;
}

// Loss of one row; with gradient_scale the row becomes gradient_scale * (softmax - p*).
//   loss = log sum_v exp(x_v - max) - ((1 - smoothing)(x_c - max) + smoothing mean_v(x_v - max))
float CrossEntropyRow(float* x, int V, int target, float maximum, float smoothing, float gradient_scale) {
  const float target_logit = x[target] - maximum;
  float sum_exp = 0, sum_logits = 0;
  if (gradient_scale == 0) {
#pragma omp simd reduction(+ : sum_exp, sum_logits)
    for (int v = 0; v < V; ++v) {
      const float logit = x[v] - maximum;
      sum_exp += cpu::ExpOfNonPositive(logit);
      sum_logits += logit;
    }
  } else {
#pragma omp simd reduction(+ : sum_exp, sum_logits)
    for (int v = 0; v < V; ++v) {
      const float logit = x[v] - maximum;
      const float e = cpu::ExpOfNonPositive(logit);
      sum_logits += logit;
      sum_exp += e;
      x[v] = e;
    }
    const float to_gradient = gradient_scale / sum_exp;
    const float spread = gradient_scale * smoothing / static_cast<float>(V);
#pragma omp simd
    for (int v = 0; v < V; ++v) x[v] = x[v] * to_gradient - spread;
    x[target] -= gradient_scale * (1.0f - smoothing);
  }
  // Without smoothing sum_logits must not enter: an impossible class may have logit -infinity, and 0 *
  // infinity is NaN.
  const float expected =
      smoothing == 0 ? target_logit
                     : (1.0f - smoothing) * target_logit + smoothing * (sum_logits / static_cast<float>(V));
  const float loss = std::log(sum_exp) - expected;
  if (gradient_scale != 0 && !std::isfinite(loss))
    std::fill(x, x + V, std::numeric_limits<float>::quiet_NaN());
  return loss;
}

}  // namespace

void CpuBackend::CrossEntropy(Element* logits, const std::int32_t* targets, float* losses,
                              std::int32_t* predictions, std::int64_t R, int V, float smoothing,
                              float gradient_scale, const PassNumbers* numbers) {
  if (V == 0) return;
  if (numbers != nullptr) gradient_scale *= numbers->gradient_scale;
  cpu::ParallelRanges(threads_, R, cpu::RowGrain(V), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      float* row = F(logits) + r * V;
      const bool ignored = targets[r] < 0;
      const float maximum = ignored && predictions == nullptr ? 0.0f : RowMaximum(row, V);
      if (predictions != nullptr) predictions[r] = FirstEqual(row, V, maximum);
      if (!ignored) {
        losses[r] = CrossEntropyRow(row, V, targets[r], maximum, smoothing, gradient_scale);
        continue;
      }
      losses[r] = 0;
      if (gradient_scale != 0) std::fill(row, row + V, 0.0f);
    }
  });
}

}  // namespace headsweep
