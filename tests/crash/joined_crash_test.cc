// A real sweep that two launchers share: the same bits as with one, also when they are killed and stopped.
#include <chrono>
#include <cstdlib>
#include <thread>

#include "launcher/roster.h"
#include "tests/crash/disturbed_sweep.h"

namespace headsweep {
namespace {

using namespace testing;

class JoinedCrashTest : public DisturbedSweepTest {
 protected:
  std::unique_ptr<HeadsweepProgram> Join(const Workspace& workspace) {
    return std::make_unique<HeadsweepProgram>(
        std::vector<std::string>{"run", temp_ / "sweep.toml", "--join", "--no-report", "--slots", "1", "--workspace",
                                 workspace.root()},
        temp_ / ("log-" + std::to_string(++programs_)),
        std::vector<std::pair<std::string, std::string>>{{"HEADSWEEP_LEASE", "1"}});
  }

  static std::vector<JournalEvent> AllEvents(const Workspace& workspace) {
    std::vector<JournalEvent> events;
    for (const LauncherCard& card : ReadRoster(FileSystem::Real(), workspace, "s"))
      for (JournalEvent& event : ReadJournal(FileSystem::Real(), JournalOf(card.directory)).events)
        events.push_back(std::move(event));
    return events;
  }
};

TEST_F(JoinedCrashTest, TwoLaunchersDrainASweepToTheSameBits) {
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "joined");
  auto first = Join(workspace), second = Join(workspace);
  const Finished one = first->Wait(), two = second->Wait();
  EXPECT_EQ(one.code, 0) << one.output;
  EXPECT_EQ(two.code, 0) << two.output;
  EXPECT_EQ(DigestsOf(workspace), reference);
  std::map<std::string, int> started;
  for (const JournalEvent& event : AllEvents(workspace)) started[event.stage] += event.type == journal::kAttemptStarted;
  for (const auto& [stage, starts] : started) {
    if (!stage.empty()) {
      EXPECT_EQ(starts, 1) << stage;
    }
  }
}

// One is stopped in the middle of a trial for longer than its lease; the other takes over from the checkpoint, is killed, and
// the first one, awake again, takes it back.
TEST_F(JoinedCrashTest, TrialsThatChangeHandsEndWithTheSameBits) {
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "joined");
  const auto checkpoints = [&](int least_attempt) {
    int count = 0;
    for (const JournalEvent& event : AllEvents(workspace))
      count += event.type == journal::kCheckpointed && event.attempt >= least_attempt;
    return count;
  };
  auto first = Join(workspace);
  ASSERT_TRUE(WaitUntil([&] { return checkpoints(1) >= 1 || !first->Running(); }));
  first->Signal(SIGSTOP);
  auto second = Join(workspace);
  ASSERT_TRUE(WaitUntil([&] {
    int later = 0;
    for (const JournalEvent& event : AllEvents(workspace))
      later += event.type == journal::kAttemptStarted && event.attempt == 2;
    return later > 0;
  })) << second->output();
  second->Signal(SIGKILL);
  second->Wait();
  first->Signal(SIGCONT);
  const Finished end = first->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(DigestsOf(workspace), reference);
  EXPECT_TRUE(WaitUntil([&] { return CountTrialProcesses(workspace.root()) == 0; })) << "an orphan lives on";
}

}  // namespace
}  // namespace headsweep
