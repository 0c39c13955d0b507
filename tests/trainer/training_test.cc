// The training stage as a whole: what it records, how it stops, dies, resumes and diverges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "cluster/base/errors.h"
#include "cluster/base/memory.h"
#include "sweeps/cost.h"
#include "tests/cluster/environment.h"
#include "tests/support/corpora.h"
#include "tests/trainer/training_support.h"
#include "trainer/control_protocol.h"
#include "trainer/training_memory.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeCorpus;
using testing::RecordingReporter;
using testing::ScopedVariable;
using testing::SmallStage;
using testing::TempDir;
using testing::Trial;

class Training : public ::testing::Test {
 protected:
  // The digest and the weights of a run that nothing disturbed.
  StageSummary Undisturbed(const StageConfig& config) {
    TempDir other;
    Trial trial(other.path(), corpus_, config);
    RecordingReporter reporter;
    return trial.Run(reporter).summary;
  }
  static std::vector<std::int64_t> StepsOf(const StageTables& tables) {
    std::vector<std::int64_t> steps;
    for (const StepRow& row : tables.steps) steps.push_back(row.step);
    return steps;
  }
  TempDir workspace_;
  PreparedCorpus corpus_ = MakeCorpus(workspace_ / "data");
};

TEST_F(Training, RecordsStepsEvaluationsImportanceAndSealsTheResult) {
  const StageConfig config = SmallStage();
  const ScopedVariable job("SLURM_JOB_ID", nullptr), array("SLURM_ARRAY_JOB_ID", nullptr), pbs("PBS_JOBID", nullptr);
  Trial trial(workspace_.path(), corpus_, config);
  RecordingReporter reporter;
  const StageOutcome outcome = trial.Run(reporter);
  EXPECT_EQ(outcome.outcome, control::kFinished);
  EXPECT_THAT(reporter.started_at, ElementsAre(0));
  EXPECT_THAT(reporter.checkpoints, ElementsAre(5, 10, 15, 20));
  EXPECT_THAT(FileSystem::Real().List(trial.directory() + "/checkpoint"), ElementsAre("step-15", "step-20"));

  const StageFile result = ReadStageFile(trial.result());
  ASSERT_EQ(result.tables.steps.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) {
    const StepRow& row = result.tables.steps[i];
    EXPECT_EQ(row.step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(row.targets, 6 * 12);
    EXPECT_TRUE(row.loss > 0 && row.gradient_norm > 0 && row.learning_rate > 0 && row.seconds > 0) << i;
  }
  EXPECT_LT(result.tables.steps[19].loss, result.tables.steps[0].loss - 0.15);
  std::vector<std::string> evaluations;
  for (const EvaluationRow& row : result.tables.evaluations) {
    evaluations.push_back(row.split + " " + std::to_string(row.step));
    EXPECT_EQ(row.pieces, (row.split == "valid" ? corpus_.valid : corpus_.test).pieces);
    EXPECT_NEAR(row.perplexity_per_piece, std::exp(row.nll), 1e-9 * row.perplexity_per_piece);
  }
  EXPECT_THAT(evaluations, ElementsAre("valid 8", "valid 16", "valid 20", "test 20"));
  ASSERT_EQ(result.tables.importance.size(), 3u * 4);
  EXPECT_EQ(result.tables.importance[3].layer, 1);
  EXPECT_EQ(result.tables.importance[3].step, 8);
  EXPECT_DOUBLE_EQ(result.tables.importance[3].normalized, 1);  // alone in its layer
  EXPECT_GT(result.tables.importance[0].per_example, 0);
  EXPECT_GT(result.tables.importance[0].magnitude, 0);

  EXPECT_EQ(result.summary.digest, outcome.summary.digest);
  EXPECT_EQ(result.summary.digest, TablesDigest(result.tables, result.summary.weights_checksum));
  EXPECT_EQ(result.summary.weights_checksum, WeightsChecksum(trial.Last().parameters));
  EXPECT_EQ(result.summary.valid_nll, result.tables.evaluations[2].nll);
  EXPECT_EQ(result.summary.test_nll, result.tables.evaluations[3].nll);
  EXPECT_GT(result.summary.peak_memory_bytes, 1 << 20);
  EXPECT_EQ(result.provenance.stage_id, config.id);
  EXPECT_EQ(result.provenance.data_fingerprint, corpus_.fingerprint);
  EXPECT_EQ(result.provenance.job, "") << "not within a job";
  EXPECT_EQ(ReadStageFile(trial.metrics()).tables.steps.size(), 20u);
}

TEST_F(Training, TheBatchJobIsInTheProvenanceAndInNoDigest) {
  const StageConfig config = SmallStage();
  const StageSummary outside = Undisturbed(config);
  const ScopedVariable job("SLURM_JOB_ID", "77"), array("SLURM_ARRAY_JOB_ID", "76"), task("SLURM_ARRAY_TASK_ID", "3"),
      restarts("SLURM_RESTART_COUNT", "2");
  Trial trial(workspace_.path(), corpus_, config);
  RecordingReporter reporter;
  EXPECT_EQ(trial.Run(reporter).summary.digest, outside.digest);
  for (const std::string& path : {trial.result(), trial.metrics()}) {
    const StageFile file = ReadStageFile(path);
    EXPECT_EQ(file.provenance.job, "76_3") << path;
    EXPECT_EQ(file.provenance.job_restart, 2) << path;
  }
}

TEST_F(Training, StoppedAndContinuedItEndsWithTheSameBits) {
  for (const char* packing : {"stream", "sentence"}) {
    StageConfig config = SmallStage();
    config.task.packing = packing;
    config.id = ComputeStageId(config);
    const StageSummary undisturbed = Undisturbed(config);
    for (const std::int64_t stop_at :
         {1, 7, 8, 10, 20}) {  // 8: an evaluation is due; 10: a checkpoint; 20: the end
      SCOPED_TRACE(std::string(packing) + ", stopped at " + std::to_string(stop_at));
      TempDir other;
      Trial trial(other.path(), corpus_, config);
      RecordingReporter reporter;
      reporter.on_progress = [&](const std::string& phase, std::int64_t step) {
        if (phase == "train" && step == stop_at) trial.stop = true;
      };
      EXPECT_EQ(trial.Run(reporter).outcome, control::kStopped);
      EXPECT_FALSE(FileSystem::Real().Exists(trial.result()));
      EXPECT_EQ(reporter.checkpoints.back(), stop_at);
      trial.stop = false;
      reporter.on_progress = nullptr;
      const StageOutcome outcome = trial.Run(reporter);
      EXPECT_EQ(outcome.outcome, control::kFinished);
      EXPECT_EQ(reporter.started_at.back(), stop_at);
      EXPECT_EQ(outcome.summary.digest, undisturbed.digest);
      EXPECT_EQ(outcome.summary.weights_checksum, undisturbed.weights_checksum);
    }
  }
}

TEST_F(Training, StoppedInTheMiddleOfAnEvaluationItEndsWithTheSameBits) {
  const StageConfig config = SmallStage();
  Trial trial(workspace_.path(), corpus_, config);
  RecordingReporter reporter;
  int passes = 0;
  reporter.on_progress = [&](const std::string& phase, std::int64_t step) {
    if (phase == "evaluate" && step == 16 && ++passes == 3) trial.stop = true;
  };
  EXPECT_EQ(trial.Run(reporter).outcome, control::kStopped);
  EXPECT_EQ(passes, 3) << "it went on evaluating after it had been asked to stop";
  EXPECT_EQ(reporter.evaluations.size(), 1u);
  trial.stop = false;
  EXPECT_EQ(trial.Run(reporter).summary.digest, Undisturbed(config).digest);
}

struct Killed {};

TEST_F(Training, KilledAnywhereItContinuesFromTheLastCheckpointWithTheSameBits) {
  const StageConfig config = SmallStage();
  const StageSummary undisturbed = Undisturbed(config);
  Trial trial(workspace_.path(), corpus_, config);
  RecordingReporter reporter;
  std::vector<std::int64_t> deaths = {3, 9, 12, 20};
  reporter.on_progress = [&](const std::string&, std::int64_t step) {
    if (!deaths.empty() && step == deaths.front()) {
      deaths.erase(deaths.begin());
      throw Killed{};
    }
  };
  for (int life = 0; life < 4; ++life) EXPECT_THROW(trial.Run(reporter), Killed);
  const StageOutcome outcome = trial.Run(reporter);
  EXPECT_THAT(reporter.started_at, ElementsAre(0, 0, 5, 10, 15));
  EXPECT_EQ(outcome.summary.digest, undisturbed.digest);
  EXPECT_EQ(outcome.summary.weights_checksum, undisturbed.weights_checksum);
}

TEST_F(Training, ADamagedNewestCheckpointCostsStepsButNoBits) {
  const StageConfig config = SmallStage();
  Trial trial(workspace_.path(), corpus_, config);
  RecordingReporter reporter;
  reporter.on_progress = [&](const std::string&, std::int64_t step) { trial.stop = step >= 17; };
  trial.Run(reporter);
  FileSystem& files = FileSystem::Real();
  const std::string weights = trial.directory() + "/checkpoint/step-17/model.safetensors";
  files.Truncate(weights, files.FileSize(weights) - 4);
  trial.stop = false;
  reporter.on_progress = nullptr;
  EXPECT_EQ(trial.Run(reporter).summary.digest, Undisturbed(config).digest);
  EXPECT_EQ(reporter.started_at.back(), 15);
}

TEST_F(Training, MicroBatchesChangeMemoryNotMathematics) {
  StageConfig config = SmallStage();
  config.train.steps = 8;
  std::vector<double> losses;
  for (const int micro_batch : {0, 1, 4}) {
    config.train.micro_batch = micro_batch;
    losses.push_back(Undisturbed(config).valid_nll);
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-4);
  EXPECT_NEAR(losses[0], losses[2], 1e-4);
}

TEST_F(Training, DivergenceIsAResult) {
  StageConfig config = SmallStage();
  config.train.learning_rate = 1e38;
  config.id = ComputeStageId(config);
  Trial trial(workspace_.path(), corpus_, config);
  RecordingReporter reporter;
  const StageOutcome outcome = trial.Run(reporter);
  EXPECT_EQ(outcome.outcome, control::kDiverged);
  const StageFile result = ReadStageFile(trial.result());
  EXPECT_EQ(result.summary.outcome, control::kDiverged);
  EXPECT_THAT(result.summary.summary_line, HasSubstr("diverged at step"));
  ASSERT_FALSE(result.tables.steps.empty());
  EXPECT_FALSE(std::isfinite(result.tables.steps.back().loss) &&
               std::isfinite(result.tables.steps.back().gradient_norm));
  EXPECT_EQ(outcome.summary.digest, Undisturbed(config).digest);
}

// The launcher packs trials by the plan's estimate before anything is measured.
TEST_F(Training, ThePlansMemoryIsWhatTheTrainerWillTake) {
  const auto backend = MakeBackend({"cpu", 1});
  for (const auto& [embed, layers, batch, devices] : {std::tuple(512, 4, 32, 1), std::tuple(128, 2, 64, 1), std::tuple(256, 6, 16, 2)}) {
    StageConfig config = SmallStage();
    config.model.layers = layers;
    config.model.embed = embed;
    config.model.head_size = 32;
    config.model.feed_forward = 4 * embed;
    config.model.heads.assign(static_cast<std::size_t>(layers), embed / 32);
    config.task.length = 64;
    config.train.batch = batch;
    config.train.micro_batch = 0;
    config.run.devices = devices;
    config.run.shard_optimizer = devices > 1;
    const ModelShape shape = MakeModelShape(config, corpus_.vocabulary);
    config.task.vocabulary = shape.vocabulary;
    const auto taken =
        static_cast<double>(TrainingBytes(*backend, shape, MicroBatch(config.train, devices), devices) + (40 << 20));
    EXPECT_NEAR(static_cast<double>(EstimateCost(config, {}).memory_bytes) / taken, 1, 0.1) << embed << " " << devices;
  }
}

TEST_F(Training, AForeignCheckpointIsRefused) {
  const StageConfig config = SmallStage();
  Trial trial(workspace_.path(), corpus_, config);
  Checkpoint foreign;
  foreign.shape = MakeModelShape(config, corpus_.vocabulary);
  foreign.stage_id = "ffffffffffffffff";
  foreign.parameters.resize(static_cast<std::size_t>(ParameterLayout(foreign.shape).size()));
  WriteCheckpoint(FileSystem::Real(), trial.directory() + "/checkpoint", foreign, Provenance{}, 0);
  RecordingReporter reporter;
  EXPECT_THROW(trial.Run(reporter), ConfigError);
}

TEST_F(Training, TooLittleMemorySaysHowMuchIsNeededAndWhatWouldFit) {
  const auto backend = MakeBackend({"cpu", 1});
  StageConfig config = SmallStage();
  config.train.micro_batch = 0;
  config.train.batch = 64;
  const ModelShape shape = MakeModelShape(config, corpus_.vocabulary);
  EXPECT_NO_THROW(
      RequireTrainingMemory(*backend, shape, config.train, {.process = TrainingBytes(*backend, shape, 64)}));
  try {
    RequireTrainingMemory(*backend, shape, config.train, {.process = TrainingBytes(*backend, shape, 20)});
    FAIL();
  } catch (const std::bad_alloc& error) {
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(TrainingBytes(*backend, shape, 64)) + " bytes"));
    EXPECT_THAT(error.what(), HasSubstr("train.micro_batch = 16 would fit"));
  }
  ::setenv("HEADSWEEP_MEMORY_LIMIT", "1000", 1);
  Trial trial(workspace_.path(), corpus_, config);
  RecordingReporter reporter;
  EXPECT_THROW(trial.Run(reporter), OutOfMemory);
  ::unsetenv("HEADSWEEP_MEMORY_LIMIT");
}

TEST_F(Training, ADeviceOfItsOwnHoldsTheModelAndTheProcessTheCheckpoints) {
  const auto backend = MakeBackend({"cpu", 1});
  StageConfig config = SmallStage();
  config.train.micro_batch = 0;
  config.train.batch = 64;
  const ModelShape shape = MakeModelShape(config, corpus_.vocabulary);
  const std::int64_t host = CheckpointBytes(shape);
  const auto complaint = [&](std::int64_t process, std::int64_t device) -> std::string {
    try {
      RequireTrainingMemory(*backend, shape, config.train, {.process = process, .device = device});
    } catch (const OutOfMemory& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint(host, ModelBytes(*backend, shape, 64)), "");
  const std::string small_device = complaint(host, ModelBytes(*backend, shape, 20));
  EXPECT_THAT(small_device,
              HasSubstr(std::to_string(ModelBytes(*backend, shape, 64)) + " bytes) on the device"));
  EXPECT_THAT(small_device, HasSubstr("train.micro_batch = 16 would fit"));
  EXPECT_THAT(complaint(host, ModelBytes(*backend, shape, 1) - 1), HasSubstr("a GPU with more memory"));
  EXPECT_THAT(complaint(host - 1, ModelBytes(*backend, shape, 64)), HasSubstr("for checkpoints"));
}

// Real text: the loss of a small model falls well below that of guessing by frequency.
TEST(TrainingOnRealText, TheLossFalls) {
  const std::string kjv = testing::CorpusFile("lm-kjv/kjv.txt");
  if (kjv.empty()) GTEST_SKIP() << "no corpora: set HEADSWEEP_CORPORA to a folder with lm-kjv/kjv.txt";
  TempDir workspace;
  std::string text = FileSystem::Real().ReadFile(kjv);
  text.resize(text.rfind('\n', 150'000) + 1);
  FileSystem::Real().WriteFile(workspace / "text.txt", text);
  const PreparedCorpus corpus =
      PrepareCorpus({.corpus = workspace / "text.txt", .vocabulary = 500}, workspace / "data",
                    FileSystem::Real(), [](const std::string&) {});
  StageConfig config = SmallStage();
  config.task.fingerprint = corpus.fingerprint;
  config.task.length = 32;
  config.model = {.layers = 2, .embed = 32, .heads = {2, 2}, .head_size = 24, .feed_forward = 64};
  config.train.steps = 150;
  config.train.batch = config.train.micro_batch = 16;
  config.train.evaluate_every = config.train.checkpoint_every = 150;
  config.id = ComputeStageId(config);
  Trial trial(workspace.path(), corpus, config);
  RecordingReporter reporter;
  const StageSummary summary = trial.Run(reporter).summary;
  const StageFile result = ReadStageFile(trial.result());
  EXPECT_NEAR(result.tables.steps.front().loss, std::log(500.0), 0.3);
  EXPECT_TRUE(summary.valid_nll < 5.0) << summary.valid_nll;
  EXPECT_GT(summary.valid_perplexity, std::exp(summary.valid_nll));  // words are longer than pieces
}

}  // namespace
}  // namespace headsweep
