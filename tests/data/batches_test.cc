#include "data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cluster/base/errors.h"
#include "tests/data/data_support.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::RandomSentences;
using testing::TempDir;
using testing::TestSeed;
using testing::WriteTokenFile;

// One row of a batch, to compare examples however they were cut into batches.
struct Row {
  std::vector<std::int32_t> tokens, targets;
  bool operator==(const Row&) const = default;
};

std::vector<Row> Rows(const Batch& batch) {
  std::vector<Row> rows;
  for (int b = 0; b < batch.B; ++b) {
    const auto at = static_cast<std::ptrdiff_t>(b) * batch.T;
    rows.push_back({{batch.tokens.begin() + at, batch.tokens.begin() + at + batch.T},
                    {batch.targets.begin() + at, batch.targets.begin() + at + batch.T}});
  }
  return rows;
}

std::vector<Row> Take(BatchSource& source, const std::vector<int>& counts) {
  std::vector<Row> rows;
  Batch batch;
  for (const int count : counts) {
    if (!source.Next(count, batch)) break;
    for (Row& row : Rows(batch)) rows.push_back(std::move(row));
  }
  return rows;
}

class Batches : public ::testing::Test {
 protected:
  // 11 tokens: 4 5 6 </s> 7 </s> 8 9 10 11 </s>
  TokenFile Small() {
    return TokenFile(WriteTokenFile(dir_ / "small.tokens", {{4, 5, 6}, {7}, {8, 9, 10, 11}}, 16));
  }
  TokenFile Random(int count = 130) {
    return TokenFile(WriteTokenFile(dir_ / "random.tokens", RandomSentences(random_, count, 33, 100), 100));
  }
  TempDir dir_;
  std::uint64_t seed_ = TestSeed();
  std::mt19937_64 random_{seed_};
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("HEADSWEEP_TEST_SEED={}", seed_)};
};

TEST_F(Batches, StreamShiftsTargetsByOneAndStartsWithASentenceEnd) {
  const TokenFile file = Small();
  BatchSource source(file, Packing::kStream, 4, 1, /*shuffle=*/false);
  EXPECT_EQ(source.examples(), 3);
  Batch batch;
  ASSERT_TRUE(source.Next(2, batch));
  EXPECT_EQ(batch.B, 2);
  EXPECT_EQ(batch.T, 4);
  EXPECT_THAT(batch.tokens, ElementsAre(3, 4, 5, 6, 3, 7, 3, 8));
  EXPECT_THAT(batch.targets, ElementsAre(4, 5, 6, 3, 7, 3, 8, 9));
  EXPECT_THAT(batch.lengths, IsEmpty());
  EXPECT_EQ(batch.target_count, 8);
  ASSERT_TRUE(source.Next(2, batch));  // the last, short example alone
  EXPECT_EQ(batch.B, 1);
  EXPECT_THAT(batch.tokens, ElementsAre(9, 10, 11, 0));
  EXPECT_THAT(batch.targets, ElementsAre(10, 11, 3, -1));
  EXPECT_THAT(batch.lengths, ElementsAre(3));
  EXPECT_EQ(batch.target_count, 3);
  EXPECT_FALSE(source.Next(2, batch));
  EXPECT_EQ(source.cursor(), (BatchCursor{0, 3}));
}

TEST_F(Batches, SentencesStartWithBeginAndEndWithEndAndArePadded) {
  const TokenFile file = Small();
  BatchSource source(file, Packing::kSentence, 4, 1, /*shuffle=*/false);
  Batch batch;
  ASSERT_TRUE(source.Next(3, batch));
  EXPECT_THAT(batch.tokens, ElementsAre(2, 4, 5, 6, 2, 7, 0, 0, 2, 8, 9, 10));
  EXPECT_THAT(batch.targets, ElementsAre(4, 5, 6, 3, 7, 3, -1, -1, 8, 9, 10, 11));  // the third is cut at T
  EXPECT_THAT(batch.lengths, ElementsAre(4, 2, 4));
  EXPECT_EQ(batch.target_count, 10);
  EXPECT_EQ(source.targets(), 10);
}

TEST_F(Batches, EvaluationPredictsEveryTokenExactlyOnceInOrder) {
  const TokenFile file = Random();
  for (const Packing packing : {Packing::kStream, Packing::kSentence}) {
    for (const int T : {1, 7, 33, 34, 1000, 100000}) {
      if (packing == Packing::kSentence && T < 34) continue;  // longer sentences would be cut
      if (packing == Packing::kSentence && T > 1000) continue;
      for (const int count : {1, 5, 64}) {
        BatchSource source(file, packing, T, 1, /*shuffle=*/false);
        EXPECT_EQ(source.targets(), file.size());
        std::int64_t next = 0, counted = 0;
        Batch batch;
        while (source.Next(count, batch)) {
          for (const std::int32_t target : batch.targets) {
            if (target < 0) continue;
            ASSERT_LT(next, file.size());
            ASSERT_EQ(target, file[next++]) << "T " << T << " count " << count;
          }
          counted += batch.target_count;
        }
        EXPECT_EQ(next, file.size());
        EXPECT_EQ(counted, file.size());
      }
    }
  }
}

TEST_F(Batches, InputsAreTheTargetsOneEarlier) {
  const TokenFile file = Random();
  for (const Packing packing : {Packing::kStream, Packing::kSentence}) {
    BatchSource source(file, packing, 16, 9, /*shuffle=*/true);
    Batch batch;
    ASSERT_TRUE(source.Next(64, batch));
    for (const Row& row : Rows(batch))
      for (int t = 1; t < 16 && row.targets[t] >= 0; ++t) ASSERT_EQ(row.tokens[t], row.targets[t - 1]);
  }
}

TEST_F(Batches, AnEpochGivesEveryExampleOnceAndTheNextAnotherOrder) {
  const TokenFile file = Random();
  for (const Packing packing : {Packing::kStream, Packing::kSentence}) {
    BatchSource shuffled(file, packing, 8, 42, true);
    BatchSource ordered(file, packing, 8, 42, false);
    const int n = static_cast<int>(shuffled.examples());
    const auto first = Take(shuffled, {n});
    EXPECT_EQ(shuffled.cursor(), (BatchCursor{1, 0}));
    const auto second = Take(shuffled, {n});
    const auto all = Take(ordered, {n});
    EXPECT_NE(first, second);
    EXPECT_THAT(first, ::testing::UnorderedElementsAreArray(all));
    EXPECT_THAT(second, ::testing::UnorderedElementsAreArray(all));
  }
}

TEST_F(Batches, TrainingRowsOfAStreamAreFull) {
  const TokenFile file = Small();
  BatchSource source(file, Packing::kStream, 4, 1, true);
  EXPECT_EQ(source.examples(), 2);  // 11 tokens: the last 3 are left out
  EXPECT_EQ(source.targets(), 8);
  Batch batch;
  ASSERT_TRUE(source.Next(7, batch));
  EXPECT_EQ(batch.B, 7);
  EXPECT_THAT(batch.lengths, IsEmpty());
  EXPECT_EQ(source.cursor(), (BatchCursor{3, 1}));
}

TEST_F(Batches, ATextShorterThanARowIsOneShortExample) {
  const TokenFile file = Small();
  BatchSource source(file, Packing::kStream, 64, 1, true);
  EXPECT_EQ(source.examples(), 1);
  Batch batch;
  ASSERT_TRUE(source.Next(2, batch));
  EXPECT_EQ(batch.B, 2);
  EXPECT_EQ(batch.target_count, 22);
  EXPECT_THAT(batch.lengths, ElementsAre(11, 11));
}

TEST_F(Batches, ACursorPutBackGivesTheSameExamplesFromAnyPlace) {
  const TokenFile file = Random();
  for (const Packing packing : {Packing::kStream, Packing::kSentence}) {
    BatchSource source(file, packing, 16, seed_, true);
    for (int trial = 0; trial < 50; ++trial) {
      Take(source, {static_cast<int>(1 + random_() % 150)});
      const BatchCursor saved = source.cursor();
      const auto expected = Take(source, {9, 4});
      BatchSource fresh(file, packing, 16, seed_, true);
      fresh.Seek(saved);
      EXPECT_EQ(fresh.cursor(), saved);
      ASSERT_EQ(Take(fresh, {9, 4}), expected) << "epoch " << saved.epoch << " position " << saved.position;
      EXPECT_EQ(fresh.cursor(), source.cursor());
    }
  }
}

TEST_F(Batches, TheExamplesDoNotDependOnTheCutting) {
  const TokenFile file = Random();
  BatchSource whole(file, Packing::kStream, 16, 3, true);
  const auto expected = Take(whole, {480});
  BatchSource pieces(file, Packing::kStream, 16, 3, true);
  std::vector<int> counts;
  for (int left = 480; left > 0; left -= counts.back())
    counts.push_back(std::min<int>(left, 1 + random_() % 50));
  EXPECT_EQ(Take(pieces, counts), expected);
  EXPECT_EQ(pieces.cursor(), whole.cursor());
}

// Two ranks that skip each other's half of every batch see together what one process sees.
TEST_F(Batches, RanksThatSkipSeeTheirShare) {
  const TokenFile file = Random();
  BatchSource one(file, Packing::kSentence, 16, 3, true);
  BatchSource rank0(file, Packing::kSentence, 16, 3, true), rank1(file, Packing::kSentence, 16, 3, true);
  for (int step = 0; step < 40; ++step) {
    const auto expected = Take(one, {8});
    auto both = Take(rank0, {4});
    rank0.Skip(4);
    rank1.Skip(4);
    for (Row& row : Take(rank1, {4})) both.push_back(std::move(row));
    ASSERT_EQ(both, expected) << step;
    ASSERT_EQ(rank0.cursor(), one.cursor());
    ASSERT_EQ(rank1.cursor(), one.cursor());
  }
  EXPECT_GT(one.cursor().epoch, 1);
}

TEST_F(Batches, SeedsGiveOtherOrders) {
  const TokenFile file = Random();
  BatchSource a(file, Packing::kStream, 16, 1, true), b(file, Packing::kStream, 16, 2, true);
  EXPECT_NE(Take(a, {30}), Take(b, {30}));
}

TEST_F(Batches, WrongLengthsAndEmptySplitsAreRefused) {
  const TokenFile file = Small();
  EXPECT_THROW(BatchSource(file, Packing::kStream, 0, 1, true), ConfigError);
  const TokenFile empty(WriteTokenFile(dir_ / "empty.tokens", {}, 8));
  EXPECT_THROW(BatchSource(empty, Packing::kStream, 8, 1, true), ConfigError);
  EXPECT_THROW(BatchSource(empty, Packing::kSentence, 8, 1, false), ConfigError);
}

}  // namespace
}  // namespace headsweep
