#include "data/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace headsweep {
namespace {

std::vector<std::int64_t> Order(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<std::int64_t> order(size);
  for (std::int64_t i = 0; i < size; ++i) order[i] = permutation(i);
  return order;
}

TEST(Permutation, TakesEveryPlaceOnceAtAnySize) {
  for (const std::int64_t size : {1, 2, 3, 7, 33, 130, 255, 256, 257, 1000, 4096, 65537}) {
    for (const std::uint64_t seed : {0ull, 1ull, ~0ull}) {
      std::vector<std::int64_t> order = Order(size, seed, 3);
      std::sort(order.begin(), order.end());
      for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(order[i], i) << "size " << size << " seed " << seed;
    }
  }
}

TEST(Permutation, WorksAtSizesBeyondMemory) {
  const std::int64_t size = (std::int64_t{1} << 40) + 12345;
  const Permutation permutation(size, 7, 0);
  for (const std::int64_t position : {std::int64_t{0}, size / 2, size - 1}) {
    EXPECT_GE(permutation(position), 0);
    EXPECT_LT(permutation(position), size);
  }
}

// Written down once: a change here changes every training run, so kNumericsVersion must change with it.
TEST(Permutation, IsTheSameOnEveryMachineAndInEveryRelease) {
  EXPECT_EQ(Order(10, 1, 0), (std::vector<std::int64_t>{0, 3, 9, 2, 4, 8, 6, 5, 7, 1}));
  EXPECT_EQ(Order(10, 1, 1), (std::vector<std::int64_t>{8, 3, 6, 5, 9, 2, 7, 1, 0, 4}));
}

TEST(Permutation, SeedsAndEpochsGiveUnrelatedOrders) {
  const auto reference = Order(1000, 5, 0);
  for (const auto& other : {Order(1000, 6, 0), Order(1000, 5, 1), Order(1000, 0, 5)}) {
    int equal = 0;
    for (int i = 0; i < 1000; ++i) equal += reference[i] == other[i];
    EXPECT_LT(equal, 12);  // expected 1; 12 has a probability below 1e-8
  }
}

// Every value lands at every position about equally often over many seeds (chi-square with 35 degrees of
// freedom).
TEST(Permutation, IsFairForSmallSizes) {
  constexpr int kSize = 6, kSeeds = 6000;
  double counts[kSize][kSize] = {};
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto order = Order(kSize, seed, 0);
    for (int i = 0; i < kSize; ++i) counts[i][order[i]] += 1;
  }
  double chi_square = 0;
  const double expected = double{kSeeds} / kSize;
  for (const auto& row : counts)
    for (const double count : row) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square,
            70);  // 25 degrees of freedom: p < 1e-5; the seeds are fixed, so it never flickers
}

// Neighbours must be separated: a batch of neighbouring positions should not be neighbouring text.
TEST(Permutation, SeparatesNeighbours) {
  const auto order = Order(10000, 1, 0);
  int close = 0;
  for (int i = 1; i < 10000; ++i) close += std::abs(order[i] - order[i - 1]) < 100;
  EXPECT_LT(close, 300);  // expected 199
  EXPECT_GT(close, 100);
}

}  // namespace
}  // namespace headsweep
