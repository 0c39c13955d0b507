// The door to matrix products: cuBLASLt on the card (matmul_cublaslt.cc), the CPU backend's products in its
// place on the CPU (matmul_on_host.cc). Everything is row-major and dense; T is float or bf16. bf16: products
// of bf16 values, float32 accumulation, one rounding of the result. float: float32 throughout (no TF32). Same
// bits on every call with the same shape, addresses' alignment and device. Enqueued on the stream; all memory
// that a call needs is taken when the first call of its shape is made and kept, so a call may be captured
// into a graph once its shape has been seen. Sizes must be positive. Errors: DeviceError.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/portable.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

// op(a) (M, K) times op(b) (K, N): stored (M, K) and (K, N), or (K, M) and (N, K) where transposed.
struct Product {
  bool transpose_a = false, transpose_b = false;
  std::int64_t M = 0, N = 0, K = 0;
};

// A linear layer: y (R, O) = activation(x (R, I) weight (O, I)^T + bias (O)).
template <class T>
struct LinearCall {
  std::int64_t R = 0;
  int I = 0, O = 0;
  const T *x = nullptr, *weight = nullptr, *bias = nullptr;  // bias: nullptr = none
  T *y = nullptr, *pre = nullptr;                            // pre: what goes into the activation, or nullptr
  Activation activation = Activation::kNone;
};

template <class T>
class MatMul {
 public:
  explicit MatMul(int device);
  ~MatMul();
  MatMul(const MatMul&) = delete;
  MatMul& operator=(const MatMul&) = delete;

  // c = op(a) op(b), or c += op(a) op(b). Out: T, or float for sums that are kept in float32.
  template <class Out>
  void Multiply(const Product& product, const T* a, const T* b, Out* c, bool accumulate, cudaStream_t stream);

  // The whole layer in one call, bias and activation before the rounding. False, and nothing enqueued, where
  // the library has no such epilogue: then the caller multiplies and does the rest itself.
  bool Linear(const LinearCall<T>& call, cudaStream_t stream);

  // c = (a b) * gelu'(pre) in one call, with the shapes of Multiply; pre is c's shape. False as above.
  bool GeluGradient(const Product& product, const T* a, const T* b, const T* pre, T* c, cudaStream_t stream);

  std::string description() const;  // library and version

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
