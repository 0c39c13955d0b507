// The promise of headsweep, tested on the whole: kill it at any moment, run it again, and the final numbers
// are the same, bit for bit; nothing that was finished is computed twice. Real launcher, real trainers, a
// tiny sweep over a made-up text.
#include <algorithm>

#include "cluster/base/run_program.h"
#include "tests/crash/disturbed_sweep.h"

namespace headsweep {
namespace {

using namespace testing;

using KillResumeTest = DisturbedSweepTest;

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
