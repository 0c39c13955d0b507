// Matrix products of the CPU build: the CPU backend's, in cuBLASLt's place. bf16 operands are widened, sums
// are float32, results are rounded once. Offers and declines epilogues as cuBLASLt does, so that both ways of
// the linear layer are run.
#include <cmath>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/matmul.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

template <class T>
struct MatMul<T>::State {
  cpu::Scratch packing;
  std::vector<float> a, b, c;  // operands and result as floats

  static const float* Floats(const float* x, std::int64_t, std::vector<float>&) { return x; }
  static const float* Floats(const bf16* x, std::int64_t count, std::vector<float>& wide) {
    wide.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) wide[static_cast<std::size_t>(i)] = ToFloat(x[i]);
    return wide.data();
  }

  // The product as floats, in c.
  void Compute(const Product& p, const T* left, const T* right) {
    c.resize(static_cast<std::size_t>(p.M * p.N));
    cpu::Gemm(p.transpose_a, p.transpose_b, p.M, p.N, p.K, Floats(left, p.M * p.K, a),
              p.transpose_a ? p.M : p.K, Floats(right, p.K * p.N, b), p.transpose_b ? p.K : p.N, false,
              c.data(), p.N, 1, packing);
  }
};

template <class T>
MatMul<T>::MatMul(int) : state_(std::make_unique<State>()) {}
template <class T>
MatMul<T>::~MatMul() = default;

template <class T>
template <class Out>
void MatMul<T>::Multiply(const Product& product, const T* a, const T* b, Out* c, bool accumulate,
                         cudaStream_t stream) {
  State* const state = state_.get();
  Check(internal::Enqueue(stream,
                          [=] {
                            state->Compute(product, a, b);
                            for (std::size_t i = 0; i < state->c.size(); ++i) {
                              c[i] = FromFloat<Out>(accumulate ? ToFloat(c[i]) + state->c[i] : state->c[i]);
                            }
                          }),
        "matrix product");
}

template <class T>
bool MatMul<T>::Linear(const LinearCall<T>& call, cudaStream_t stream) {
  // cuBLASLt saves the input of GELU alone, in rows of a multiple of 16 bytes.
  if (call.activation == Activation::kNone && call.pre != nullptr) return false;
  if (call.activation == Activation::kRelu && call.pre != nullptr) return false;
  if (call.pre != nullptr && call.O % Pack<T>::kSize != 0) return false;
  State* const state = state_.get();
  Check(internal::Enqueue(
            stream,
            [=] {
              state->Compute({false, true, call.R, call.O, call.I}, call.x, call.weight);
              for (std::size_t i = 0; i < state->c.size(); ++i) {
                const std::size_t o = i % static_cast<std::size_t>(call.O);
                const float x = state->c[i] + (call.bias == nullptr ? 0.0f : ToFloat(call.bias[o]));
                if (call.pre != nullptr) call.pre[i] = FromFloat<T>(x);
                float y = x;
                if (call.activation == Activation::kGelu) {
                  y = 0.5f * x * (1.0f + std::tanh(0.797884560802865f * (x + 0.044715f * x * x * x)));
                } else if (call.activation == Activation::kRelu) {
                  y = x <= 0 ? 0.0f : x;
                }
                call.y[i] = FromFloat<T>(y);
              }
            }),
        "linear layer");
  return true;
}

template <class T>
bool MatMul<T>::GeluGradient(const Product& product, const T* a, const T* b, const T* pre, T* c,
                             cudaStream_t stream) {
  if (sizeof(T) == 4 || product.N % Pack<T>::kSize != 0) return false;  // as cuBLASLt's
  State* const state = state_.get();
  Check(internal::Enqueue(stream,
                          [=] {
                            state->Compute(product, a, b);
                            for (std::size_t i = 0; i < state->c.size(); ++i) {
                              const float x = ToFloat(pre[i]);
                              const float t = std::tanh(0.797884560802865f * (x + 0.044715f * x * x * x));
                              const float slope = 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.797884560802865f *
                                                                       (1 + 3 * 0.044715f * x * x);
                              c[i] = FromFloat<T>(state->c[i] * slope);
                            }
                          }),
        "gradient through GELU");
  return true;
}

template <class T>
std::string MatMul<T>::description() const {
  return cpu::GemmDescription();
}

template class MatMul<float>;
template class MatMul<bf16>;
template void MatMul<float>::Multiply<float>(const Product&, const float*, const float*, float*, bool,
                                             cudaStream_t);
template void MatMul<bf16>::Multiply<bf16>(const Product&, const bf16*, const bf16*, bf16*, bool,
                                           cudaStream_t);
template void MatMul<bf16>::Multiply<float>(const Product&, const bf16*, const bf16*, float*, bool,
                                            cudaStream_t);

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
