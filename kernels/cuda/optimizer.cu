// AdamW (Loshchilov & Hutter 2019) over all tensors in one launch, and the factor of gradient clipping.
#include <cmath>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

// Written so that a NaN norm gives a NaN scale: a diverged step must show.
__global__ void ClipScaleKernel(const float* sum_of_squares, float max_norm, float* norm, float* scale) {
  const float n = sqrtf(sum_of_squares[0]);
  norm[0] = n;
  scale[0] = max_norm <= 0 || n <= max_norm ? 1.0f : max_norm / n;
}

struct AdamWFactors {
  float learning_rate, beta1, beta2, epsilon;
  float decay;                     // 1 - learning_rate * weight_decay
  float correction1, correction2;  // 1 / (1 - beta^step)
};

// weights may be master itself (float).
template <class E, int W>
__global__ void AdamWKernel(AdamWFactors factors, float* master, E* weights, float* m, float* v,
                            const float* gradient, const float* gradient_scale, std::int64_t count) {
  const std::int64_t i = GlobalThread() * W;
  if (i >= count) return;
  const float scale = gradient_scale == nullptr ? 1.0f : gradient_scale[0];
  float weight[W], mean[W], square[W], g[W];
  LoadFloats(master + i, weight);
  LoadFloats(m + i, mean);
  LoadFloats(v + i, square);
  LoadFloats(gradient + i, g);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    g[j] *= scale;
    mean[j] = factors.beta1 * mean[j] + (1.0f - factors.beta1) * g[j];
    square[j] = factors.beta2 * square[j] + (1.0f - factors.beta2) * g[j] * g[j];
    const float update =
        mean[j] * factors.correction1 / (sqrtf(square[j] * factors.correction2) + factors.epsilon);
    weight[j] = factors.decay * weight[j] - factors.learning_rate * update;
  }
  StoreFloats(m + i, mean);
  StoreFloats(v + i, square);
  StoreFloats(master + i, weight);
  if (static_cast<void*>(weights) != static_cast<void*>(master)) StoreFloats(weights + i, weight);
}

}  // namespace

template <class T>
void CudaBackend<T>::ClipScale(const float* sum_of_squares, float max_norm, float* norm, float* scale) {
  HS_LAUNCH(ClipScaleKernel, 1, 1, 0, stream_, sum_of_squares, max_norm, norm, scale);
  CheckLaunch("ClipScale");
}

template <class T>
void CudaBackend<T>::AdamWUpdate(const AdamW& adam, float* master, Element* weights, float* m, float* v,
                                 const float* gradient, const float* gradient_scale, std::int64_t count) {
  if (count <= 0) return;
  const auto step = static_cast<double>(adam.step);
  AdamWFactors factors;
  factors.learning_rate = adam.learning_rate;
  factors.beta1 = adam.beta1;
  factors.beta2 = adam.beta2;
  factors.epsilon = adam.epsilon;
  factors.decay = 1.0f - adam.learning_rate * adam.weight_decay;
  factors.correction1 = static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(adam.beta1), step)));
  factors.correction2 = static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(adam.beta2), step)));
  ByWidth<T>(count, {master, weights, m, v, gradient}, [&](auto width) {
    constexpr int W = decltype(width)::value;
    HS_LAUNCH((AdamWKernel<T, W>), BlocksFor(count / W), kBlockThreads, 0, stream_, factors, master,
              E(weights), m, v, gradient, gradient_scale, count);
  });
  CheckLaunch("AdamWUpdate");
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
