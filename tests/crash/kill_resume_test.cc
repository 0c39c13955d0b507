// The promise of headsweep, tested on the whole: kill it at any moment, run it again, and the final numbers
// are the same, bit for bit; nothing that was finished is computed twice. Real launcher, real trainers, a
// tiny sweep over a made-up text.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cluster/base/run_program.h"
#include "launcher/journal.h"
#include "launcher/workspace.h"
#include "tests/support/headsweep_program.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using namespace testing;
using nlohmann::json;
using Digests = std::map<std::string, std::string>;  // stage -> digest of all that must repeat

class KillResumeTest : public ::testing::Test {
 protected:
  KillResumeTest() {
    WriteSmallCorpus(temp_ / "text.txt", 400);
    std::ofstream(temp_ / "sweep.toml")
        << "name = \"s\"\n"
           "[task]\ncorpus = \"./text.txt\"\nvocabulary = 100\nlength = 16\n"
           "[model]\nlayers = 2\nembed = 16\nhead_size = 4\ndropout = 0.1\n"
           "[train]\nsteps = 24\nbatch = 4\nevaluate_every = 8\ncheckpoint_every = 4\n"
           "[grid]\n\"model.heads\" = [2, 3]\n"
           "[prune]\norder = [\"importance\"]\nstep = 0.5\n"
           "score_examples = 16\nevaluate_examples = 16\n";
  }

  std::unique_ptr<HeadsweepProgram> Start(const Workspace& workspace,
                                          const std::vector<std::string>& under = {}) {
    return std::make_unique<HeadsweepProgram>(
        std::vector<std::string>{"run", temp_ / "sweep.toml", "--no-report", "--slots",
                                 under.empty() ? "2" : "1", "--workspace", workspace.root()},
        temp_ / ("log-" + std::to_string(++programs_)),
        std::vector<std::pair<std::string, std::string>>{{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                                         {"OMPI_MCA_rmaps_base_oversubscribe", "1"}},
        under);
  }

  Digests DigestsOf(const Workspace& workspace) {
    const Finished status =
        HeadsweepProgram({"status", "s", "--json", "--workspace", workspace.root()}, temp_ / "status").Wait();
    Digests digests;
    const json parsed = json::parse(status.output, nullptr, false);
    if (!parsed.is_object()) {
      ADD_FAILURE() << status.output;
      return digests;
    }
    for (const json& stage : parsed["stages"]) {
      EXPECT_EQ(stage["state"], "finished") << stage;
      digests[stage["id"]] = stage["summary"].is_object() ? stage["summary"].value("digest", "") : "";
      EXPECT_FALSE(digests[stage["id"]].empty()) << stage;
    }
    return digests;
  }

  // The undisturbed run that all others are compared with.
  Digests Reference() {
    const Workspace workspace(temp_ / "undisturbed");
    const Finished run = Start(workspace)->Wait();
    EXPECT_EQ(run.code, 0) << run.output;
    const Digests digests = DigestsOf(workspace);
    EXPECT_EQ(digests.size(), 4u);
    EXPECT_NE(digests.begin()->second, digests.rbegin()->second)
        << "a digest that never changes proves nothing";
    return digests;
  }

  static std::vector<JournalEvent> Events(const Workspace& workspace) {
    return ReadJournal(FileSystem::Real(), workspace.Journal("s")).events;
  }
  static std::set<std::string> FinishedIn(const std::vector<JournalEvent>& events) {
    std::set<std::string> stages;
    for (const JournalEvent& event : events)
      if (event.type == journal::kStageAdopted ||
          (event.type == journal::kAttemptEnded && event.fields.at("outcome") == "finished"))
        stages.insert(event.stage);
    return stages;
  }
  // No stage is started after it was finished.
  static void ExpectNothingRanTwice(const Workspace& workspace) {
    std::set<std::string> finished;
    for (const JournalEvent& event : Events(workspace)) {
      if (event.type == journal::kAttemptStarted) {
        EXPECT_FALSE(finished.contains(event.stage))
            << event.stage << " ran again as attempt " << event.attempt;
      }
      for (const std::string& stage : FinishedIn({event})) finished.insert(stage);
    }
  }
  static void KillTrials(const Workspace& workspace) {
    for (const TaggedProcess& process : FindTaggedProcesses())
      if (process.sweep.starts_with(workspace.root() + "/")) ::kill(process.pid, SIGKILL);
  }

  TempDir temp_;
  int programs_ = 0;
};

TEST_F(KillResumeTest, KilledAgainAndAgainItEndsWithTheSameBits) {
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "killed");
  // In the first rounds only the launcher is killed, and its trainers must follow by themselves; later all at
  // once.
  constexpr int kMostRounds = 60;
  int kills = 0;
  std::size_t step = 1;
  for (int round = 0; round < kMostRounds; ++round) {
    const std::size_t before = Events(workspace).size();
    auto run = Start(workspace);
    // Killed at an event: sometimes right after the start, sometimes a few checkpoints later.
    ASSERT_TRUE(WaitUntil([&] { return !run->Running() || Events(workspace).size() >= before + step; }));
    if (!run->Running()) {
      const Finished end = run->Wait();
      ASSERT_EQ(end.code, 0) << end.output;
      break;
    }
    if (round % 2 == 1) KillTrials(workspace);
    run->Signal(SIGKILL);
    run->Wait();
    ++kills;
    EXPECT_TRUE(WaitUntil([&] { return CountTrialProcesses(workspace.root()) == 0; }))
        << "an orphan lives on";
    step = step % 5 + 2;
  }
  EXPECT_GE(kills, 4) << "the sweep was too short to be disturbed";
  EXPECT_EQ(DigestsOf(workspace), reference);
  ExpectNothingRanTwice(workspace);
}

TEST_F(KillResumeTest, ATrainerThatIsKilledIsRetriedFromItsCheckpointWithTheSameBits) {
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "killed");
  auto run = Start(workspace);
  ASSERT_TRUE(WaitUntil([&] {
    if (!FileSystem::Real().Exists(workspace.Journal("s"))) return false;
    const std::vector<JournalEvent> events = Events(workspace);
    return std::any_of(events.begin(), events.end(),
                       [](const auto& e) { return e.type == journal::kCheckpointed; });
  }));
  KillTrials(workspace);
  const Finished end = run->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(DigestsOf(workspace), reference);
  ExpectNothingRanTwice(workspace);
}

TEST_F(KillResumeTest, StoppedByASignalItResumesWithTheSameBits) {
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "stopped");
  auto run = Start(workspace);
  ASSERT_TRUE(WaitUntil(
      [&] { return FileSystem::Real().Exists(workspace.Journal("s")) && Events(workspace).size() >= 4; }));
  run->Signal(SIGUSR2);
  const Finished stopped = run->Wait();
  EXPECT_EQ(stopped.code, 75) << stopped.output;
  const Finished end = Start(workspace)->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(DigestsOf(workspace), reference);
  ExpectNothingRanTwice(workspace);
}

TEST_F(KillResumeTest, ThreeRanksGiveTheSameBitsAsOne) {
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "parallel");
  const Finished end = Start(workspace, {FindProgram("mpirun"), "-n", "3"})->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(DigestsOf(workspace), reference);
}

TEST_F(KillResumeTest, AKilledRankTakesTheJobDownAndItResumesWithTheSameBits) {
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "parallel");
  auto run = Start(workspace, {FindProgram("mpirun"), "-n", "3"});
  ASSERT_TRUE(WaitUntil([&] { return CountTrialProcesses(workspace.root()) >= 2; }));
  // The parent of a trial that is not the coordinator (which holds the lock): an agent's rank.
  pid_t agent = -1;
  ASSERT_TRUE(WaitUntil([&] {
    const json lock = json::parse(Slurp(workspace.Lock("s")), nullptr, false);
    for (const TaggedProcess& process : FindTaggedProcesses()) {
      const pid_t launcher = std::atoi(process.launcher.c_str());
      if (process.sweep.starts_with(workspace.root() + "/") && lock.is_object() &&
          launcher != lock.value("pid", 0))
        agent = launcher;
    }
    return agent > 0 || !run->Running();
  }));
  ASSERT_GT(agent, 0) << run->output();
  ::kill(agent, SIGKILL);
  EXPECT_NE(run->Wait().code, 0);
  EXPECT_TRUE(WaitUntil([&] { return CountTrialProcesses(workspace.root()) == 0; })) << "an orphan lives on";
  const Finished end = Start(workspace)->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(DigestsOf(workspace), reference);
  ExpectNothingRanTwice(workspace);
}

}  // namespace
}  // namespace headsweep
