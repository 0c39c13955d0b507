// Addition and dropout.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/philox.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

template <class T, int W>
__global__ void AddKernel(const T* a, const T* b, T* out, std::int64_t count) {
  const std::int64_t i = GlobalThread() * W;
  if (i >= count) return;
  float x[W], y[W];
  LoadFloats(a + i, x);
  LoadFloats(b + i, y);
#pragma unroll
  for (int j = 0; j < W; ++j) x[j] += y[j];
  StoreFloats(out + i, x);
}

// N: values of an example. Four consecutive positions, from a multiple of four on, share a Philox block.
template <class T, int W>
__global__ void DropoutKernel(const T* x, T* y, std::int64_t count, std::int64_t N, Dropout dropout,
                              std::uint32_t threshold, float scale) {
  const std::int64_t i = GlobalThread() * W;
  if (i >= count) return;
  std::uint64_t site = dropout.site;
  std::int64_t first = dropout.first_example;
  if (dropout.numbers != nullptr) {
    site += dropout.numbers->site;
    first += dropout.numbers->first_example;
  }
  first *= N;
  float values[W];
  LoadFloats(x + i, values);
  PhiloxBlock block{};
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const auto position = static_cast<std::uint64_t>(first + i + j);
    if (j == 0 || position % 4 == 0) block = RandomBlock(dropout.seed, site, position / 4);
    const unsigned k = position % 4;
    const std::uint32_t bits =
        k < 2 ? (k == 0 ? block.word[0] : block.word[1]) : (k == 2 ? block.word[2] : block.word[3]);
    values[j] *= bits >= threshold ? scale : 0.0f;
  }
  StoreFloats(y + i, values);
}

}  // namespace

template <class T>
void CudaBackend<T>::Add(const Element* a, const Element* b, Element* out, std::int64_t count) {
  if (count <= 0) return;
  ByWidth<T>(count, {a, b, out}, [&](auto width) {
    constexpr int W = decltype(width)::value;
    HS_LAUNCH((AddKernel<T, W>), BlocksFor(count / W), kBlockThreads, 0, stream_, E(a), E(b), E(out), count);
  });
  CheckLaunch("Add");
}

template <class T>
void CudaBackend<T>::ApplyDropout(const Element* x, Element* y, int B, std::int64_t N,
                                  const Dropout& dropout) {
  const std::int64_t count = B * N;
  if (count <= 0) return;
  if (dropout.rate <= 0) {
    if (x == y) return;
    Check(
        cudaMemcpyAsync(y, x, static_cast<std::size_t>(count) * sizeof(T), cudaMemcpyDeviceToDevice, stream_),
        "ApplyDropout");
    return;
  }
  ByWidth<T>(count, {x, y}, [&](auto width) {
    constexpr int W = decltype(width)::value;
    HS_LAUNCH((DropoutKernel<T, W>), BlocksFor(count / W), kBlockThreads, 0, stream_, E(x), E(y), count, N,
              dropout, DropoutThreshold(dropout.rate), DropoutScale(dropout.rate));
  });
  CheckLaunch("ApplyDropout");
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
