// One trial as several real trainer processes, started by hand with torchrun-style variables: the mathematics
// of one process, whatever their number; stops, deaths and silence of a peer; resume on another number of
// processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "tests/support/temp_dir.h"
#include "tests/trainer/trainer_process.h"
#include "tests/trainer/training_support.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;
using testing::SmallStage;
using testing::TempDir;
using testing::TrainerProcess;
using Environment = std::map<std::string, std::string>;

constexpr int kPeer = 69;  // exit code of a process whose peer failed

std::string Sentences(int lines) {
  const char* words[] = {"king",     "river", "shepherd", "city",   "servant",
                         "mountain", "saw",   "left",     "praised"};
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < lines; ++i) {
    for (unsigned w = 0, n = 2 + random() % 9; w < n; ++w)
      text += std::string(w > 0 ? " " : "") + words[random() % 9];
    text += "\n";
  }
  return text;
}

double RelativeDistance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    size += std::pow(double{a[i]}, 2);
  }
  return std::sqrt(difference / size);
}

class DataParallel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TempDir;
    FileSystem::Real().WriteFile(*shared_ / "text.txt", Sentences(600));
    const CorpusRequest request = {.corpus = *shared_ / "text.txt", .vocabulary = 60};
    fingerprint_ = new std::string(
        PrepareCorpus(request, *shared_ / "data", FileSystem::Real(), [](const std::string&) {}).fingerprint);
  }
  static void TearDownTestSuite() {
    delete shared_;
    delete fingerprint_;
  }

  // Rows of very different numbers of targets, dropout, label smoothing, uneven heads.
  static StageConfig Config() {
    StageConfig config = SmallStage();
    config.task.corpus = *shared_ / "text.txt";
    config.task.vocabulary = 60;
    config.task.fingerprint = *fingerprint_;
    config.task.packing = "sentence";
    config.train.steps = 50;
    config.train.batch = 8;
    config.train.micro_batch = 2;
    config.train.evaluate_every = 25;
    config.train.checkpoint_every = 10;
    // Of biases of keys the exact gradient is zero. What Adam sees is rounding, which an epsilon below it
    // would blow up to steps of full size in one direction or the other.
    config.train.epsilon = 1e-5;
    config.id = ComputeStageId(config);
    return config;
  }

  struct Run {
    std::vector<int> codes;
    std::vector<std::string> logs;
  };
  // A run of `processes` in a workspace; each ends by itself.
  Run Train(const std::string& workspace, int processes, const StageConfig& config = Config(),
            const Environment& environment = {}) {
    FileSystem& files = FileSystem::Real();
    if (!files.Exists(workspace)) {
      files.CreateDirectories(workspace);
      std::filesystem::create_directory_symlink(*shared_ / "data", workspace + "/data");
    }
    files.WriteFile(workspace + "/stage.toml", FormatStageConfig(config));
    const std::string meeting = temp_ / ("meeting-" + std::to_string(++runs_));
    std::vector<std::unique_ptr<TrainerProcess>> trainers;
    Run run;
    for (int rank = 0; rank < processes; ++rank) {
      Environment variables = environment;
      variables.insert({{"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", std::to_string(processes)},
                        {"HEADSWEEP_RENDEZVOUS_DIR", meeting}});
      trainers.push_back(std::make_unique<TrainerProcess>(workspace + "/stage.toml", workspace, Log(rank),
                                                          false, variables));
    }
    for (int rank = 0; rank < processes; ++rank) {
      run.codes.push_back(trainers[static_cast<std::size_t>(rank)]->Wait());
      run.logs.push_back(files.ReadFile(Log(rank)));
    }
    return run;
  }
  std::string Log(int rank) const {
    return temp_ / ("log-" + std::to_string(runs_) + "-" + std::to_string(rank));
  }
  static std::string Trial(const std::string& workspace) { return workspace + "/trials/" + Config().id; }
  static StageFile Result(const std::string& workspace) {
    return ReadStageFile(Trial(workspace) + "/result.h5");
  }
  static Checkpoint Last(const std::string& workspace) {
    const FileSystem& files = FileSystem::Real();
    return ReadCheckpoint(files, LatestCheckpoint(files, Trial(workspace) + "/checkpoint").value(),
                          Config().id);
  }

  // Losses of every step and evaluation, importance, weights, moments and the place in the data.
  static void ExpectSameTraining(const std::string& a, const std::string& b, double tolerance = 1e-5) {
    const StageTables one = Result(a).tables, other = Result(b).tables;
    ASSERT_EQ(one.steps.size(), other.steps.size());
    for (std::size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_EQ(one.steps[i].step, static_cast<std::int64_t>(i) + 1);
      EXPECT_EQ(other.steps[i].step, static_cast<std::int64_t>(i) + 1);
      EXPECT_EQ(one.steps[i].targets, other.steps[i].targets) << "other data in step " << i + 1;
      EXPECT_NEAR(other.steps[i].loss / one.steps[i].loss, 1, tolerance) << i;
      EXPECT_NEAR(other.steps[i].gradient_norm / one.steps[i].gradient_norm, 1, 10 * tolerance) << i;
    }
    ASSERT_EQ(one.evaluations.size(), other.evaluations.size());
    for (std::size_t i = 0; i < one.evaluations.size(); ++i) {
      EXPECT_EQ(one.evaluations[i].pieces, other.evaluations[i].pieces);
      EXPECT_NEAR(other.evaluations[i].nll / one.evaluations[i].nll, 1, tolerance);
    }
    ASSERT_EQ(one.importance.size(), other.importance.size());
    for (std::size_t i = 0; i < one.importance.size(); ++i)
      EXPECT_NEAR(other.importance[i].per_example / one.importance[i].per_example, 1, 100 * tolerance);
    const Checkpoint mine = Last(a), theirs = Last(b);
    EXPECT_EQ(mine.cursor, theirs.cursor);
    EXPECT_LE(RelativeDistance(mine.parameters, theirs.parameters), tolerance);
    EXPECT_LE(RelativeDistance(mine.m, theirs.m), 100 * tolerance);
    RecordProperty("weights_relative_distance",
                   std::to_string(RelativeDistance(mine.parameters, theirs.parameters)));
  }

  TempDir temp_;
  int runs_ = 0;
  static TempDir* shared_;
  static std::string* fingerprint_;
};
TempDir* DataParallel::shared_ = nullptr;
std::string* DataParallel::fingerprint_ = nullptr;

TEST_F(DataParallel, OneTwoAndFourProcessesTrainAlikeAndRepeatTheirBits) {
  for (const int n : {1, 2, 4}) {
    const Run run = Train(temp_ / std::to_string(n), n);
    EXPECT_THAT(run.codes, ::testing::Each(0)) << run.logs.front();
  }
  ExpectSameTraining(temp_ / "1", temp_ / "2");
  ExpectSameTraining(temp_ / "1", temp_ / "4");
  for (const int n : {2, 4}) {
    const std::string again = temp_ / ("again-" + std::to_string(n));
    Train(again, n);
    EXPECT_EQ(Result(again).summary.digest, Result(temp_ / std::to_string(n)).summary.digest) << n;
  }
}

TEST_F(DataParallel, AStopOfOneProcessStopsAllAtOneStepAndAnyNumberGoesOn) {
  const std::string stopped = temp_ / "stopped";
  ASSERT_THAT(Train(temp_ / "whole", 1).codes, ::testing::Each(0));
  const Run stop = Train(stopped, 2, Config(),
                         {{"HEADSWEEP_TRAINER_DIE_AT", "23:SIGTERM"}, {"HEADSWEEP_TRAINER_FAULT_RANK", "1"}});
  EXPECT_THAT(stop.codes, ::testing::Each(75)) << stop.logs[1];
  const Checkpoint checkpoint = Last(stopped);
  EXPECT_GE(checkpoint.step, 23);
  EXPECT_LE(checkpoint.step, 24) << "the step whose sums told the others";
  EXPECT_EQ(checkpoint.cursor.position + checkpoint.cursor.epoch * 1000000, checkpoint.step * 8)
      << "within the first epoch: as many examples as steps times batch";
  for (const int n : {1, 2, 4}) {
    const std::string resumed = temp_ / ("resumed-on-" + std::to_string(n));
    std::filesystem::copy(
        stopped, resumed,
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    const Run run = Train(resumed, n);
    EXPECT_THAT(run.codes, ::testing::Each(0)) << run.logs.front();
    EXPECT_THAT(run.logs.front(), HasSubstr("continuing at step"));
    ExpectSameTraining(temp_ / "whole", resumed);
  }
}

TEST_F(DataParallel, ADeadPeerEndsTheOthersAndTheNextAttemptEndsWithTheSameBits) {
  ASSERT_THAT(Train(temp_ / "whole", 2).codes, ::testing::Each(0));
  const std::string broken = temp_ / "broken";
  const Run death =
      Train(broken, 2, Config(),
            {{"HEADSWEEP_TRAINER_DIE_AT", "23:SIGKILL"}, {"HEADSWEEP_TRAINER_FAULT_RANK", "1"}});
  EXPECT_THAT(death.codes, ::testing::ElementsAre(kPeer, 128 + SIGKILL)) << death.logs.front();
  EXPECT_THAT(death.logs.front(), HasSubstr("the peers of rank 0 of 2"));
  EXPECT_THAT(Train(broken, 2).codes, ::testing::Each(0));
  EXPECT_EQ(Result(broken).summary.digest, Result(temp_ / "whole").summary.digest);
}

TEST_F(DataParallel, AShardedOptimiserGivesTheSameBitsAndAnyNumberGoesOn) {
  ASSERT_THAT(Train(temp_ / "whole", 2).codes, ::testing::Each(0));
  StageConfig config = Config();
  config.run.shard_optimizer = true;
  const std::string sharded = temp_ / "sharded", stopped = temp_ / "stopped";
  ASSERT_THAT(Train(sharded, 2, config).codes, ::testing::Each(0));
  EXPECT_EQ(Result(sharded).summary.digest, Result(temp_ / "whole").summary.digest);
  Train(stopped, 2, config,
        {{"HEADSWEEP_TRAINER_DIE_AT", "23:SIGKILL"}, {"HEADSWEEP_TRAINER_FAULT_RANK", "0"}});
  EXPECT_EQ(Last(stopped).step, 20);
  ASSERT_THAT(Train(stopped, 3, config).codes, ::testing::Each(0));
  ExpectSameTraining(temp_ / "whole", stopped);
}

TEST_F(DataParallel, ASilentPeerEndsTheOthersAfterTheTimeout) {
  const std::string workspace = temp_ / "silent";
  StageConfig config = Config();
  FileSystem::Real().CreateDirectories(workspace);
  std::filesystem::create_directory_symlink(*shared_ / "data", workspace + "/data");
  FileSystem::Real().WriteFile(workspace + "/stage.toml", FormatStageConfig(config));
  const Environment common = {{"WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "127.0.0.1"},
                              {"MASTER_PORT", std::to_string(20000 + ::getpid() % 20000)},
                              {"HEADSWEEP_COLLECTIVE_TIMEOUT", "2"},
                              {"HEADSWEEP_TRAINER_HANG_AT", "23"},
                              {"HEADSWEEP_TRAINER_FAULT_RANK", "1"}};
  const auto start = [&](const std::string& rank) {
    Environment variables = common;
    variables["RANK"] = rank;
    return std::make_unique<TrainerProcess>(workspace + "/stage.toml", workspace, temp_ / ("log" + rank),
                                            false, variables);
  };
  const auto first = start("0"), second = start("1");
  EXPECT_EQ(first->Wait(), kPeer);
  EXPECT_THAT(FileSystem::Real().ReadFile(temp_ / "log0"), HasSubstr("all-reduce"));
}

TEST_F(DataParallel, BucketsThatLeaveEarlyAndRoundedSumsTrainAsWell) {
  StageConfig config = Config();
  config.model.embed = 96;
  config.model.head_size = 32;
  config.model.feed_forward = 1024;  // over a megabyte of gradients in each layer
  config.train.steps = 6;
  config.id = ComputeStageId(config);
  const auto losses = [&](const std::string& name, int processes, int bucket, const std::string& wire) {
    config.run.bucket_megabytes = bucket;
    config.run.wire = wire;
    const Run run = Train(temp_ / name, processes, config);
    EXPECT_THAT(run.codes, ::testing::Each(0)) << run.logs.front();
    std::vector<double> values;
    for (const StepRow& row :
         ReadStageFile(temp_ / (name + "/trials/" + config.id + "/result.h5")).tables.steps)
      values.push_back(row.loss);
    return values;
  };
  const std::vector<double> alone = losses("alone", 1, 25, "float32");
  const std::vector<double> early = losses("early", 2, 1, "float32");
  const std::vector<double> late = losses("late", 2, 0, "float32");
  const std::vector<double> rounded = losses("rounded", 2, 1, "bfloat16");
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_NEAR(early[i] / alone[i], 1, 1e-5);
    EXPECT_NEAR(late[i] / alone[i], 1, 1e-5);
    EXPECT_NEAR(rounded[i] / alone[i], 1, 1e-2);
  }
  EXPECT_NE(rounded, early) << "nothing was rounded";
}

// The CUDA path with several processes: recorded stretches of the backward pass with buckets leaving between
// them, sums by Gloo once the enqueued work is done.
TEST_F(DataParallel, ProcessesOnCudaOnHostTrainLikeOneOnTheCpuAndRepeatTheirBits) {
  StageConfig config = Config();
  config.model.embed = 96;
  config.model.head_size = 32;
  config.model.feed_forward = 1024;
  config.train.steps = 6;
  config.train.evaluate_every = config.train.checkpoint_every = 3;
  config.train.evaluate_examples = 16;
  config.run.bucket_megabytes = 1;
  config.id = ComputeStageId(config);
  const auto result = [&](const std::string& name, int processes, const std::string& device,
                          bool shard = false) {
    config.run.device = device;
    config.run.shard_optimizer = shard;
    const Run run = Train(temp_ / name, processes, config);
    EXPECT_THAT(run.codes, ::testing::Each(0)) << run.logs.front();
    EXPECT_EQ(run.logs.front().find("Gloo") != std::string::npos, processes > 1) << run.logs.front();
    const StageFile file = ReadStageFile(temp_ / (name + "/trials/" + config.id + "/result.h5"));
    EXPECT_THAT(file.provenance.device, HasSubstr(device));
    return file;
  };
  const StageFile cpu = result("cpu", 1, "cpu"), two = result("two", 2, "cuda-on-host");
  ASSERT_EQ(two.tables.steps.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(two.tables.steps[i].loss, cpu.tables.steps[i].loss, 1e-4) << i;
    EXPECT_NEAR(two.tables.steps[i].gradient_norm, cpu.tables.steps[i].gradient_norm, 1e-3) << i;
  }
  EXPECT_NEAR(two.summary.test_nll, cpu.summary.test_nll, 1e-4);
  EXPECT_EQ(result("again", 2, "cuda-on-host").summary.digest, two.summary.digest);
  EXPECT_EQ(result("sharded", 2, "cuda-on-host", true).summary.digest, two.summary.digest);
}

}  // namespace
}  // namespace headsweep
