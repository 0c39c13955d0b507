// AdamW, clipping, long sums and head importance against their formulas.
#include <array>
#include <limits>

#include "tests/kernels/op_test.h"

namespace headsweep::testing {
namespace {

struct CountCase {
  std::int64_t count;
};
std::ostream& operator<<(std::ostream& out, const CountCase& c) { return out << c.count << " values"; }

class OptimizerTest : public OpTest<CountCase> {
 protected:
  const float* RatesOf(const Backend::AdamW& adam, float learning_rate, int step) {
    const std::array<float, 3> rates = adam.Rates(learning_rate, step);
    return InFloats({rates.begin(), rates.end()});
  }
};

// AdamW as published, on numbers of any type.
template <class Real>
struct AdamWFormula {
  std::vector<Real> w, m, v;
  explicit AdamWFormula(const std::vector<float>& start)
      : w(As<Real>(start)), m(start.size(), Constant<Real>(0)), v(start.size(), Constant<Real>(0)) {}
  void Step(const Backend::AdamW& adam, double learning_rate, double step, const std::vector<float>& gradient,
            double scale) {
    const auto c = [](double value) { return Constant<Real>(value); };
    const double beta1 = adam.beta1, beta2 = adam.beta2;
    const Real correction1 = c(1 - std::pow(beta1, step)), correction2 = c(1 - std::pow(beta2, step));
    const Real rate = c(learning_rate), decay = c(adam.weight_decay), epsilon = c(adam.epsilon);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const Real g = c(scale) * c(gradient[i]);
      m[i] = c(beta1) * m[i] + c(1 - beta1) * g;
      v[i] = c(beta2) * v[i] + c(1 - beta2) * g * g;
      w[i] -= rate * (m[i] / correction1 / (std::sqrt(v[i] / correction2) + epsilon) + decay * w[i]);
    }
  }
};

TEST_P(OptimizerTest, AdamWMatchesTheFormulaOverThreeSteps) {
  Measure([&] {
    const std::int64_t count = shape().count;
    const std::vector<float> start = Random(count);
    float *master = InFloats(start), *m = InFloats(std::vector<float>(start.size(), 0.0f));
    float* v = InFloats(std::vector<float>(start.size(), 0.0f));
    const float* scale = InFloats({0.5f});
    Element* weights = Out(count);
    constexpr int kSteps = 3;
    AdamWFormula<double> truth(start);
    AdamWFormula<float> naive(start);
    Backend::AdamW adam;
    constexpr float kRate = 0.01f;
    adam.beta2 = 0.98f;
    adam.weight_decay = 0.1f;
    for (int step = 1; step <= kSteps; ++step) {
      const std::vector<float> gradient = Random(count);
      backend().AdamWUpdate(adam, RatesOf(adam, kRate, step), master, weights, m, v, InFloats(gradient),
                            scale, count);
      truth.Step(adam, kRate, step, gradient, 0.5);
      naive.Step(adam, kRate, step, gradient, 0.5);
    }
    ExpectAsGood("master", Read(master, count), truth.w, naive.w);
    ExpectAsGood("m", Read(m, count), truth.m, naive.m);
    ExpectAsGood("v", Read(v, count), truth.v, naive.v);
    std::vector<float> rounded = Read(master, count);
    In(rounded);  // rounds as the backend does
    ExpectSameBits("weights", rounded, Read(weights, count));
  });
}

TEST_P(OptimizerTest, AdamWWithoutScaleUsesTheGradientAsItIs) {
  const std::int64_t count = shape().count;
  const std::vector<float> start = Random(count), gradient = Random(count), zeros(start.size(), 0.0f);
  std::vector<float> results[2];
  for (int with_scale = 0; with_scale < 2; ++with_scale) {
    float* master = InFloats(start);
    Backend::AdamW adam;
    backend().AdamWUpdate(adam, RatesOf(adam, 0.1f, 1), master, Out(count), InFloats(zeros), InFloats(zeros),
                          InFloats(gradient), with_scale == 1 ? InFloats({1.0f}) : nullptr, count);
    results[with_scale] = Read(master, count);
  }
  ExpectSameBits("master", results[0], results[1]);
}

TEST_P(OptimizerTest, ANaNScaleChangesNothing) {
  const std::int64_t count = shape().count;
  const std::vector<float> start = Random(count), m = Random(count), v = Random(count);
  float *master = InFloats(start), *mean = InFloats(m), *square = InFloats(v);
  std::vector<float> rounded = start;
  Element* weights = In(rounded);
  backend().AdamWUpdate({}, RatesOf({}, 0.1f, 1), master, weights, mean, square, InFloats(Random(count)),
                        InFloats({std::nanf("")}), count);
  ExpectSameBits("master", start, Read(master, count));
  ExpectSameBits("weights", rounded, Read(weights, count));
  ExpectSameBits("m", m, Read(mean, count));
  ExpectSameBits("v", v, Read(square, count));
}

TEST_P(OptimizerTest, SumsMatchAndRepeat) {
  Measure([&] {
    const std::int64_t count = shape().count;
    const std::vector<float> x = Random(count, 3, 0.5);
    double sum = 0, squares = 0;
    float naive_sum = 0, naive_squares = 0;
    for (const float value : x) {
      sum += value;
      squares += static_cast<double>(value) * value;
      naive_sum += value;
      naive_squares += value * value;
    }
    const float* in = InFloats(x);
    float* results = OutFloats(4);
    backend().Sum(in, count, results);
    backend().SumOfSquares(in, count, results + 1);
    backend().Sum(in, count, results + 2);
    backend().SumOfSquares(in, count, results + 3);
    const std::vector<float> values = Read(results, 4);
    ExpectAsGood("sum", {values[0]}, {sum}, {naive_sum});
    ExpectAsGood("sum of squares", {values[1]}, {squares}, {naive_squares});
    ExpectSameBits("again", {values[0], values[1]}, {values[2], values[3]});
  });
}

HEADSWEEP_OP_SUITE(OptimizerTest, CountCase, {{0}, {1}, {33}, {130}, {50021}});

struct ClipCase {
  float sum_of_squares, max_norm;
  float norm, scale;
};
std::ostream& operator<<(std::ostream& out, const ClipCase& c) {
  return out << "sum of squares " << c.sum_of_squares << ", at most " << c.max_norm;
}

class ClipTest : public OpTest<ClipCase> {};

TEST_P(ClipTest, ScaleBringsTheNormDownToTheMaximum) {
  float *norm = OutFloats(1), *scale = InFloats({0.25f});
  backend().ClipScale(InFloats({shape().sum_of_squares}), shape().max_norm, norm, scale);
  ExpectSameBits("norm", Read(norm, 1), {shape().norm});
  ExpectSameBits("scale", Read(scale, 1), {shape().scale});
}

HEADSWEEP_OP_SUITE(ClipTest, ClipCase,
                   {{4, 1, 2, 0.5}, {4, 3, 2, 1}, {4, 0, 2, 1}, {0, 1, 0, 1}, {4, 2, 2, 1}});

TEST_P(ClipTest, OfRandomSumsIsTheFormula) {
  Measure([&] {
    const float sum = std::abs(Random(1, 100)[0]), max_norm = 0.5f * shape().max_norm;
    float *norm = OutFloats(1), *scale = InFloats({1.0f});
    backend().ClipScale(InFloats({sum}), max_norm, norm, scale);
    const auto formula = [&](auto s) {
      using Real = decltype(s);
      const Real n = std::sqrt(s), most = static_cast<Real>(max_norm);
      return std::vector<Real>{n, most <= 0 || n <= most ? 1 : most / n};
    };
    const std::vector<double> truth = formula(static_cast<double>(sum));
    const std::vector<float> naive = formula(sum);
    ExpectAsGood("norm", Read(norm, 1), {truth[0]}, {naive[0]});
    ExpectAsGood("scale", Read(scale, 1), {truth[1]}, {naive[1]});
  });
}

class ClipNaNTest : public OpTest<CountCase> {};

TEST_P(ClipNaNTest, ANormThatIsNotFiniteGivesANaNScaleForEverAfter) {
  for (const float broken : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const float max_norm : {1.0f, 0.0f}) {
      float *norm = OutFloats(1), *scale = InFloats({1.0f});
      backend().ClipScale(InFloats({broken}), max_norm, norm, scale);
      EXPECT_FALSE(std::isfinite(Read(norm, 1)[0]));
      EXPECT_TRUE(std::isnan(Read(scale, 1)[0]));
      backend().ClipScale(InFloats({4.0f}), max_norm, norm, scale);
      EXPECT_EQ(Read(norm, 1)[0], 2.0f);
      EXPECT_TRUE(std::isnan(Read(scale, 1)[0]));
    }
  }
}

HEADSWEEP_OP_SUITE(ClipNaNTest, CountCase, {{1}});

struct ImportanceCase {
  int B, H, T;
};
std::ostream& operator<<(std::ostream& out, const ImportanceCase& c) {
  return out << "B" << c.B << " H" << c.H << " T" << c.T;
}

class HeadImportanceTest : public OpTest<ImportanceCase> {};

TEST_P(HeadImportanceTest, EverySumMatchesAccumulatesAndMayBeLeftOut) {
  Measure([&] {
    const auto& [B, H, T] = shape();
    constexpr float kScale = -1.5f;
    const auto heads = static_cast<std::size_t>(H);
    const std::vector<float> delta = Random(static_cast<std::int64_t>(B) * H * T), before = Random(H);
    const auto formula = [&](auto zero) {
      using Real = decltype(zero);
      std::vector<std::vector<Real>> sums(4, As<Real>(before));
      for (int b = 0; b < B; ++b) {
        for (std::size_t h = 0; h < heads; ++h) {
          Real sum = 0;
          for (int t = 0; t < T; ++t) {
            const Real value =
                static_cast<Real>(kScale) *
                static_cast<Real>(
                    delta[(static_cast<std::size_t>(b) * heads + h) * static_cast<std::size_t>(T) +
                          static_cast<std::size_t>(t)]);
            sum += value;
            sums[1][h] += std::abs(value);
          }
          sums[0][h] += std::abs(sum);
          sums[2][h] += sum * sum;
          sums[3][h] += sum;
        }
      }
      return sums;
    };
    const auto truth = formula(0.0);
    const auto naive = formula(0.0f);
    const float* in = InFloats(delta);
    float* sums[4] = {InFloats(before), InFloats(before), InFloats(before), InFloats(before)};
    backend().HeadImportance(in, B, H, T, kScale, sums[0], sums[1], sums[2], sums[3]);
    const char* const names[4] = {"per_example", "per_token", "squares", "gate_gradient"};
    for (std::size_t i = 0; i < 4; ++i) ExpectAsGood(names[i], Read(sums[i], H), truth[i], naive[i]);
    backend().HeadImportance(in, B, H, T, kScale, nullptr, nullptr, nullptr, nullptr);
  });
}

HEADSWEEP_OP_SUITE(HeadImportanceTest, ImportanceCase,
                   {{1, 1, 1}, {2, 7, 33}, {5, 3, 130}, {0, 3, 7}, {2, 0, 7}});

}  // namespace
}  // namespace headsweep::testing
