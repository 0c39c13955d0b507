#include "results/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace headsweep {
namespace {

TEST(Statistics, StudentQuantilesAgreeWithPublishedTables) {
  // Two-sided 95 % and 99 %: any table of Student's t.
  const struct {
    double p, degrees, t;
  } known[] = {
      {0.975, 1, 12.7062047},  {0.975, 2, 4.30265273},    {0.975, 4, 2.77644511}, {0.975, 9, 2.26215716},
      {0.975, 30, 2.04227246}, {0.975, 1000, 1.96233901}, {0.995, 4, 4.60409487}, {0.5, 7, 0.0}};
  for (const auto& k : known)
    EXPECT_NEAR(StudentQuantile(k.p, k.degrees), k.t, 1e-7) << k.p << " " << k.degrees;
  EXPECT_NEAR(StudentQuantile(0.025, 4), -StudentQuantile(0.975, 4), 1e-12);
}

TEST(Statistics, IntervalOfFiveValues) {
  // 2, 4, 4, 4, 5: mean 3.8, s = sqrt(4.8 / 4), half-width 2.77644511 * s / sqrt(5).
  const std::vector<double> values = {2, 4, 4, 4, 5};
  const Estimate e = MeanWithInterval(values);
  EXPECT_EQ(e.n, 5);
  EXPECT_NEAR(e.mean, 3.8, 1e-12);
  EXPECT_NEAR(e.deviation, std::sqrt(1.2), 1e-12);
  EXPECT_NEAR(e.half_width, 2.77644511 * std::sqrt(1.2) / std::sqrt(5.0), 1e-7);
}

TEST(Statistics, OneValueHasNoInterval) {
  const std::vector<double> values = {7};
  const Estimate e = MeanWithInterval(values);
  EXPECT_EQ(e.mean, 7);
  EXPECT_FALSE(e.has_interval());
  EXPECT_TRUE(std::isnan(e.half_width));
}

TEST(Statistics, ValuesThatAreNotFiniteAreLeftOut) {
  const std::vector<double> values = {1, std::nan(""), 3, std::numeric_limits<double>::infinity()};
  const Estimate e = MeanWithInterval(values);
  EXPECT_EQ(e.n, 2);
  EXPECT_EQ(e.mean, 2);
  EXPECT_EQ(MeanWithInterval({}).n, 0);
  EXPECT_TRUE(std::isnan(MeanWithInterval({}).mean));
}

TEST(Statistics, LargeMeansKeepTheirSpread) {
  const std::vector<double> values = {1e9 + 1, 1e9 + 2, 1e9 + 3};
  EXPECT_NEAR(MeanWithInterval(values).deviation, 1, 1e-9);
}

}  // namespace
}  // namespace headsweep
