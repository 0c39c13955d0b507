// Linear layers: a product, with bias and activation in its epilogue where the library can, else in one more
// pass.
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

constexpr float kGeluRoot = 0.797884560802865f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

template <Activation kActivation>
__device__ __forceinline__ float Activate(float x) {
  if constexpr (kActivation == Activation::kGelu) {
    return 0.5f * x * (1.0f + tanhf(kGeluRoot * (x + kGeluCubic * x * x * x)));
  } else if constexpr (kActivation == Activation::kRelu) {
    return x <= 0 ? 0.0f : x;  // NaN stays NaN
  } else {
    return x;
  }
}

template <Activation kActivation>
__device__ __forceinline__ float Derivative(float x) {
  if constexpr (kActivation == Activation::kGelu) {
    const float t = tanhf(kGeluRoot * (x + kGeluCubic * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * kGeluRoot * (1.0f + 3.0f * kGeluCubic * x * x);
  } else if constexpr (kActivation == Activation::kRelu) {
    return x > 0 ? 1.0f : 0.0f;
  } else {
    return 1.0f;
  }
}

// product (R, O) + bias (O or nullptr), written to pre unless nullptr, activated to y. product may be pre or
// y.
template <class E, Activation kActivation, int W>
__global__ void BiasActivationKernel(const E* product, const E* bias, E* y, E* pre, std::int64_t count,
                                     int O) {
  const std::int64_t i = GlobalThread() * W;
  if (i >= count) return;
  float values[W];
  LoadFloats(product + i, values);
  if (bias != nullptr) {
    float b[W];
    LoadFloats(bias + i % O, b);
#pragma unroll
    for (int j = 0; j < W; ++j) values[j] += b[j];
  }
  if (pre != nullptr) {
    StoreFloats(pre + i, values);
#pragma unroll
    for (int j = 0; j < W; ++j) values[j] = ToFloat(FromFloat<E>(values[j]));  // y is a function of pre
  }
#pragma unroll
  for (int j = 0; j < W; ++j) values[j] = Activate<kActivation>(values[j]);
  StoreFloats(y + i, values);
}

template <class E, Activation kActivation, int W>
__global__ void ActivationBackwardKernel(const E* dy, const E* pre, E* dpre, std::int64_t count) {
  const std::int64_t i = GlobalThread() * W;
  if (i >= count) return;
  float gradient[W], x[W];
  LoadFloats(dy + i, gradient);
  LoadFloats(pre + i, x);
#pragma unroll
  for (int j = 0; j < W; ++j) gradient[j] *= Derivative<kActivation>(x[j]);
  StoreFloats(dpre + i, gradient);
}

template <class E, int W>
struct RowTerm {
  const E* x;
  int C;
  __device__ void operator()(std::int64_t r, int c, float (&out)[1][W]) const {
    LoadFloats(x + r * C + c, out[0]);
  }
};

template <Activation kActivation>
struct Kind {
  static constexpr Activation value = kActivation;
};
template <class Launch>
void ByActivation(Activation activation, Launch launch) {
  switch (activation) {
    case Activation::kNone:
      launch(Kind<Activation::kNone>());
      break;
    case Activation::kGelu:
      launch(Kind<Activation::kGelu>());
      break;
    case Activation::kRelu:
      launch(Kind<Activation::kRelu>());
      break;
  }
}

}  // namespace

template <class T>
void CudaBackend<T>::LinearForward(const Element* x, const Element* weight, const Element* bias, Element* y,
                                   Element* pre, std::int64_t R, int I, int O, Activation activation) {
  const std::int64_t count = R * O;
  if (count == 0) return;
  if (I > 0 && matmul_.Linear({R, I, O, E(x), E(weight), E(bias), E(y), E(pre), activation}, stream_)) return;
  Element* const product = pre != nullptr ? pre : y;
  if (I > 0) {
    matmul_.Multiply({false, true, R, O, I}, E(x), E(weight), E(product), false, stream_);
  } else {
    Check(cudaMemsetAsync(product, 0, static_cast<std::size_t>(count) * sizeof(T), stream_), "LinearForward");
  }
  if (bias == nullptr && activation == Activation::kNone && pre == nullptr) return;
  ByWidth<T>(O, {product, bias, y}, [&](auto width) {
    ByActivation(activation, [&](auto kind) {
      constexpr int W = decltype(width)::value;
      HS_LAUNCH((BiasActivationKernel<T, decltype(kind)::value, W>), BlocksFor(count / W), kBlockThreads, 0,
                stream_, E(product), E(bias), E(y), E(pre), count, O);
    });
  });
  CheckLaunch("LinearForward");
}

template <class T>
void CudaBackend<T>::LinearBackward(const Element* dy, const Element* x, const Element* weight, Element* dx,
                                    float* d_weight, float* d_bias, std::int64_t R, int I, int O,
                                    bool accumulate_dx) {
  if (R == 0) return;
  if (dx != nullptr && I > 0) {
    if (O > 0) {
      matmul_.Multiply({false, false, R, I, O}, E(dy), E(weight), E(dx), accumulate_dx, stream_);
    } else if (!accumulate_dx) {
      Check(cudaMemsetAsync(dx, 0, static_cast<std::size_t>(R * I) * sizeof(T), stream_), "LinearBackward");
    }
  }
  if (O == 0) return;
  if (d_weight != nullptr && I > 0)
    matmul_.Multiply({true, false, O, I, R}, E(dy), E(x), d_weight, true, stream_);
  if (d_bias != nullptr) {
    ByWidth<T>(O, {dy}, [&](auto width) {
      constexpr int W = decltype(width)::value;
      AddColumnSums<1, W>(RowTerm<T, W>{E(dy), O}, R, O, {d_bias}, scratch_, stream_);
    });
  }
  CheckLaunch("LinearBackward");
}

template <class T>
void CudaBackend<T>::ActivationBackward(const Element* dy, const Element* pre, Element* dpre,
                                        std::int64_t count, Activation activation) {
  if (count <= 0) return;
  if (activation == Activation::kNone) {
    if (dpre == dy) return;
    Check(cudaMemcpyAsync(dpre, dy, static_cast<std::size_t>(count) * sizeof(T), cudaMemcpyDeviceToDevice,
                          stream_),
          "ActivationBackward");
    return;
  }
  ByWidth<T>(count, {dy, pre, dpre}, [&](auto width) {
    ByActivation(activation, [&](auto kind) {
      constexpr int W = decltype(width)::value;
      HS_LAUNCH((ActivationBackwardKernel<T, decltype(kind)::value, W>), BlocksFor(count / W), kBlockThreads,
                0, stream_, E(dy), E(pre), E(dpre), count);
    });
  });
  CheckLaunch("ActivationBackward");
}

template <class T>
void CudaBackend<T>::LinearBackwardThroughActivation(const Element* dy, const Element* weight,
                                                     const Element* pre, Element* dpre, std::int64_t R, int I,
                                                     int O, Activation activation) {
  if (R > 0 && I > 0 && O > 0 && activation == Activation::kGelu &&
      matmul_.GeluGradient({false, false, R, I, O}, E(dy), E(weight), E(pre), E(dpre), stream_))
    return;
  Backend::LinearBackwardThroughActivation(dy, weight, pre, dpre, R, I, O, activation);
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
