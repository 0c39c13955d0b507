// Cross-entropy against its formula: ignored rows, smoothing, large logits, argmax ties.
#include <limits>

#include "tests/kernels/op_test.h"

namespace headsweep::testing {
namespace {

struct LossCase {
  std::int64_t R;
  int V;
  float smoothing = 0;
  double deviation = 2;  // of the logits
};
std::ostream& operator<<(std::ostream& out, const LossCase& c) {
  return out << "R" << c.R << " V" << c.V << " smoothing " << c.smoothing << " deviation " << c.deviation;
}

class CrossEntropyTest : public OpTest<LossCase> {
 protected:
  void Draw() {
    targets_.clear();
    logits_ = Random(Count(), shape().deviation);
    for (std::int64_t r = 0; r < shape().R; ++r)
      targets_.push_back(r % 5 == 3 ? -1 : RandomInt(0, shape().V - 1));
  }
  std::int64_t Count() const { return shape().R * shape().V; }

  template <class Real>
  std::vector<Real> Formula(const std::vector<Real>& logits) const {
    using std::exp;
    using std::log;
    std::vector<Real> losses;
    const auto V = static_cast<std::size_t>(shape().V);
    const auto smoothing = static_cast<double>(shape().smoothing);
    for (std::size_t r = 0; r < targets_.size(); ++r) {
      losses.push_back(Constant<Real>(0));
      if (targets_[r] < 0) continue;
      const Real* row = logits.data() + r * V;
      const Real maximum = Constant<Real>(Value(*std::max_element(row, row + V)));
      Real sum = Constant<Real>(0);
      for (std::size_t v = 0; v < V; ++v) sum += exp(row[v] - maximum);
      for (std::size_t v = 0; v < V; ++v) {
        const double target = v == static_cast<std::size_t>(targets_[r]) ? 1 - smoothing : 0;
        const Real wanted = Constant<Real>(target + smoothing / static_cast<double>(V));
        losses.back() -= wanted * (row[v] - maximum - log(sum));
      }
    }
    return losses;
  }

  std::vector<float> logits_;
  std::vector<std::int32_t> targets_;
};

TEST_P(CrossEntropyTest, LossesAndPredictionsMatchAndLogitsStay) {
  Measure([&] {
    Draw();
    const auto R = shape().R;
    Element* logits = In(logits_);
    float* losses = OutFloats(R);
    std::int32_t* predictions = OutInts(R);
    backend().CrossEntropy(logits, InInts(targets_), losses, predictions, R, shape().V, shape().smoothing, 0,
                           nullptr);
    ExpectAsGood("losses", Read(losses, R), Formula(ToDouble(logits_)), Formula(logits_));
    ExpectSameBits("logits", logits_, Read(logits, Count()));
    const std::vector<std::int32_t> predicted = Read(predictions, R);
    for (std::int64_t r = 0; r < R; ++r) {
      const auto* row = logits_.data() + r * shape().V;
      EXPECT_EQ(predicted[static_cast<std::size_t>(r)], std::max_element(row, row + shape().V) - row)
          << "row " << r;
    }
  });
}

TEST_P(CrossEntropyTest, GradientsMatchScaledSlopes) {
  Measure([&] {
    Draw();
    const auto R = shape().R;
    constexpr float kScale = 0.37f;
    Element* logits = In(logits_);
    float* losses = OutFloats(R);
    backend().CrossEntropy(logits, InInts(targets_), losses, nullptr, R, shape().V, shape().smoothing, kScale,
                           nullptr);
    const std::vector<float> gradient = Read(logits, Count());
    ExpectGradient("dlogits", gradient, logits_, [&](const auto& x) {
      return WeightedSumOf(std::vector<float>(targets_.size(), kScale), Formula(x));
    });
    ExpectAsGood("losses", Read(losses, R), Formula(ToDouble(logits_)), Formula(logits_));
    for (std::int64_t r = 0; r < R; ++r) {
      if (targets_[static_cast<std::size_t>(r)] >= 0) continue;
      for (int v = 0; v < shape().V; ++v)
        ASSERT_EQ(gradient[static_cast<std::size_t>(r * shape().V + v)], 0.0f);
    }
    Element* again = In(logits_);
    backend().CrossEntropy(again, InInts(targets_), losses, nullptr, R, shape().V, shape().smoothing, kScale,
                           nullptr);
    ExpectSameBits("dlogits", gradient, Read(again, Count()));
  });
}

HEADSWEEP_OP_SUITE(CrossEntropyTest, LossCase,
                   {{1, 1},
                    {7, 33},
                    {33, 130, 0.1f},
                    {9, 8192},
                    {33, 7, 0.3f},
                    {7, 33, 0, 60},  // far beyond where exp overflows without the maximum taken off
                    {0, 7}});

class CrossEntropyEdgeTest : public OpTest<LossCase> {};

TEST_P(CrossEntropyEdgeTest, FirstOfTiesIsPredicted) {
  std::vector<float> logits = {1, 3, 3, 0, 3, -1, 2, 2};
  Element* x = In(logits);
  float* losses = OutFloats(2);
  std::int32_t* predictions = OutInts(2);
  backend().CrossEntropy(x, InInts({0, -1}), losses, predictions, 2, 4, 0, 0, nullptr);
  EXPECT_EQ(Read(predictions, 2), (std::vector<std::int32_t>{1, 0}));
}

TEST_P(CrossEntropyEdgeTest, NaNLogitsGiveNaNLosses) {
  std::vector<float> logits = {1, std::nanf(""), 3, 0, 1, 2, 3, std::numeric_limits<float>::infinity()};
  Element* x = In(logits);
  float* losses = OutFloats(2);
  backend().CrossEntropy(x, InInts({0, 0}), losses, nullptr, 2, 4, 0, 1, nullptr);
  for (const float loss : Read(losses, 2)) EXPECT_TRUE(std::isnan(loss));
}

TEST_P(CrossEntropyEdgeTest, ALossThatIsNotFiniteMakesItsWholeGradientNaNAndNoOther) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> logits = {-infinity, 1, 2, 0, 0, 0, 0, 0};  // the first row's target is impossible
  Element* x = In(logits);
  float* losses = OutFloats(2);
  backend().CrossEntropy(x, InInts({0, 0}), losses, nullptr, 2, 4, 0, 1, nullptr);
  EXPECT_EQ(Read(losses, 2)[0], infinity);
  const std::vector<float> gradient = Read(x, 8);
  for (std::size_t v = 0; v < 4; ++v) EXPECT_TRUE(std::isnan(gradient[v])) << v;
  for (std::size_t v = 4; v < 8; ++v) EXPECT_TRUE(std::isfinite(gradient[v])) << v;
}

TEST_P(CrossEntropyEdgeTest, NumbersMultiplyTheGradientsScale) {
  std::vector<float> logits = {0, 1, 2, 3};
  auto* numbers = static_cast<PassNumbers*>(backend().Allocate(sizeof(PassNumbers)));
  backend().CopyIn(numbers, {.gradient_scale = 0.25f});
  Element *x = In(logits), *y = In(logits);
  float* losses = OutFloats(1);
  backend().CrossEntropy(x, InInts({1}), losses, nullptr, 1, 4, 0.1f, 0.5f, numbers);
  backend().CrossEntropy(y, InInts({1}), losses, nullptr, 1, 4, 0.1f, 0.125f, nullptr);
  ExpectSameBits("gradient", Read(x, 4), Read(y, 4));
  backend().Free(numbers);
}

TEST_P(CrossEntropyEdgeTest, AnImpossibleClassIsAsIfItWereNotThere) {
  std::vector<float> with = {0.5f, -std::numeric_limits<float>::infinity(), 0, 1}, without = {0.5f, 0, 1};
  Element *x = In(with), *y = In(without);
  float* losses = OutFloats(2);
  backend().CrossEntropy(x, InInts({0}), losses, nullptr, 1, 4, 0, 1, nullptr);
  backend().CrossEntropy(y, InInts({0}), losses + 1, nullptr, 1, 3, 0, 1, nullptr);
  const std::vector<float> both = Read(losses, 2), gradient = Read(x, 4);
  ExpectSameBits("loss", {both[0]}, {both[1]});
  ExpectSameBits("gradient", {gradient[0], gradient[2], gradient[3]}, Read(y, 3));
  EXPECT_EQ(gradient[1], 0.0f);
}

HEADSWEEP_OP_SUITE(CrossEntropyEdgeTest, LossCase, {{1, 4}});

}  // namespace
}  // namespace headsweep::testing
