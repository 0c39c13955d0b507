// AdamW (Loshchilov & Hutter 2019) over all tensors in one launch, and the factor of gradient clipping.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

__global__ void ClipScaleKernel(const float* sum_of_squares, float max_norm, float* norm, float* scale) {
  const float n = sqrtf(sum_of_squares[0]);
  norm[0] = n;
  if (!(n < INFINITY) || scale[0] != scale[0]) {
    scale[0] = NAN;
    return;
  }
  scale[0] = max_norm <= 0 || n <= max_norm ? 1.0f : max_norm / n;
}

// weights may be master itself (float).
template <class E, int W>
__global__ void AdamWKernel(Backend::AdamW adam, const float* rates, float* master, E* weights, float* m,
                            float* v, const float* gradient, const float* gradient_scale,
                            std::int64_t count) {
  const std::int64_t i = GlobalThread() * W;
  if (i >= count) return;
  const float scale = gradient_scale == nullptr ? 1.0f : gradient_scale[0];
  if (scale != scale) return;
  const float learning_rate = rates[0], correction1 = rates[1], correction2 = rates[2];
  const float decay = 1.0f - learning_rate * adam.weight_decay;
  float weight[W], mean[W], square[W], g[W];
  LoadFloats(master + i, weight);
  LoadFloats(m + i, mean);
  LoadFloats(v + i, square);
  LoadFloats(gradient + i, g);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    g[j] *= scale;
    mean[j] = adam.beta1 * mean[j] + (1.0f - adam.beta1) * g[j];
    square[j] = adam.beta2 * square[j] + (1.0f - adam.beta2) * g[j] * g[j];
    const float update = mean[j] * correction1 / (sqrtf(square[j] * correction2) + adam.epsilon);
    weight[j] = decay * weight[j] - learning_rate * update;
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
void CudaBackend<T>::AdamWUpdate(const AdamW& adam, const float* rates, float* master, Element* weights,
                                 float* m, float* v, const float* gradient, const float* gradient_scale,
                                 std::int64_t count) {
  if (count <= 0) return;
  ByWidth<T>(count, {master, weights, m, v, gradient}, [&](auto width) {
    constexpr int W = decltype(width)::value;
    HS_LAUNCH((AdamWKernel<T, W>), BlocksFor(count / W), kBlockThreads, 0, stream_, adam, rates, master,
              E(weights), m, v, gradient, gradient_scale, count);
  });
  CheckLaunch("AdamWUpdate");
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
