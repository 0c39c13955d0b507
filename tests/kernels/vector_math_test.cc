// The accuracy that kernels/cpu/vector_math.h states, against libm in double precision.
#include "kernels/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace headsweep::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Largest value of error(x) on a fine grid of [low, high], NaN if any is.
template <class Error>
double Worst(float low, float high, Error error) {
  constexpr int kPoints = 400000;
  double worst = 0;
  for (int i = 0; i <= kPoints; ++i) {
    const float x = low + (high - low) * static_cast<float>(i) / kPoints;
    const double e = error(x);
    if (!(e <= worst)) worst = e;
  }
  return worst;
}

TEST(VectorMath, ExpIsAccurate) {
  const double worst = Worst(-87.0f, 88.0f, [](float x) {
    const double expected = std::exp(static_cast<double>(x));
    return std::abs(static_cast<double>(Exp(x)) - expected) / expected;
  });
  EXPECT_TRUE(worst <= 2e-7) << worst;
}

TEST(VectorMath, ExpHandlesTheEnds) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-kInfinity), 0.0f);
  EXPECT_EQ(Exp(-1000.0f), 0.0f);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(1000.0f), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(std::nanf(""))));
}

TEST(VectorMath, ExpOfNonPositiveIsExpThere) {
  for (int i = 0; i <= 100000; ++i) {
    const float x = -100.0f * static_cast<float>(i) / 100000;
    ASSERT_EQ(ExpOfNonPositive(x), Exp(x)) << x;
  }
  EXPECT_EQ(ExpOfNonPositive(-kInfinity), 0.0f);
  EXPECT_EQ(ExpOfNonPositive(-1e30f), 0.0f);
  EXPECT_TRUE(std::isnan(ExpOfNonPositive(std::nanf(""))));
}

TEST(VectorMath, TanhIsAccurate) {
  const double worst = Worst(-20.0f, 20.0f, [](float x) {
    return std::abs(static_cast<double>(Tanh(x)) - std::tanh(static_cast<double>(x)));
  });
  EXPECT_TRUE(worst <= 3e-7) << worst;
  EXPECT_TRUE(std::isnan(Tanh(std::nanf(""))));
  EXPECT_EQ(Tanh(kInfinity), 1.0f);
  EXPECT_EQ(Tanh(-kInfinity), -1.0f);
}

double ExactGelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(VectorMath, GeluIsAccurate) {
  const double worst = Worst(-30.0f, 30.0f, [](float x) {
    return std::abs(static_cast<double>(Gelu(x)) - ExactGelu(x)) / (1 + std::abs(x));
  });
  EXPECT_TRUE(worst <= 3e-7) << worst;
  EXPECT_TRUE(std::isnan(Gelu(std::nanf(""))));
  EXPECT_EQ(Gelu(1e30f), 1e30f);
}

TEST(VectorMath, GeluDerivativeIsTheSlopeOfGelu) {
  const double worst = Worst(-30.0f, 30.0f, [](float x) {
    constexpr double kStep = 1e-5;
    const double slope = (ExactGelu(x + kStep) - ExactGelu(x - kStep)) / (2 * kStep);
    return std::abs(static_cast<double>(GeluDerivative(x)) - slope);
  });
  EXPECT_TRUE(worst <= 3e-6) << worst;
  EXPECT_TRUE(std::isnan(GeluDerivative(std::nanf(""))));
  EXPECT_EQ(GeluDerivative(kInfinity), 1.0f);
  EXPECT_EQ(GeluDerivative(-kInfinity), 0.0f);
}

}  // namespace
}  // namespace headsweep::cpu
