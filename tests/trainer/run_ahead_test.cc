// Training on a device that runs behind: recorded steps, numbers looked at while the next step runs,
// checkpoints copied out beside it. All of it changes no bit of what a step-by-step run gives. On
// cuda-on-host, whose runtime does enqueued work late and counts what it was asked for
// (kernels/cuda/on_host/runtime.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "kernels/cuda/on_host/runtime.h"
#include "tests/trainer/training_support.h"
#include "trainer/control_protocol.h"

namespace headsweep::testing {
namespace {

using cuda_on_host::internal::Activity;
using cuda_on_host::internal::CurrentActivity;
using ::testing::ElementsAre;

BackendOptions OnHost(const std::string& precision, bool run_ahead) {
  return {.device = "cuda-on-host", .threads = 1, .precision = precision, .run_ahead = run_ahead};
}

// Dropout, label smoothing, warm-up and decay, clipping at every step, micro-batches of two sizes.
StageConfig Config(const std::string& packing = "stream") {
  StageConfig config = SmallStage();
  config.task.packing = packing;
  config.train.steps = 9;
  config.train.batch = 7;
  config.train.micro_batch = 3;
  config.train.clip_norm = 0.3;
  config.train.evaluate_every = 5;
  config.train.evaluate_examples = 12;
  config.train.checkpoint_every = 3;
  config.id = ComputeStageId(config);
  return config;
}

class RunAhead : public ::testing::TestWithParam<std::string> {
 protected:
  StageSummary Undisturbed(const StageConfig& config, bool run_ahead) {
    TempDir other;
    Trial trial(other.path(), corpus_, config, OnHost(GetParam(), run_ahead));
    RecordingReporter reporter;
    return trial.Run(reporter).summary;
  }
  TempDir workspace_;
  PreparedCorpus corpus_ = MakeCorpus(workspace_ / "data");
};

TEST_P(RunAhead, GivesTheBitsOfARunStepByStep) {
  for (const char* packing : {"stream", "sentence"}) {  // sentence: rows and numbers of targets differ
    SCOPED_TRACE(packing);
    const std::uint64_t before = CurrentActivity().graph_launches;
    const StageSummary plain = Undisturbed(Config(packing), false);
    const std::uint64_t plain_launches = CurrentActivity().graph_launches - before;
    const StageSummary ahead = Undisturbed(Config(packing), true);
    EXPECT_EQ(plain_launches, 0u);
    EXPECT_GT(CurrentActivity().graph_launches, before + 4 * 6)
        << "micro-batches and optimiser were not recorded";
    EXPECT_EQ(ahead.digest, plain.digest);
    EXPECT_EQ(ahead.weights_checksum, plain.weights_checksum);
  }
}

TEST_P(RunAhead, StoppedAndContinuedItEndsWithTheSameBits) {
  const StageSummary plain = Undisturbed(Config(), false);
  for (const std::int64_t stop_at : {1, 5}) {
    SCOPED_TRACE(stop_at);
    TempDir other;
    Trial trial(other.path(), corpus_, Config(), OnHost(GetParam(), true));
    RecordingReporter reporter;
    reporter.on_progress = [&](const std::string& phase, std::int64_t step) {
      if (phase == "train" && step == stop_at) trial.stop = true;
    };
    EXPECT_EQ(trial.Run(reporter).outcome, control::kStopped);
    EXPECT_LE(reporter.checkpoints.back(), stop_at + 1) << "it went on after it had been asked to stop";
    trial.stop = false;
    reporter.on_progress = nullptr;
    const StageSummary summary = trial.Run(reporter).summary;
    EXPECT_EQ(summary.digest, plain.digest);
    EXPECT_EQ(summary.weights_checksum, plain.weights_checksum);
  }
}

struct Killed {};

TEST_P(RunAhead, KilledAnywhereItContinuesFromTheLastCheckpointWithTheSameBits) {
  const StageSummary plain = Undisturbed(Config(), false);
  Trial trial(workspace_.path(), corpus_, Config(), OnHost(GetParam(), true));
  RecordingReporter reporter;
  std::vector<std::int64_t> deaths = {2, 5, 8};
  reporter.on_progress = [&](const std::string&, std::int64_t step) {
    if (!deaths.empty() && step == deaths.front()) {
      deaths.erase(deaths.begin());
      throw Killed{};
    }
  };
  for (int life = 0; life < 3; ++life) EXPECT_THROW(trial.Run(reporter), Killed);
  EXPECT_EQ(trial.Run(reporter).summary.digest, plain.digest);
  EXPECT_THAT(reporter.started_at, ElementsAre(0, 0, 3, 6));
}

// A learning rate that no weights survive: the steps after the broken one were enqueued before anybody knew.
TEST_P(RunAhead, ADivergedStepIsTheLastOneAndChangesNoWeights) {
  StageConfig config = Config();
  config.train.learning_rate = 1e38;
  config.train.checkpoint_every = 1;
  config.id = ComputeStageId(config);
  std::vector<StageFile> results;
  std::vector<std::vector<std::int64_t>> checkpoints;
  for (const bool run_ahead : {false, true}) {
    Trial trial(workspace_ / (run_ahead ? "ahead" : "plain"), corpus_, config, OnHost(GetParam(), run_ahead));
    RecordingReporter reporter;
    EXPECT_EQ(trial.Run(reporter).outcome, control::kDiverged);
    results.push_back(ReadStageFile(trial.result()));
    checkpoints.push_back(reporter.checkpoints);
  }
  EXPECT_FALSE(results[0].tables.steps.empty());
  EXPECT_EQ(results[1].tables.steps.size(), results[0].tables.steps.size());
  EXPECT_EQ(results[1].summary.digest, results[0].summary.digest);
  EXPECT_EQ(results[1].summary.weights_checksum, results[0].summary.weights_checksum);
  EXPECT_EQ(results[1].summary.summary_line, results[0].summary.summary_line);
  EXPECT_EQ(checkpoints[1], checkpoints[0]);
}

TEST_P(RunAhead, AStepAllocatesNothingAndWaitsForNoStream) {
  StageConfig config = Config();
  config.train.evaluate_every = config.train.checkpoint_every = 100;
  Trial trial(workspace_.path(), corpus_, config, OnHost(GetParam(), true));
  RecordingReporter reporter;
  std::vector<Activity> at;
  reporter.on_progress = [&](const std::string& phase, std::int64_t) {
    if (phase == "train") at.push_back(CurrentActivity());
  };
  trial.Run(reporter);
  ASSERT_EQ(at.size(), 9u);
  // Step 1 runs as it is, step 2 records; when step 2 is looked at the third was enqueued.
  for (std::size_t i = 2; i < 8; ++i) {
    EXPECT_EQ(at[i].allocations, at[1].allocations) << "step " << i + 1;
    EXPECT_EQ(at[i].stream_waits, at[1].stream_waits) << "step " << i + 1;
    EXPECT_GT(at[i].pending, 0u) << "step " << i + 1 << " was looked at when nothing else ran";
    EXPECT_EQ(at[i].graph_launches - at[i - 1].graph_launches, 5u) << "three micro-batches, clipping, update";
  }
}

class LookingReporter final : public Reporter {
 public:
  void Progress(const std::string&, std::int64_t, std::int64_t, double, double) override {}
  void Evaluated(const EvaluationRow&) override {}
  void Checkpointed(std::int64_t step, const std::string& path) override { on_checkpoint(step, path); }
  std::function<void(std::int64_t, const std::string&)> on_checkpoint;
};

TEST_P(RunAhead, CheckpointsHoldTheBitsOfTheirStepWhileTheNextOneRuns) {
  StageConfig config = Config();
  config.train.checkpoint_every = 4;
  std::vector<std::map<std::int64_t, Checkpoint>> all;
  std::map<std::int64_t, std::size_t> pending;
  for (const bool run_ahead : {false, true}) {
    Trial trial(workspace_ / (run_ahead ? "ahead" : "plain"), corpus_, config, OnHost(GetParam(), run_ahead));
    LookingReporter reporter;
    auto& checkpoints = all.emplace_back();
    reporter.on_checkpoint = [&](std::int64_t step, const std::string& path) {
      if (run_ahead) pending[step] = CurrentActivity().pending;
      checkpoints[step] = ReadCheckpoint(FileSystem::Real(), path, config.id);
    };
    trial.Run(reporter);
  }
  ASSERT_EQ(all[1].size(), 3u);  // 4, 8, 9
  for (const auto& [step, checkpoint] : all[1]) {
    SCOPED_TRACE(step);
    const Checkpoint& expected = all[0].at(step);
    EXPECT_EQ(checkpoint.parameters, expected.parameters);
    EXPECT_EQ(checkpoint.m, expected.m);
    EXPECT_EQ(checkpoint.v, expected.v);
    EXPECT_EQ(checkpoint.cursor, expected.cursor);
    EXPECT_EQ(checkpoint.history.steps.size(), static_cast<std::size_t>(step));
    EXPECT_EQ(TablesDigest(checkpoint.history, 0), TablesDigest(expected.history, 0));
    if (step < 9) {
      EXPECT_GT(pending[step], 0u) << "nothing ran while the checkpoint was written";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, RunAhead, ::testing::Values("float32", "bfloat16"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace headsweep::testing
