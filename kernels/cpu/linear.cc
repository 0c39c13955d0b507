// Linear layers: a product, then bias and activation in one pass over the output.
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace headsweep {

using cpu::F;

namespace {

template <class Function>
void BiasActivationRow(const float* bias, float* pre, float* y, int O, Function function) {
#pragma omp simd
  for (int o = 0; o < O; ++o) {
    const float value = pre[o] + bias[o];
    pre[o] = value;
    y[o] = function(value);
  }
}

template <class Function>
void BiasActivationInPlaceRow(const float* bias, float* y, int O, Function function) {
#pragma omp simd
  for (int o = 0; o < O; ++o) y[o] = function(y[o] + bias[o]);
}

template <class Function>
void BiasActivationRows(const float* bias, float* pre, float* y, std::int64_t begin, std::int64_t end, int O,
                        Function function) {
  for (std::int64_t r = begin; r < end; ++r) {
    if (pre != nullptr) {
      BiasActivationRow(bias, pre + r * O, y + r * O, O, function);
    } else {
      BiasActivationInPlaceRow(bias, y + r * O, O, function);
    }
  }
}

// result = gradient * derivative(x). A function of its own: inlined into a parallel region, GCC 12 vectorises
// less.
template <class Derivative>
[[gnu::noinline]] void MultiplyByDerivative(const float* gradient, const float* x, float* result,
                                            std::int64_t count, Derivative derivative) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) result[i] = gradient[i] * derivative(x[i]);
}

}  // namespace

void CpuBackend::LinearForward(const Element* x, const Element* weight, const Element* bias, Element* y,
                               Element* pre, std::int64_t R, int I, int O, Activation activation) {
  float* product = pre != nullptr ? F(pre) : F(y);
  cpu::Gemm(false, true, R, O, I, F(x), I, F(weight), I, false, product, O, threads_, scratch_);
  if (bias == nullptr && activation == Activation::kNone) {
    if (pre != nullptr) CopyOut(F(y), pre, R * O);
    return;
  }
  const float* b = F(bias);
  if (b == nullptr) {
    float* zeros = scratch_.Floats(static_cast<std::size_t>(O), threads_);
    std::fill(zeros, zeros + O, 0.0f);
    b = zeros;
  }
  cpu::ParallelRanges(threads_, R, cpu::RowGrain(O), [&](std::int64_t begin, std::int64_t end, int) {
    switch (activation) {
      case Activation::kNone:
        BiasActivationRows(b, F(pre), F(y), begin, end, O, [](float value) { return value; });
        break;
      case Activation::kGelu:
        BiasActivationRows(b, F(pre), F(y), begin, end, O, [](float value) { return cpu::Gelu(value); });
        break;
      case Activation::kRelu:  // written so that NaN stays NaN
        BiasActivationRows(b, F(pre), F(y), begin, end, O,
                           [](float value) { return value <= 0 ? 0.0f : value; });
        break;
    }
  });
}

void CpuBackend::LinearBackward(const Element* dy, const Element* x, const Element* weight, Element* dx,
                                float* d_weight, float* d_bias, std::int64_t R, int I, int O,
                                bool accumulate_dx) {
  if (dx != nullptr) {
    cpu::Gemm(false, false, R, I, O, F(dy), O, F(weight), I, accumulate_dx, F(dx), I, threads_, scratch_);
  }
  if (d_weight != nullptr) {
    cpu::Gemm(true, false, O, I, R, F(dy), O, F(x), I, true, d_weight, I, threads_, scratch_);
  }
  if (d_bias != nullptr) AddColumnSums(F(dy), R, O, d_bias);
}

void CpuBackend::AddColumnSums(const float* x, std::int64_t R, std::int64_t columns, float* sums) {
  if (R == 0 || columns == 0) return;
  const std::int64_t grain = cpu::ReductionRows(R);
  const std::int64_t pieces = (R + grain - 1) / grain;
  float* partial = scratch_.Floats(static_cast<std::size_t>(pieces * columns), threads_);
  cpu::ParallelRanges(threads_, R, grain, [&](std::int64_t begin, std::int64_t end, int) {
    float* sum = partial + begin / grain * columns;
    std::copy(x + begin * columns, x + (begin + 1) * columns, sum);
    for (std::int64_t r = begin + 1; r < end; ++r) {
      const float* row = x + r * columns;
      for (std::int64_t c = 0; c < columns; ++c) sum[c] += row[c];
    }
  });
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const float* sum = partial + piece * columns;
    for (std::int64_t c = 0; c < columns; ++c) sums[c] += sum[c];
  }
}

void CpuBackend::ActivationBackward(const Element* dy, const Element* pre, Element* dpre, std::int64_t count,
                                    Activation activation) {
  const float* gradient = F(dy);
  const float* x = F(pre);
  float* result = F(dpre);
  cpu::ParallelRanges(threads_, count, cpu::kElementGrain, [&](std::int64_t begin, std::int64_t end, int) {
    switch (activation) {
      case Activation::kNone:
        if (result != gradient) std::copy(gradient + begin, gradient + end, result + begin);
        break;
      case Activation::kGelu:
        MultiplyByDerivative(gradient + begin, x + begin, result + begin, end - begin,
                             [](float value) { return cpu::GeluDerivative(value); });
        break;
      case Activation::kRelu:
        MultiplyByDerivative(gradient + begin, x + begin, result + begin, end - begin,
                             [](float value) { return value > 0 ? 1.0f : 0.0f; });
        break;
    }
  });
}

}  // namespace headsweep
