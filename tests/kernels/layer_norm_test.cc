// Layer norm, with and without the fused residual, against its formula.
#include "tests/kernels/op_test.h"

namespace headsweep::testing {
namespace {

struct LayerNormCase {
  std::int64_t R;
  int C;
  bool residual = false;
  double mean = 0;  // of the input: a large one tells a stable variance from an unstable one
};
std::ostream& operator<<(std::ostream& out, const LayerNormCase& c) {
  return out << "R" << c.R << " C" << c.C << (c.residual ? " residual" : "") << " mean " << c.mean;
}

constexpr float kEpsilon = 1e-5f;

class LayerNormTest : public OpTest<LayerNormCase> {
 protected:
  void RunForward() {
    x_ = Random(Count(), 1, shape().mean);
    residual_ = Random(Count());
    gamma_ = Random(shape().C);
    beta_ = Random(shape().C);
    x_in_ = In(x_);
    residual_in_ = shape().residual ? In(residual_) : nullptr;
    gamma_in_ = In(gamma_);
    beta_in_ = In(beta_);
    sum_ = shape().residual ? Out(Count()) : nullptr;
    y_ = Out(Count());
    mean_ = OutFloats(shape().R);
    rstd_ = OutFloats(shape().R);
    backend().LayerNormForward(x_in_, residual_in_, sum_, gamma_in_, beta_in_, y_, mean_, rstd_, shape().R,
                               shape().C, kEpsilon);
    input_ = x_;
    if (shape().residual) input_ = Read(sum_, Count());
  }

  template <class Real>
  std::vector<Real> Formula(const std::vector<Real>& x, const std::vector<Real>& gamma,
                            const std::vector<Real>& beta) const {
    using std::sqrt;
    std::vector<Real> y;
    const auto C = static_cast<std::size_t>(shape().C);
    const Real size = Constant<Real>(static_cast<double>(C)),
               epsilon = Constant<Real>(static_cast<double>(kEpsilon));
    for (std::size_t r = 0; r < static_cast<std::size_t>(shape().R); ++r) {
      Real mean = Constant<Real>(0), variance = Constant<Real>(0);
      for (std::size_t c = 0; c < C; ++c) mean += x[r * C + c];
      mean = mean / size;
      for (std::size_t c = 0; c < C; ++c) variance += (x[r * C + c] - mean) * (x[r * C + c] - mean);
      const Real deviation = sqrt(variance / size + epsilon);
      for (std::size_t c = 0; c < C; ++c)
        y.push_back(Stored((x[r * C + c] - mean) / deviation * gamma[c] + beta[c]));
    }
    return y;
  }
  std::int64_t Count() const { return shape().R * shape().C; }

  std::vector<float> x_, residual_, gamma_, beta_, input_;  // input_: what was normalised
  Element *x_in_ = nullptr, *residual_in_ = nullptr, *gamma_in_ = nullptr, *beta_in_ = nullptr;
  Element *sum_ = nullptr, *y_ = nullptr;
  float *mean_ = nullptr, *rstd_ = nullptr;
};

TEST_P(LayerNormTest, ForwardMatchesTheFormula) {
  Measure([&] {
    RunForward();
    ExpectAsGood("y", Read(y_, Count()), Formula(ToDouble(input_), ToDouble(gamma_), ToDouble(beta_)),
                 Formula(input_, gamma_, beta_));
    if (!shape().residual) return;
    std::vector<double> sum;
    std::vector<float> naive_sum;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      sum.push_back(static_cast<double>(x_[i]) + residual_[i]);
      naive_sum.push_back(Stored(x_[i] + residual_[i]));
    }
    ExpectAsGood("sum", Read(sum_, Count()), sum, naive_sum);
    // sum may alias residual
    Element* y = Out(Count());
    backend().LayerNormForward(x_in_, residual_in_, residual_in_, gamma_in_, beta_in_, y, mean_, rstd_,
                               shape().R, shape().C, kEpsilon);
    ExpectSameBits("y, aliased", Read(y_, Count()), Read(y, Count()));
    ExpectSameBits("sum, aliased", Read(sum_, Count()), Read(residual_in_, Count()));
  });
}

TEST_P(LayerNormTest, BackwardMatchesSlopesAndAddsToParameterGradients) {
  Measure([&] {
    RunForward();
    const auto R = shape().R;
    const int C = shape().C;
    std::vector<float> weights = Random(Count()), d_residual = Random(Count());
    Element* dy = In(weights);
    const Element* input = shape().residual ? sum_ : x_in_;
    const std::vector<float> before = Random(C);
    float *d_gamma = InFloats(before), *d_beta = InFloats(before);
    Element* dx = Out(Count());
    backend().LayerNormBackward(dy, input, gamma_in_, mean_, rstd_, nullptr, dx, d_gamma, d_beta, R, C);

    const auto loss = [&](const auto& x, const auto& gamma, const auto& beta) {
      return WeightedSumOf(weights, Formula(x, gamma, beta));
    };
    ExpectGradient("dx", Read(dx, Count()), input_, [&](const auto& x) {
      using Real = typename std::decay_t<decltype(x)>::value_type;
      return loss(x, As<Real>(gamma_), As<Real>(beta_));
    });
    ExpectGradient(
        "d_gamma", Read(d_gamma, C), gamma_,
        [&](const auto& x) {
          using Real = typename std::decay_t<decltype(x)>::value_type;
          return loss(As<Real>(input_), x, As<Real>(beta_));
        },
        before);
    ExpectGradient(
        "d_beta", Read(d_beta, C), beta_,
        [&](const auto& x) {
          using Real = typename std::decay_t<decltype(x)>::value_type;
          return loss(As<Real>(input_), As<Real>(gamma_), x);
        },
        before);

    // d_residual is added; dx may alias dy or d_residual; everything again gives the same bits.
    const Element* residual_gradient = In(d_residual);
    Element* with_residual = Out(Count());
    float *d_gamma2 = InFloats(before), *d_beta2 = InFloats(before);
    backend().LayerNormBackward(dy, input, gamma_in_, mean_, rstd_, residual_gradient, with_residual,
                                d_gamma2, d_beta2, R, C);
    const std::vector<float> result = Read(with_residual, Count());
    ExpectGradient("dx with residual", result, input_, [&](const auto& x) {
      using Real = typename std::decay_t<decltype(x)>::value_type;
      return loss(x, As<Real>(gamma_), As<Real>(beta_)) + WeightedSumOf(d_residual, x);
    });
    ExpectSameBits("d_gamma", Read(d_gamma, C), Read(d_gamma2, C));
    ExpectSameBits("d_beta", Read(d_beta, C), Read(d_beta2, C));

    float* ignored = OutFloats(2 * C);
    std::vector<float> copy = weights;
    Element* alias = In(copy);
    backend().LayerNormBackward(alias, input, gamma_in_, mean_, rstd_, residual_gradient, alias, ignored,
                                ignored + C, R, C);
    ExpectSameBits("dx aliases dy", result, Read(alias, Count()));
    copy = d_residual;
    alias = In(copy);
    backend().LayerNormBackward(dy, input, gamma_in_, mean_, rstd_, alias, alias, ignored, ignored + C, R, C);
    ExpectSameBits("dx aliases d_residual", result, Read(alias, Count()));
  });
}

HEADSWEEP_OP_SUITE(LayerNormTest, LayerNormCase,
                   {{1, 1},
                    {7, 2},
                    {7, 33, true},
                    {33, 130},
                    {130, 7, true},
                    {2053, 16, true},
                    {33, 256, false, 30},
                    {0, 7}});

}  // namespace
}  // namespace headsweep::testing
