// Passes over fixed batches: what is read, and that ranks which share the work get the bits of one that does
// it all.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "data/token_format.h"
#include "kernels/backend.h"
#include "tests/support/temp_dir.h"
#include "tests/trainer/head_samples.h"
#include "trainer/batch_passes.h"
#include "trainer/model.h"

namespace headsweep {
namespace {

using head_samples::RandomBatch;
using head_samples::RandomParameters;
using head_samples::UnevenShape;

// 1000 tokens whose values are their positions, in sentences of 10.
TokenFile CountingTokens(const testing::TempDir& dir) {
  std::vector<std::int32_t> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::vector<std::int64_t> starts;
  for (std::int64_t start = 0; start <= 1000; start += 10) starts.push_back(start);
  FileSystem::Real().WriteFile(dir / "valid.tokens", SerializeTokens(tokens, starts, 1000));
  return TokenFile(dir / "valid.tokens");
}

std::vector<std::int32_t> Targets(const std::vector<Batch>& batches) {
  std::vector<std::int32_t> targets;
  for (const Batch& batch : batches)
    for (const std::int32_t target : batch.targets)
      if (target >= 0) targets.push_back(target);
  return targets;
}

TEST(ReadBatches, GivesEveryTokenOnceInOrderWhenAllAreWanted) {
  const testing::TempDir dir;
  const TokenFile file = CountingTokens(dir);
  TaskConfig task;
  task.length = 64;
  const auto batches = ReadBatches(file, task, 0, /*shuffle=*/false);
  std::vector<std::int32_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(Targets(batches), all);
  EXPECT_EQ(LargestBatch(batches), 8);
}

TEST(ReadBatches, TakesAsManyExamplesAsAreWantedAndThereAre) {
  const testing::TempDir dir;
  const TokenFile file = CountingTokens(dir);
  TaskConfig task;
  task.packing = "sentence";
  task.length = 20;
  const auto count = [&](std::int64_t wanted) {
    int examples = 0;
    for (const Batch& batch : ReadBatches(file, task, wanted, /*shuffle=*/true)) examples += batch.B;
    return examples;
  };
  EXPECT_EQ(count(1), 1);
  EXPECT_EQ(count(37), 37);
  EXPECT_EQ(count(5000), 100);
  EXPECT_EQ(count(0), 100);
}

TEST(ReadBatches, ASampleIsSpreadOverTheFileAndAlwaysTheSame) {
  const testing::TempDir dir;
  const TokenFile file = CountingTokens(dir);
  TaskConfig task;
  task.packing = "sentence";
  task.length = 10;
  auto sample = Targets(ReadBatches(file, task, 20, /*shuffle=*/true));
  EXPECT_EQ(sample, Targets(ReadBatches(file, task, 20, /*shuffle=*/true)));
  std::sort(sample.begin(), sample.end());
  EXPECT_EQ(std::unique(sample.begin(), sample.end()) - sample.begin(), 200) << "no example twice";
  EXPECT_LT(sample.front(), 300);
  EXPECT_GT(sample.back(), 700);
}

// Ranks as threads of this process. Sums in the order of the ranks.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks) {}
  void AddUp(int rank, double* values, std::int64_t count) {
    std::unique_lock lock(mutex_);
    parts_.resize(ranks_);
    parts_[rank].assign(values, values + count);
    Wait(lock);
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] = 0;
      for (const auto& part : parts_) values[i] += part[i];
    }
    Wait(lock);  // all have read before anybody writes again
  }
  int ranks() const { return ranks_; }

 private:
  void Wait(std::unique_lock<std::mutex>& lock) {
    const std::int64_t round = round_;
    if (++arrived_ == ranks_) {
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    } else if (!all_here_.wait_for(lock, std::chrono::seconds(60), [&] { return round_ != round; })) {
      throw CommError("another rank", "sum", 60, "it did not come");
    }
  }
  int ranks_, arrived_ = 0;
  std::int64_t round_ = 0;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<std::vector<double>> parts_;
};

class ThreadCollective final : public Collective {
 public:
  ThreadCollective(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int world_size() const override { return meeting_.ranks(); }
  std::string description() const override { return "threads of this process"; }
  void AllReduceSum(double* values, std::int64_t count) override { meeting_.AddUp(rank_, values, count); }
  void AllReduceSum(float*, std::int64_t) override { throw Unsupported("float sums between threads"); }
  void Broadcast(void*, std::int64_t, int) override { throw Unsupported("broadcast between threads"); }
  std::vector<std::string> AllGather(const std::string&) override {
    throw Unsupported("gather between threads");
  }
  void AllGatherShards(void*, std::int64_t, std::int64_t) override {
    throw Unsupported("shards between threads");
  }
  void Wait() override {}
  void Barrier() override {}

 private:
  Meeting& meeting_;
  int rank_;
};

struct Passed {
  double loss = 0;
  HeadScores scores;
  bool stopped = false;
};

// What rank `rank` of `ranks` gets; stop_rank's flag is set from the start (-1: nobody's).
std::vector<Passed> RunOn(int ranks, const std::vector<Batch>& batches, const std::vector<float>& parameters,
                          int stop_rank = -1) {
  Meeting meeting(ranks);
  std::vector<Passed> results(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCollective collective(meeting, rank);
      const std::atomic<bool> stop{rank == stop_rank};
      BatchPasses passes(collective, stop, [](const PassProgress&) {});
      const auto backend = MakeBackend({});
      Model model(*backend, UnevenShape(), LargestBatch(batches), Model::Purpose::kTrain);
      model.SetParameters(parameters);
      try {
        results[rank].loss = passes.Loss(model, batches).loss;
        results[rank].scores = passes.Importance(model, batches);
      } catch (const PassesStopped&) {
        results[rank].stopped = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

class SharedPasses : public ::testing::Test {
 protected:
  std::mt19937 random_{5};
  const std::vector<float> parameters_ = RandomParameters(UnevenShape(), random_);
  const std::vector<Batch> batches_ = {
      RandomBatch(UnevenShape(), 3, random_), RandomBatch(UnevenShape(), 2, random_),
      RandomBatch(UnevenShape(), 3, random_), RandomBatch(UnevenShape(), 1, random_),
      RandomBatch(UnevenShape(), 2, random_)};
};

TEST_F(SharedPasses, GiveTheSameBitsForAnyNumberOfRanks) {
  const Passed alone = RunOn(1, batches_, parameters_)[0];
  EXPECT_GT(alone.loss, 0);
  EXPECT_EQ(alone.scores.examples, 11);
  EXPECT_EQ(alone.scores.tokens, 11 * UnevenShape().length);
  for (const int ranks : {2, 3, 7}) {
    for (const Passed& passed : RunOn(ranks, batches_, parameters_)) {
      EXPECT_EQ(passed.loss, alone.loss) << ranks << " ranks";
      EXPECT_EQ(passed.scores.per_example, alone.scores.per_example);
      EXPECT_EQ(passed.scores.per_token, alone.scores.per_token);
      EXPECT_EQ(passed.scores.squares, alone.scores.squares);
      EXPECT_EQ(passed.scores.examples, alone.scores.examples);
      EXPECT_EQ(passed.scores.tokens, alone.scores.tokens);
    }
  }
}

TEST_F(SharedPasses, OneRankThatIsAskedToStopStopsThemAll) {
  for (const Passed& passed : RunOn(3, batches_, parameters_, /*stop_rank=*/1)) EXPECT_TRUE(passed.stopped);
}

}  // namespace
}  // namespace headsweep
