// Philox against the known answers that its authors publish (Random123, kat_vectors), and what is built on
// it.
#include "kernels/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/dropout_mask.h"

namespace headsweep {
namespace {

void ExpectWords(const PhiloxBlock& block, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                 std::uint32_t d) {
  EXPECT_EQ(block.word[0], a);
  EXPECT_EQ(block.word[1], b);
  EXPECT_EQ(block.word[2], c);
  EXPECT_EQ(block.word[3], d);
}

TEST(Philox, GivesTheKnownAnswers) {
  ExpectWords(Philox4x32(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  ExpectWords(Philox4x32(~0ULL, ~0ULL, ~0ULL), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  ExpectWords(Philox4x32(0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822), 0xd16cfe09, 0x94fdcceb,
              0x5001e420, 0x24126ea1);
}

TEST(Philox, UniformNumbersFillTheUnitIntervalEvenly) {
  constexpr int kCount = 100000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = RandomUniform(1, 2, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.005);
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 0.005);
}

TEST(Philox, NormalNumbersHaveTheMomentsOfANormalDistribution) {
  constexpr int kCount = 100000;
  double moments[5] = {};
  for (int i = 0; i < kCount; ++i) {
    double power = 1;
    const double x = RandomNormal(3, 4, static_cast<std::uint64_t>(i));
    for (double& moment : moments) {
      moment += power / kCount;
      power *= x;
    }
  }
  EXPECT_NEAR(moments[1], 0, 0.015);
  EXPECT_NEAR(moments[2], 1, 0.02);
  EXPECT_NEAR(moments[3], 0, 0.05);
  EXPECT_NEAR(moments[4], 3, 0.15);
}

TEST(Philox, NeighbouringNormalNumbersAreUncorrelated) {
  constexpr int kCount = 100000;
  double product = 0;
  for (int i = 0; i < kCount; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    product += RandomNormal(3, 4, at) * RandomNormal(3, 4, at + 1) / kCount;
  }
  EXPECT_NEAR(product, 0, 0.015);
}

TEST(DropoutMask, VectorisedMultipliersAreTheFormula) {
  for (const float rate : {0.1f, 0.5f, 0.999f}) {
    for (const std::int64_t first :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, (std::int64_t{1} << 34) - 7}) {
      const Dropout dropout{rate, 0x123456789abcdef0, (std::uint64_t{1} << 35) + 9, 0};
      std::vector<float> multipliers(301, -1.0f);
      cpu::DropoutMultipliers(dropout, first, 300, multipliers.data());
      for (int i = 0; i < 300; ++i) {
        const bool kept = RandomBits(dropout.seed, dropout.site, static_cast<std::uint64_t>(first + i)) >=
                          DropoutThreshold(rate);
        ASSERT_EQ(multipliers[static_cast<std::size_t>(i)], kept ? DropoutScale(rate) : 0.0f)
            << "rate " << rate << ", position " << first + i;
      }
      EXPECT_EQ(multipliers[300], -1.0f) << "one too many";
    }
  }
}

TEST(DropoutMask, KeepsTheRightShare) {
  constexpr int kCount = 200000;
  const Dropout dropout{0.3f, 7, 8, 0};
  std::vector<float> multipliers(kCount);
  cpu::DropoutMultipliers(dropout, 0, kCount, multipliers.data());
  const auto kept = std::count_if(multipliers.begin(), multipliers.end(), [](float m) { return m != 0; });
  EXPECT_NEAR(static_cast<double>(kept) / kCount, 0.7, 0.005);
}

}  // namespace
}  // namespace headsweep
