// Sums over long vectors (gradient norms, losses). Float64 inside; one partial sum per fixed range, added up
// in order.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

constexpr std::int64_t kRange = 16384;  // values of one block

template <bool kSquares, int W>
__global__ void __launch_bounds__(kBlockThreads)
    RangeSumsKernel(const float* x, std::int64_t count, double* partial) {
  const std::int64_t begin = blockIdx.x * kRange, end = min(count, begin + kRange);
  double sum = 0;
  for (std::int64_t i = begin + static_cast<std::int64_t>(threadIdx.x) * W; i < end; i += kBlockThreads * W) {
    float values[W];
    LoadFloats(x + i, values);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const double value = values[j];
      sum += kSquares ? value * value : value;
    }
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kBlockThreads)
    TotalKernel(const double* partial, int ranges, float* result) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < ranges; i += kBlockThreads) sum += partial[i];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) result[0] = static_cast<float>(sum);
}

template <bool kSquares>
void Reduce(const float* x, std::int64_t count, float* result, DeviceScratch& scratch, cudaStream_t stream) {
  const std::int64_t ranges = DivideUp(count, kRange);
  double* const partial = scratch.Take<double>(ranges);
  if (ranges > 0) {
    ByWidth<float>(count, {x}, [&](auto width) {
      constexpr int W = decltype(width)::value;
      HS_LAUNCH((RangeSumsKernel<kSquares, W>), static_cast<unsigned>(ranges), kBlockThreads, 0, stream, x,
                count, partial);
    });
  }
  HS_LAUNCH(TotalKernel, 1, kBlockThreads, 0, stream, partial, static_cast<int>(ranges), result);
  CheckLaunch(kSquares ? "SumOfSquares" : "Sum");
}

}  // namespace

template <class T>
void CudaBackend<T>::SumOfSquares(const float* x, std::int64_t count, float* result) {
  Reduce<true>(x, count, result, scratch_, stream_);
}

template <class T>
void CudaBackend<T>::Sum(const float* x, std::int64_t count, float* result) {
  Reduce<false>(x, count, result, scratch_, stream_);
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
