// From any head size to the kernels of its class, and the kernel of delta.
#include "kernels/cuda/attention.h"

#include <iterator>

#include "kernels/cuda/reduce.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

constexpr int kDeltaThreads = 128,
              kDeltaLanes = 8;  // of a block; of a row: 16 bytes each at head size 64, bf16

// delta (heads, T) = sum_d dout out. Eight lanes a row; rows in the order of memory, (B, T, H).
template <class E>
__global__ void __launch_bounds__(kDeltaThreads)
    AttentionDeltaKernel(const AttentionBackwardArguments<E> a, std::int64_t rows) {
  const int lane = static_cast<int>(threadIdx.x) % kDeltaLanes;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kDeltaThreads / kDeltaLanes) +
                           static_cast<int>(threadIdx.x) / kDeltaLanes;
  float sum = 0;
  if (row < rows) {
    const E* const dout = a.dout + row * a.D;
    const E* const out = a.out + row * a.D;
    for (int d = lane * kChunk<E>; d < a.D; d += kDeltaLanes * kChunk<E>) {
      const Pack<E> x = ReadValues(dout + d, a.D - d, a.access), y = ReadValues(out + d, a.D - d, a.access);
#pragma unroll
      for (int i = 0; i < kChunk<E>; ++i) sum += ToFloat(x.value[i]) * ToFloat(y.value[i]);
    }
  }
#pragma unroll
  for (int distance = kDeltaLanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  if (row >= rows || lane != 0) return;
  const std::int64_t h = row % a.H, bt = row / a.H;
  a.delta[(bt / a.T * a.H + h) * a.T + bt % a.T] = sum;
}

template <class Arguments>
using ClassLaunch = cudaError_t (*)(Arguments, std::int64_t, const DeviceLimits&, cudaStream_t);

// The class's entry of seven, in the order of kHeadClasses.
template <class Arguments>
ClassLaunch<Arguments> OfClass(int D, const ClassLaunch<Arguments> (&launches)[std::size(kHeadClasses)]) {
  for (std::size_t i = 0; i < std::size(kHeadClasses); ++i) {
    if (kHeadClasses[i] == HeadClass(D)) return launches[i];
  }
  return nullptr;
}

#define HEADSWEEP_OF_EVERY_CLASS(launch, E)                                                     \
  {                                                                                             \
    launch<E, 16>, launch<E, 32>, launch<E, 64>, launch<E, 96>, launch<E, 128>, launch<E, 256>, \
        launch<E, 512>                                                                          \
  }

}  // namespace

template <class E>
cudaError_t RunAttentionForward(const AttentionForwardArguments<E>& a, std::int64_t heads,
                                const DeviceLimits& limits, cudaStream_t stream) {
  if (heads == 0 || a.T == 0) return cudaSuccess;
  return OfClass<AttentionForwardArguments<E>>(a.D, HEADSWEEP_OF_EVERY_CLASS(LaunchAttentionForward, E))(
      a, heads, limits, stream);
}

template <class E>
cudaError_t RunAttentionBackward(const AttentionBackwardArguments<E>& a, std::int64_t heads,
                                 const DeviceLimits& limits, cudaStream_t stream) {
  if (heads == 0) return cudaSuccess;
  if (a.T > 0) {
    const std::int64_t rows = heads * a.T;
    constexpr int kRows = kDeltaThreads / kDeltaLanes;
    const std::int64_t blocks = (rows + kRows - 1) / kRows;
    if (blocks > INT_MAX) return cudaErrorInvalidConfiguration;
    HS_LAUNCH((AttentionDeltaKernel<E>), dim3(static_cast<unsigned>(blocks)), dim3(kDeltaThreads), 0, stream,
              a, rows);
    const cudaError_t error = OfClass<AttentionBackwardArguments<E>>(
        a.D, HEADSWEEP_OF_EVERY_CLASS(LaunchAttentionQueryGradient, E))(a, heads, limits, stream);
    if (error != cudaSuccess) return error;
  }
  if (a.S == 0) return cudaSuccess;
  return OfClass<AttentionBackwardArguments<E>>(a.D, HEADSWEEP_OF_EVERY_CLASS(LaunchAttentionKeyGradient, E))(
      a, heads, limits, stream);
}

template cudaError_t RunAttentionForward(const AttentionForwardArguments<float>&, std::int64_t,
                                         const DeviceLimits&, cudaStream_t);
template cudaError_t RunAttentionForward(const AttentionForwardArguments<bf16>&, std::int64_t,
                                         const DeviceLimits&, cudaStream_t);
template cudaError_t RunAttentionBackward(const AttentionBackwardArguments<float>&, std::int64_t,
                                          const DeviceLimits&, cudaStream_t);
template cudaError_t RunAttentionBackward(const AttentionBackwardArguments<bf16>&, std::int64_t,
                                          const DeviceLimits&, cudaStream_t);

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
