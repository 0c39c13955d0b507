// Linear layers and activations against sums written out in double precision.
#include "tests/kernels/op_test.h"

namespace headsweep::testing {
namespace {

template <class Real>
Real Activate(Real x, Activation activation) {
  using std::tanh;
  const auto c = [](double value) { return Constant<Real>(value); };
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kGelu:
      return x / c(2) * (c(1) + tanh(c(std::sqrt(2 / M_PI)) * (x + c(0.044715) * x * x * x)));
    case Activation::kRelu:
      return c(0) < x ? x : c(0);
  }
  return c(std::nan(""));
}

struct LinearCase {
  std::int64_t R;
  int I, O;
  Activation activation = Activation::kNone;
  bool bias = true;
};
std::ostream& operator<<(std::ostream& out, const LinearCase& c) {
  return out << "R" << c.R << " I" << c.I << " O" << c.O << " activation " << static_cast<int>(c.activation)
             << (c.bias ? " bias" : "");
}

class LinearTest : public OpTest<LinearCase> {
 protected:
  void Draw() {
    x_ = Random(shape().R * shape().I);
    weight_ = Random(static_cast<std::int64_t>(shape().O) * shape().I);
    bias_ = shape().bias ? Random(shape().O) : std::vector<float>();
    x_in_ = In(x_);
    weight_in_ = In(weight_);
    bias_in_ = shape().bias ? In(bias_) : nullptr;
  }

  // x W^T + bias
  template <class Real>
  std::vector<Real> Product(const std::vector<Real>& x, const std::vector<Real>& weight,
                            const std::vector<Real>& bias) const {
    std::vector<Real> y;
    const auto I = static_cast<std::size_t>(shape().I), O = static_cast<std::size_t>(shape().O);
    for (std::size_t r = 0; r < static_cast<std::size_t>(shape().R); ++r) {
      for (std::size_t o = 0; o < O; ++o) {
        Real sum = Constant<Real>(0);
        for (std::size_t i = 0; i < I; ++i) sum += x[r * I + i] * weight[o * I + i];
        y.push_back(Stored(sum));
        if (!bias.empty()) y.back() = Stored(y.back() + bias[o]);
      }
    }
    return y;
  }
  std::int64_t OutCount() const { return shape().R * shape().O; }

  std::vector<float> x_, weight_, bias_;
  Element *x_in_ = nullptr, *weight_in_ = nullptr, *bias_in_ = nullptr;
};

TEST_P(LinearTest, ForwardMatchesTheFormulaWithAndWithoutSavedInput) {
  Measure([&] {
    Draw();
    const auto& [R, I, O, activation, bias] = shape();
    const std::vector<double> pre_truth = Product(ToDouble(x_), ToDouble(weight_), ToDouble(bias_));
    const std::vector<float> pre_naive = Product(x_, weight_, bias_);
    std::vector<double> truth;
    std::vector<float> naive;
    for (const double value : pre_truth) truth.push_back(Activate(value, activation));
    for (const float value : pre_naive) naive.push_back(Stored(Activate(value, activation)));
    Element* y = Out(OutCount());
    backend().LinearForward(x_in_, weight_in_, bias_in_, y, nullptr, R, I, O, activation);
    ExpectAsGood("y", Read(y, OutCount()), truth, naive);
    Element *again = Out(OutCount()), *pre = Out(OutCount());
    backend().LinearForward(x_in_, weight_in_, bias_in_, again, pre, R, I, O, activation);
    ExpectAsGood("pre", Read(pre, OutCount()), pre_truth, pre_naive);
    ExpectAsGood("y with pre", Read(again, OutCount()), truth, naive);
  });
}

TEST_P(LinearTest, BackwardMatchesSlopesOverwritesDxAndAddsToParameterGradients) {
  Measure([&] {
    Draw();
    const auto& [R, I, O, activation, bias] = shape();
    std::vector<float> weights = Random(OutCount());
    const Element* dy = In(weights);
    const auto loss = [&](const auto& x, const auto& weight, const auto& b) {
      return WeightedSumOf(weights, Product(x, weight, b));
    };

    Element* dx = Out(R * I);
    const std::vector<float> weight_before = Random(static_cast<std::int64_t>(O) * I),
                             bias_before = Random(O);
    float *d_weight = InFloats(weight_before), *d_bias = InFloats(bias_before);
    backend().LinearBackward(dy, x_in_, weight_in_, dx, d_weight, d_bias, R, I, O, false);
    const std::vector<float> dx_values = Read(dx, R * I);
    ExpectGradient("dx", dx_values, x_, [&](const auto& x) {
      using Real = typename std::decay_t<decltype(x)>::value_type;
      return loss(x, As<Real>(weight_), As<Real>(bias_));
    });
    ExpectGradient(
        "d_weight", Read(d_weight, static_cast<std::int64_t>(O) * I), weight_,
        [&](const auto& x) {
          using Real = typename std::decay_t<decltype(x)>::value_type;
          return loss(As<Real>(x_), x, As<Real>(bias_));
        },
        weight_before);
    if (bias) {
      ExpectGradient(
          "d_bias", Read(d_bias, O), bias_,
          [&](const auto& x) {
            using Real = typename std::decay_t<decltype(x)>::value_type;
            return loss(As<Real>(x_), As<Real>(weight_), x);
          },
          bias_before);
    }

    // Accumulating: a second call adds the same dx once more; parts that are not wanted are left out.
    backend().LinearBackward(dy, x_in_, weight_in_, dx, nullptr, nullptr, R, I, O, true);
    ExpectGradient("accumulated dx", Read(dx, R * I), x_, [&](const auto& x) {
      using Real = typename std::decay_t<decltype(x)>::value_type;
      return loss(x, As<Real>(weight_), As<Real>(bias_)) + WeightedSumOf(dx_values, x);
    });
    backend().LinearBackward(dy, x_in_, weight_in_, nullptr, nullptr, d_bias, R, I, O, false);
  });
}

TEST_P(LinearTest, BackwardThroughTheActivationBeforeItMatchesSlopesAndRepeats) {
  Measure([&] {
    Draw();
    const auto& [R, I, O, activation, bias] = shape();
    const Activation kind = activation;
    std::vector<float> pre = Random(R * I, 2), weights = Random(OutCount());
    const Element *pre_in = In(pre), *dy = In(weights);
    Element *dpre = Out(R * I), *dx = Out(R * I);
    backend().LinearBackwardThroughActivation(dy, weight_in_, pre_in, dpre, R, I, O, activation);
    const std::vector<float> result = Read(dpre, R * I);
    ExpectGradient("dpre", result, pre, [&](const auto& x) {
      using Real = typename std::decay_t<decltype(x)>::value_type;
      auto y = x;
      for (auto& value : y) value = Activate(value, kind);
      return WeightedSumOf(weights, Product(y, As<Real>(weight_), As<Real>(bias_)));
    });
    backend().LinearBackwardThroughActivation(dy, weight_in_, pre_in, dx, R, I, O, activation);
    ExpectSameBits("dpre", result, Read(dx, R * I));
  });
}

TEST_P(LinearTest, BackwardGivesTheSameBitsTwice) {
  Draw();
  const auto& [R, I, O, activation, bias] = shape();
  std::vector<float> weights = Random(OutCount());
  const Element* dy = In(weights);
  std::vector<float> results[2];
  for (std::vector<float>& result : results) {
    Element* dx = Out(R * I);
    float* d_weight =
        InFloats(std::vector<float>(static_cast<std::size_t>(O) * static_cast<std::size_t>(I), 0.0f));
    float* d_bias = InFloats(std::vector<float>(static_cast<std::size_t>(O), 0.0f));
    backend().LinearBackward(dy, x_in_, weight_in_, dx, d_weight, d_bias, R, I, O, false);
    result = Read(dx, R * I);
    for (const std::vector<float>& part :
         {Read(d_weight, static_cast<std::int64_t>(O) * I), Read(d_bias, O)}) {
      result.insert(result.end(), part.begin(), part.end());
    }
  }
  ExpectSameBits("gradients", results[0], results[1]);
}

HEADSWEEP_OP_SUITE(LinearTest, LinearCase,
                   {
                       {1, 1, 1},
                       {7, 33, 5, Activation::kGelu},
                       {33, 7, 130, Activation::kRelu},
                       {130, 33, 7, Activation::kGelu, false},
                       {33, 130, 33, Activation::kNone, false},
                       {33, 24, 40, Activation::kGelu},
                       {257, 64, 96},
                       {1, 130, 257, Activation::kGelu},
                       {33, 0, 7},  // a layer without heads: y is the bias
                       {33, 7, 0},
                       {0, 7, 5, Activation::kGelu},
                   });

struct ActivationCase {
  std::int64_t count;
  Activation activation;
};
std::ostream& operator<<(std::ostream& out, const ActivationCase& c) {
  return out << c.count << " values, activation " << static_cast<int>(c.activation);
}

class ActivationTest : public OpTest<ActivationCase> {};

TEST_P(ActivationTest, BackwardMatchesSlopesAndMayWorkInPlace) {
  Measure([&] {
    const auto& [count, activation] = shape();
    std::vector<float> pre = Random(count, 2), weights = Random(count);
    const Element* pre_in = In(pre);
    Element* dy = In(weights);
    Element* dpre = Out(count);
    backend().ActivationBackward(dy, pre_in, dpre, count, activation);
    const Activation kind = activation;
    const std::vector<float> result = Read(dpre, count);
    ExpectGradient("dpre", result, pre, [&](const auto& x) {
      auto y = x;
      for (auto& value : y) value = Activate(value, kind);
      return WeightedSumOf(weights, y);
    });
    backend().ActivationBackward(dy, pre_in, dy, count, activation);
    ExpectSameBits("in place", result, Read(dy, count));
  });
}

HEADSWEEP_OP_SUITE(ActivationTest, ActivationCase,
                   {{1, Activation::kGelu},
                    {33, Activation::kRelu},
                    {130, Activation::kGelu},
                    {20011, Activation::kGelu},
                    {20011, Activation::kNone},
                    {0, Activation::kRelu}});

}  // namespace
}  // namespace headsweep::testing
