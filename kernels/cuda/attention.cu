// Attention, and what head importance is made of.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

// A block is a head; warp w takes examples w, w + 8, …; each example's sum over t is a fixed tree.
__global__ void __launch_bounds__(kBlockThreads)
    HeadImportanceKernel(const float* delta, int B, int H, int T, float scale, float* per_example,
                         float* per_token, float* squares, float* gate_gradient) {
  HS_SHARED(double, of_warp, [kBlockThreads / kWarpThreads][4]);
  const int h = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) % kWarpThreads,
            warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  double sums[4] = {};
  for (int b = warp; b < B; b += kBlockThreads / kWarpThreads) {
    const float* row = delta + (static_cast<std::int64_t>(b) * H + h) * T;
    double sum = 0, absolute = 0;
    for (int t = lane; t < T; t += kWarpThreads) {
      const double value = static_cast<double>(scale) * row[t];
      sum += value;
      absolute += fabs(value);
    }
    sum = WarpSum(sum);
    sums[0] += fabs(sum);
    sums[1] += WarpSum(absolute);
    sums[2] += sum * sum;
    sums[3] += sum;
  }
  if (lane == 0) {
    for (int i = 0; i < 4; ++i) of_warp[warp][i] = sums[i];
  }
  __syncthreads();
  float* const targets[4] = {per_example, per_token, squares, gate_gradient};
  if (threadIdx.x >= 4 || targets[threadIdx.x] == nullptr) return;
  double total = 0;
  for (int w = 0; w < kBlockThreads / kWarpThreads; ++w) total += of_warp[w][threadIdx.x];
  targets[threadIdx.x][h] += static_cast<float>(total);
}

}  // namespace

template <class T>
void CudaBackend<T>::AttentionForward(const AttentionShape&, const Element*, const Element*, const Element*,
                                      const float*, Element*, Element*, float*) {
  throw Unsupported("attention on CUDA");
}

template <class T>
void CudaBackend<T>::AttentionBackward(const AttentionShape&, const Element*, const Element*, const Element*,
                                       const float*, const Element*, const float*, const Element*, Element*,
                                       Element*, Element*, float*) {
  throw Unsupported("attention on CUDA");
}

template <class T>
void CudaBackend<T>::HeadImportance(const float* delta, int B, int H, int T_, float scale, float* per_example,
                                    float* per_token, float* squares, float* gate_gradient) {
  if (B == 0 || H == 0 || T_ == 0) return;
  HS_LAUNCH(HeadImportanceKernel, static_cast<unsigned>(H), kBlockThreads, 0, stream_, delta, B, H, T_, scale,
            per_example, per_token, squares, gate_gradient);
  CheckLaunch("HeadImportance");
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
