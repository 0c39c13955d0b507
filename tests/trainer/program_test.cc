// The program headsweep-trainer as a launcher and a person meet it: messages, exit codes, signals, deaths,
// resume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cluster/base/gpu_report.h"
#include "cluster/base/run_program.h"
#include "kernels/backend.h"
#include "tests/support/temp_dir.h"
#include "tests/trainer/trainer_process.h"
#include "tests/trainer/training_support.h"

namespace headsweep {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::SmallStage;
using testing::TempDir;
using testing::TrainerProcess;

std::string Sentences(int lines) {
  const char* nouns[] = {"king", "river", "shepherd", "city", "servant", "mountain"};
  const char* verbs[] = {"saw", "left", "praised", "crossed"};
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text += std::string("the ") + nouns[random() % 6] + " " + verbs[random() % 4] + " the " +
            nouns[random() % 6] + " in year " + std::to_string(random() % 40) + "\n";
  }
  return text;
}

// One corpus for all tests of this file: preparing it takes longer than a run.
class TrainerProgram : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TempDir;
    FileSystem& files = FileSystem::Real();
    files.WriteFile(*shared_ / "text.txt", Sentences(400));
    const CorpusRequest request = {.corpus = *shared_ / "text.txt", .vocabulary = 60};
    const PreparedCorpus corpus = PrepareCorpus(request, *shared_ / "data", files, [](const std::string&) {});
    StageConfig config = SmallStage();
    config.task.corpus = request.corpus;
    config.task.vocabulary = request.vocabulary;
    config.task.fingerprint = corpus.fingerprint;
    config.id = ComputeStageId(config);
    config_ = new StageConfig(config);
    // What every disturbed run must arrive at.
    TrainerProgram undisturbed;
    TrainerProcess trainer = undisturbed.Start(false);
    ASSERT_EQ(trainer.Wait(), 0) << undisturbed.Log();
    digest_ = new std::string(undisturbed.Digest());
  }
  static void TearDownTestSuite() {
    delete shared_;
    delete config_;
    delete digest_;
  }
  TrainerProgram() {
    FileSystem& files = FileSystem::Real();
    files.CreateDirectories(workspace_.path());
    std::filesystem::create_directory_symlink(*shared_ / "data", workspace_ / "data");
    WriteConfig(*config_);
  }
  void TestBody() override {}

  void WriteConfig(const StageConfig& config) {
    FileSystem::Real().WriteFile(workspace_ / "stage.toml", FormatStageConfig(config));
  }
  TrainerProcess Start(bool channel, const std::map<std::string, std::string>& environment = {}) {
    return TrainerProcess(workspace_ / "stage.toml", workspace_.path(), workspace_ / "log.txt", channel,
                          environment);
  }
  std::string Trial() const { return workspace_ / ("trials/" + config_->id); }
  std::string Digest() const { return ReadStageFile(Trial() + "/result.h5").summary.digest; }
  std::string Log() const { return FileSystem::Real().ReadFile(workspace_ / "log.txt"); }

  TempDir workspace_;
  static TempDir* shared_;
  static StageConfig* config_;
  static std::string* digest_;
};
TempDir* TrainerProgram::shared_ = nullptr;
StageConfig* TrainerProgram::config_ = nullptr;
std::string* TrainerProgram::digest_ = nullptr;

TEST_F(TrainerProgram, AnswersAProbeWithOneReportWhateverTheMachine) {
  const std::string trainer = std::string(HEADSWEEP_BINARY_DIR) + "/headsweep-trainer";
  for (const char* visible : {"", "0", "NoDevFiles"}) {
    SCOPED_TRACE(visible);
    const ProgramResult result =
        RunProgram({trainer, "--probe"}, 60, /*merge_errors=*/true, {{"CUDA_VISIBLE_DEVICES", visible}});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    const auto report = FindGpuReport(result.output);
    ASSERT_TRUE(report) << result.output;
    EXPECT_EQ(result.output, ToJson(*report) + "\n");
    EXPECT_TRUE(report->problem || !report->devices.empty()) << "no device, and no reason";
    if (std::string(visible) != "0") {
      EXPECT_TRUE(report->devices.empty());
    }
  }
}

// A machine without a usable GPU, whatever the reason: the program says which, and trains on the CPU as every
// other test here.
TEST_F(TrainerProgram, OnCudaWithoutAUsableGpuFailsWithTheReasonAndTheRemedy) {
  const GpuReport report = ProbeGpus();
  if (!report.devices.empty()) GTEST_SKIP() << "there is a GPU here";
  StageConfig config = *config_;
  config.run.device = "cuda";
  WriteConfig(config);
  TrainerProcess trainer = Start(true);
  EXPECT_EQ(trainer.Wait(), report.cuda_build ? 71 : 2);
  ASSERT_FALSE(trainer.messages.empty());
  const auto& done = trainer.messages.back();
  EXPECT_EQ(done.at("cause"), report.cuda_build ? "device" : "configuration");
  EXPECT_THAT(done.at("message").get<std::string>(), HasSubstr(report.problem->message));
  EXPECT_THAT(done.at("message").get<std::string>(), HasSubstr(report.problem->remedy));
}

TEST_F(TrainerProgram, TellsItsAgentFromHelloToDone) {
  TrainerProcess trainer = Start(true);
  EXPECT_EQ(trainer.Wait(), 0);
  std::vector<std::string> types;
  for (const auto& message : trainer.messages) {
    if (types.empty() || types.back() != message.at("type")) types.push_back(message.at("type"));
  }
  EXPECT_EQ(trainer.messages.front().at("phase"), "load");
  EXPECT_THAT(types, Contains("hello"));
  EXPECT_THAT(types, Contains("checkpoint"));
  for (const auto& message : trainer.messages) {
    if (message.at("type") == "hello") {
      EXPECT_EQ(message.at("stage"), config_->id);
      EXPECT_EQ(message.at("attempt"), 1);
      EXPECT_EQ(message.at("step"), 0);
      EXPECT_EQ(message.at("steps"), 20);
    }
    if (message.at("type") == "evaluation") {
      EXPECT_GT(message.at("perplexity_per_word").get<double>(), 1);
    }
  }
  const auto& done = trainer.messages.back();
  EXPECT_EQ(done.at("type"), "done");
  EXPECT_EQ(done.at("outcome"), "finished");
  EXPECT_EQ(done.at("summary").at("digest"), *digest_);
  EXPECT_THAT(done.at("summary").at("summary_line").get<std::string>(), HasSubstr("perplexity per word"));
  EXPECT_EQ(Digest(), *digest_);
  EXPECT_TRUE(FileSystem::Real().Exists(Trial() + "/config.toml"));
}

TEST_F(TrainerProgram, WithAResultThereIsNothingToDo) {
  EXPECT_EQ(Start(false).Wait(), 0);
  TrainerProcess again = Start(true);
  EXPECT_EQ(again.Wait(), 0);
  EXPECT_EQ(again.messages.back().at("outcome"), "finished");
  EXPECT_EQ(again.messages.back().at("summary").at("digest"), *digest_);
  for (const auto& message : again.messages) EXPECT_NE(message.at("type"), "checkpoint");
  EXPECT_TRUE(FileSystem::Real().Exists(Trial() + "/attempt-2"));
}

TEST_F(TrainerProgram, ADamagedResultIsMovedAsideAndMadeAgain) {
  EXPECT_EQ(Start(false).Wait(), 0);
  FileSystem& files = FileSystem::Real();
  files.Truncate(Trial() + "/result.h5", files.FileSize(Trial() + "/result.h5") - 100);
  EXPECT_EQ(Start(false).Wait(), 0) << Log();
  EXPECT_EQ(Digest(), *digest_);
  EXPECT_TRUE(files.Exists(Trial() + "/result.h5.damaged"));
}

TEST_F(TrainerProgram, EveryWayOfAskingItToStopLeavesACheckpointAndTheSameBits) {
  const std::map<std::string, std::function<void(TrainerProcess&)>> ways = {
      {"message", [](TrainerProcess& t) { t.Say(R"({"type":"stop"})"); }},
      {"end of channel", [](TrainerProcess& t) { t.CloseChannel(); }},
      {"SIGTERM", [](TrainerProcess& t) { t.Signal(SIGTERM); }},
      {"SIGINT", [](TrainerProcess& t) { t.Signal(SIGINT); }},
      {"SIGUSR1", [](TrainerProcess& t) { t.Signal(SIGUSR1); }},
      {"SIGUSR2", [](TrainerProcess& t) { t.Signal(SIGUSR2); }}};
  StageConfig endless = *config_;  // so long that it cannot finish before the request arrives
  endless.train.steps = 1'000'000;
  endless.id = ComputeStageId(endless);
  for (const auto& [way, ask] : ways) {
    SCOPED_TRACE(way);
    WriteConfig(endless);
    TrainerProcess trainer = Start(true);
    trainer.Await("progress", 1);
    ask(trainer);
    EXPECT_EQ(trainer.Wait(), 75) << Log();
    if (way != "end of channel") {
      EXPECT_EQ(trainer.messages.back().at("outcome"), "stopped");
      EXPECT_TRUE(trainer.messages.back().at("summary").is_null());
    }
    EXPECT_TRUE(LatestCheckpoint(FileSystem::Real(), workspace_ / ("trials/" + endless.id + "/checkpoint")));
  }
}

TEST_F(TrainerProgram, KilledAtAStepItGoesOnFromTheCheckpointBeforeAndEndsWithTheSameBits) {
  for (const auto& [fault, status] :
       std::vector<std::pair<std::string, int>>{{"3:SIGKILL", 128 + SIGKILL},
                                                {"8:SIGSEGV", 128 + SIGSEGV},
                                                {"10:9", 9},
                                                {"20:SIGABRT", 128 + SIGABRT}}) {
    // A sanitizer would make an exit of the signal.
    TrainerProcess trainer = Start(true, {{"HEADSWEEP_TRAINER_DIE_AT", fault}, {"ASAN_OPTIONS", "handle_segv=0:handle_abort=0"}});
    EXPECT_EQ(trainer.Wait(), status) << fault;
    for (const auto& message : trainer.messages) EXPECT_NE(message.at("type"), "done") << fault;
  }
  // The fault is meant for another attempt: this one passes.
  TrainerProcess last =
      Start(true, {{"HEADSWEEP_TRAINER_DIE_AT", "18:SIGKILL"}, {"HEADSWEEP_TRAINER_FAULT_ATTEMPT", "1"}});
  EXPECT_EQ(last.Wait(), 0) << Log();
  EXPECT_EQ(Digest(), *digest_);
}

TEST_F(TrainerProgram, CrashedAtAnyDurableOperationItEndsWithTheSameBits) {
  // Each crash is followed by the next in the same workspace until one run
  // survives.
  int crashes = 0, status = 0;
  for (int n = 2;; n += 3) {
    status = Start(false, {{"HEADSWEEP_CRASH_AT", "any:" + std::to_string(n)}}).Wait();
    if (status != 137) break;
    ++crashes;
    ASSERT_LT(crashes, 50);
  }
  EXPECT_GT(crashes, 5);
  EXPECT_EQ(status, 0) << Log();
  EXPECT_EQ(Digest(), *digest_);
}

TEST_F(TrainerProgram, AHungTrainerNeitherReportsNorObeys) {
  TrainerProcess trainer = Start(true, {{"HEADSWEEP_TRAINER_HANG_AT", "2"}});
  trainer.Await("progress", 1);
  trainer.Say(R"({"type":"stop"})");
  trainer.Signal(SIGTERM);
  trainer.Signal(SIGKILL);
  EXPECT_EQ(trainer.Wait(), 128 + SIGKILL);
  for (const auto& message : trainer.messages) EXPECT_NE(message.at("type"), "done");
}

struct Fault {
  std::string name;
  std::function<void(StageConfig&)> change;
  std::map<std::string, std::string> environment;
  int status;
  std::string cause, message;
};

TEST_F(TrainerProgram, FailuresHaveACauseAMessageAndAnExitCode) {
  const Fault faults[] = {
      {"foreign id",
       [](StageConfig& c) { c.id = "0000000000000000"; },
       {},
       2,
       "configuration",
       "its content is that of"},
      {"unknown corpus",
       [](StageConfig& c) { c.task.corpus = "no-such-corpus", c.task.fingerprint = "", c.id = ""; },
       {},
       2,
       "configuration",
       "no-such-corpus"},
      {"other text",
       [](StageConfig& c) { c.task.fingerprint = "aaaaaaaaaaaaaaaa", c.id = ""; },
       {},
       2,
       "configuration",
       "has fingerprint"},
      {"little memory",
       [](StageConfig&) {},
       {{"HEADSWEEP_MEMORY_LIMIT", "210000"}},
       12,
       "out-of-memory",
       "micro_batch"},
      {"wrong fault",
       [](StageConfig&) {},
       {{"HEADSWEEP_TRAINER_DIE_AT", "soon"}},
       2,
       "configuration",
       "7:SIGKILL"},
      {"more processes than examples",
       [](StageConfig&) {},
       {{"WORLD_SIZE", "1000"}},
       2,
       "configuration",
       "WORLD_SIZE=1000"},
      {"a rank beyond the world", [](StageConfig&) {}, {{"RANK", "1"}}, 2, "configuration", "RANK=1"}};
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.name);
    StageConfig config = *config_;
    fault.change(config);
    WriteConfig(config);
    TrainerProcess trainer = Start(true, fault.environment);
    EXPECT_EQ(trainer.Wait(), fault.status);
    ASSERT_FALSE(trainer.messages.empty());
    const auto& done = trainer.messages.back();
    EXPECT_EQ(done.at("type"), "done");
    EXPECT_EQ(done.at("outcome"), "failed");
    EXPECT_EQ(done.at("cause"), fault.cause);
    EXPECT_THAT(done.at("message").get<std::string>(), HasSubstr(fault.message));
    EXPECT_THAT(Log(), HasSubstr(fault.message));
  }
}

TEST_F(TrainerProgram, ADivergedRunIsDoneNotFailed) {
  StageConfig config = *config_;
  config.train.learning_rate = 1000;  // weights grow a hundred thousandfold a step
  config.train.weight_decay = 100;
  config.id = ComputeStageId(config);
  WriteConfig(config);
  TrainerProcess trainer = Start(true);
  EXPECT_EQ(trainer.Wait(), 0);
  EXPECT_EQ(trainer.messages.back().at("outcome"), "diverged");
  EXPECT_TRUE(trainer.messages.back().at("summary").at("test_nll").is_null());
}

TEST_F(TrainerProgram, GarbageOnTheChannelChangesNothing) {
  TrainerProcess trainer = Start(true);
  trainer.Say("not JSON\n[1]\n{\"type\":7}\n{\"type\":\"dance\"}");
  EXPECT_EQ(trainer.Wait(), 0);
  EXPECT_EQ(trainer.messages.back().at("outcome"), "finished");
}

}  // namespace
}  // namespace headsweep
