// What bit users of other tools, tried on the real `headsweep` with fake trainers. tests/FIELD_CASES.md says which thread each
// case is from, and names the tests elsewhere that prove the rest.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "launcher/journal.h"
#include "tests/launcher/launcher_fixture.h"
#include "tests/support/headsweep_program.h"

namespace headsweep {
namespace {

using namespace testing;

class FieldCase : public ::testing::Test {
 protected:
  FieldCase() : workspace_(temp_ / "runs") { WriteSmallCorpus(temp_ / "text.txt", 300); }

  void WriteSweep(int trials) const {
    std::ofstream(temp_ / "sweep.toml")
        << "name = \"s\"\n[task]\ncorpus = \"./text.txt\"\nvocabulary = 100\nlength = 16\n"
        << "[model]\nlayers = 1\nembed = 16\nheads = 2\n[train]\nsteps = 6\nbatch = 4\n"
        << "[grid]\nseed = { count = " << trials << " }\n";
  }
  std::string Events() const { return temp_ / "events"; }

  HeadsweepProgram Start(std::vector<std::string> words, std::vector<std::pair<std::string, std::string>> more = {}) {
    words.insert(words.end(), {"--workspace", workspace_.root()});
    more.insert(more.end(),
                {{"HEADSWEEP_TRAINER", FakeTrainerPath()}, {"FAKE_EVENTS", Events()}, {"HEADSWEEP_KILL_GRACE", "0.3"}});
    return HeadsweepProgram(words, temp_ / ("log-" + std::to_string(++programs_)), more);
  }
  HeadsweepProgram Run(const std::vector<std::pair<std::string, std::string>>& more = {}) {
    return Start({"run", temp_ / "sweep.toml", "--no-report", "--slots", "2"}, more);
  }
  void RemoveSweepAndTrials() const {
    std::filesystem::remove_all(workspace_.SweepsRoot());
    std::filesystem::remove_all(workspace_.TrialsRoot());
    std::filesystem::remove(Events());
  }

  TempDir temp_;
  Workspace workspace_;
  int programs_ = 0;
};

TEST_F(FieldCase, KilledAgainAndAgainEveryTrialKeepsItsOneFolderAndAttemptsCountUp) {
  WriteSweep(12);
  for (const int finished : {3, 6, 9}) {
    auto run = Run();
    ASSERT_TRUE(WaitUntil([&] { return CountFakeEvents(Events(), "finish") >= finished; }));
    run.Signal(SIGKILL);
    EXPECT_EQ(run.Wait().code, 128 + SIGKILL);
  }
  const Finished end = Run().Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(FileSystem::Real().List(workspace_.TrialsRoot()).size(), 12u);
  std::map<std::string, int> attempts, finishes;
  for (const JournalEvent& event : ReadJournal(FileSystem::Real(), workspace_.Journal("s")).events) {
    if (event.type != journal::kAttemptStarted) continue;
    EXPECT_EQ(event.attempt, ++attempts[event.stage]) << event.stage;
  }
  for (const FakeEvent& event : ReadFakeEvents(Events())) finishes[event.stage] += event.what == "finish";
  EXPECT_EQ(finishes.size(), 12u);
  for (const auto& [stage, count] : finishes) EXPECT_EQ(count, 1) << stage;
}

TEST_F(FieldCase, CrashedAtAnyDurableOperationTheLauncherResumesAndRepeatsNothing) {
  WriteSweep(1);
  ASSERT_EQ(Run().Wait().code, 0);
  int crashes = 0;
  for (int operation = 1, code = 137; code == 137; ++operation) {
    RemoveSweepAndTrials();  // the text stays prepared
    code = Run({{"HEADSWEEP_CRASH_AT", "any:" + std::to_string(operation)}}).Wait().code;
    crashes += code == 137;
    ASSERT_TRUE(WaitUntil([&] { return CountTrialProcesses(workspace_.root()) == 0; })) << "an orphan lives on";
    const Finished resumed = Run().Wait();
    ASSERT_EQ(resumed.code, 0) << "after a crash at operation " << operation << ": " << resumed.output;
    EXPECT_EQ(CountFakeEvents(Events(), "finish"), 1) << "after a crash at operation " << operation;
  }
  EXPECT_GE(crashes, 8);
}

TEST_F(FieldCase, EverySignalThatAsksItToStopEndsResumableAndIsNoSuccess) {
  WriteSweep(3);
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR2, SIGINT}) {
    RemoveSweepAndTrials();
    auto run = Run({{"FAKE_GATE", temp_ / "never"}});
    ASSERT_TRUE(WaitUntil([&] { return CountFakeEvents(Events(), "step-1") >= 2; }));
    run.Signal(signal);
    const Finished stopped = run.Wait();
    EXPECT_EQ(stopped.code, 75) << "signal " << signal << ": " << stopped.output;
    const Finished status = Start({"status", "--json"}).Wait();
    EXPECT_NE(status.output.find("\"state\":\"stopped\""), std::string::npos) << status.output;
    EXPECT_EQ(CountFakeEvents(Events(), "finish"), 0);
  }
}

TEST_F(FieldCase, ProcessesThatCannotMeetRefuseInsteadOfEachRunningTheWholeSweep) {
  WriteSweep(1);
  const Finished without_pmix = Run({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}}).Wait();
  EXPECT_EQ(without_pmix.code, 2) << without_pmix.output;
  EXPECT_NE(without_pmix.output.find("srun --mpi=pmix"), std::string::npos) << without_pmix.output;
  EXPECT_FALSE(std::filesystem::exists(workspace_.root()));
}

TEST_F(FieldCase, ResumeNeedsTheFileOfTheSweepNoMore) {
  WriteSweep(2);
  auto run = Run({{"FAKE_GATE", temp_ / "never"}});
  ASSERT_TRUE(WaitUntil([&] { return CountFakeEvents(Events(), "step-1") >= 1; }));
  run.Signal(SIGKILL);
  run.Wait();
  std::filesystem::remove(temp_ / "sweep.toml");
  const Finished resumed = Start({"resume", "s", "--no-report", "--slots", "2"}).Wait();
  EXPECT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_EQ(CountFakeEvents(Events(), "finish"), 2);
}

}  // namespace
}  // namespace headsweep
