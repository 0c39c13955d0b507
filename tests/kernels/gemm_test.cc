// The product of packed panels against the formula, and what it promises about bits.
#include "kernels/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "kernels/philox.h"

namespace headsweep::cpu {
namespace {

struct Sizes {
  std::int64_t M, N, K;
};
std::ostream& operator<<(std::ostream& out, const Sizes& s) { return out << s.M << "x" << s.N << "x" << s.K; }

std::vector<float> Random(std::int64_t count, std::uint64_t stream) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(RandomUniform(20261130, stream, static_cast<std::uint64_t>(i)) - 0.5f);
  }
  return values;
}

// Operands with room behind each row, which belongs to somebody else.
struct Problem {
  Problem(Sizes sizes, bool transposed_a, bool transposed_b)
      : s(sizes), ta(transposed_a), tb(transposed_b), lda((ta ? s.M : s.K) + 3), ldb((tb ? s.K : s.N) + 5) {
    A = Random((ta ? s.K : s.M) * lda, 1);
    B = Random((tb ? s.N : s.K) * ldb, 2);
    C = Random(s.M * ldc(), 3);
  }
  std::int64_t ldc() const { return s.N + 2; }
  float a(std::int64_t i, std::int64_t k) const {
    return A[static_cast<std::size_t>(ta ? k * lda + i : i * lda + k)];
  }
  float b(std::int64_t k, std::int64_t j) const {
    return B[static_cast<std::size_t>(tb ? j * ldb + k : k * ldb + j)];
  }

  std::vector<float> Multiply(bool accumulate, int threads) const {
    std::vector<float> result = C;
    Scratch scratch;
    Gemm(ta, tb, s.M, s.N, s.K, A.data(), lda, B.data(), ldb, accumulate, result.data(), ldc(), threads,
         scratch);
    return result;
  }

  Sizes s;
  bool ta, tb;
  std::int64_t lda, ldb;
  std::vector<float> A, B, C;
};

class GemmTest : public ::testing::TestWithParam<std::tuple<bool, bool, Sizes>> {
 protected:
  Problem problem_{std::get<2>(GetParam()), std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(GemmTest, EqualsTheFormula) {
  const auto [M, N, K] = problem_.s;
  for (const bool accumulate : {false, true}) {
    const std::vector<float> result = problem_.Multiply(accumulate, 2);
    for (std::int64_t i = 0; i < M; ++i) {
      for (std::int64_t j = 0; j < problem_.ldc(); ++j) {
        const auto at = static_cast<std::size_t>(i * problem_.ldc() + j);
        if (j >= N) {  // behind the row
          ASSERT_EQ(result[at], problem_.C[at]);
          continue;
        }
        double expected = accumulate ? static_cast<double>(problem_.C[at]) : 0;
        double size = std::abs(expected);  // of the terms: rounding errors are relative to it
        for (std::int64_t k = 0; k < K; ++k) {
          const double term = static_cast<double>(problem_.a(i, k)) * static_cast<double>(problem_.b(k, j));
          expected += term;
          size += std::abs(term);
        }
        // One rounding of half a unit a term, relative to the partial sums (Higham 2002, section 3.1).
        const double bound = static_cast<double>(K + 2) * 6e-8 * size;
        ASSERT_TRUE(std::abs(result[at] - expected) <= bound)
            << "C(" << i << ", " << j << ") = " << result[at] << ", expected " << expected << " within "
            << bound;
      }
    }
  }
}

TEST_P(GemmTest, GivesTheSameBitsForAnyThreadCount) {
  const std::vector<float> expected = problem_.Multiply(true, 1);
  for (const int threads : {2, 3, 5}) {
    const std::vector<float> result = problem_.Multiply(true, threads);
    ASSERT_EQ(std::memcmp(result.data(), expected.data(), expected.size() * sizeof(float)), 0)
        << threads << " threads";
  }
}

// Sizes around the edges of tiles (6 x 16, 14 x 32), of the depth (256), of pieces and of blocks (about
// 4096).
INSTANTIATE_TEST_SUITE_P(
    Shapes, GemmTest,
    ::testing::Combine(::testing::Bool(), ::testing::Bool(),
                       ::testing::Values(Sizes{1, 1, 1}, Sizes{6, 16, 8}, Sizes{7, 17, 5}, Sizes{13, 31, 255},
                                         Sizes{14, 32, 256}, Sizes{15, 33, 257}, Sizes{90, 130, 600},
                                         Sizes{170, 1040, 33}, Sizes{4110, 9, 20}, Sizes{9, 4110, 20},
                                         Sizes{2, 3, 1030})));

TEST(Gemm, MultipliesARowAloneAsAmongOthers) {
  const Problem all({37, 50, 700}, false, true);
  const std::vector<float> together = all.Multiply(false, 3);
  for (std::int64_t i = 0; i < all.s.M; ++i) {
    std::vector<float> row(50);
    Scratch scratch;
    Gemm(false, true, 1, 50, 700, all.A.data() + i * all.lda, all.lda, all.B.data(), all.ldb, false,
         row.data(), 50, 1, scratch);
    ASSERT_EQ(std::memcmp(row.data(), together.data() + i * all.ldc(), row.size() * sizeof(float)), 0)
        << "row " << i;
  }
}

TEST(Gemm, OverwritesWhateverWasThere) {
  const float a = 2, b = 3;
  float c = std::nanf("");
  Scratch scratch;
  Gemm(false, false, 1, 1, 1, &a, 1, &b, 1, false, &c, 1, 1, scratch);
  EXPECT_EQ(c, 6);
}

TEST(Gemm, AnEmptyInnerDimensionGivesZerosOrLeavesTheSum) {
  std::vector<float> c = {1, 2, 3, 4};
  Scratch scratch;
  Gemm(false, false, 2, 1, 0, nullptr, 0, nullptr, 1, true, c.data(), 2, 1, scratch);
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 4}));
  Gemm(false, false, 2, 1, 0, nullptr, 0, nullptr, 1, false, c.data(), 2, 1, scratch);
  EXPECT_EQ(c, (std::vector<float>{0, 2, 0, 4}));
  Gemm(false, false, 0, 5, 7, nullptr, 7, nullptr, 5, false, nullptr, 5, 1, scratch);
  Gemm(false, false, 5, 0, 7, nullptr, 7, nullptr, 0, false, nullptr, 0, 1, scratch);
}

TEST(Gemm, KeepsNotANumberAndInfinityInTheirRowsAndColumns) {
  Problem problem({8, 20, 30}, false, false);
  problem.A[static_cast<std::size_t>(3 * problem.lda + 4)] = std::nanf("");
  problem.B[static_cast<std::size_t>(2 * problem.ldb + 19)] = INFINITY;
  const std::vector<float> result = problem.Multiply(false, 1);
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t j = 0; j < 20; ++j) {
      const float value = result[static_cast<std::size_t>(i * problem.ldc() + j)];
      if (i == 3) {
        EXPECT_TRUE(std::isnan(value));
      } else {
        EXPECT_EQ(std::isfinite(value), j != 19) << i << ", " << j;
      }
    }
  }
}

}  // namespace
}  // namespace headsweep::cpu
