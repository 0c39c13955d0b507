// kill -9 at random: launchers, agents, trainers, one or all of them, again and again.
// HEADSWEEP_TEST_KILLS=<n> kills that many times (20); HEADSWEEP_TEST_SEED=<n> chooses other moments and
// victims.
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "cluster/base/run_program.h"
#include "tests/crash/disturbed_sweep.h"

namespace headsweep {
namespace {

using namespace testing;

std::uint64_t Number(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class ChaosTest : public DisturbedSweepTest {
 protected:
  int Below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }

  static std::vector<TaggedProcess> Trials(const Workspace& workspace) {
    std::vector<TaggedProcess> trials;
    for (const TaggedProcess& process : FindTaggedProcesses())
      if (process.sweep.starts_with(workspace.root() + "/")) trials.push_back(process);
    return trials;
  }

  // Kills something that lives; false if there was nothing.
  bool KillSomething(const Workspace& workspace, const HeadsweepProgram& run) {
    const std::vector<TaggedProcess> trials = Trials(workspace);
    const int what = Below(4);
    if (what == 0 || trials.empty()) {  // the launcher, or mpirun
      run.Signal(SIGKILL);
      return true;
    }
    const TaggedProcess& victim = trials[static_cast<std::size_t>(Below(static_cast<int>(trials.size())))];
    if (what == 1) return ::kill(victim.pid, SIGKILL) == 0;  // one trainer
    if (what == 2) {                                         // all of them
      KillTrials(workspace);
      return true;
    }
    return ::kill(std::atoi(victim.launcher.c_str()), SIGKILL) ==
           0;  // its agent: the launcher, or another rank
  }

  const std::uint64_t seed_ = Number("HEADSWEEP_TEST_SEED", 20261130);
  std::mt19937_64 random_{seed_};
};

TEST_F(ChaosTest, WhateverIsKilledItEndsWithTheSameBits) {
  SCOPED_TRACE("HEADSWEEP_TEST_SEED=" + std::to_string(seed_));
  const auto wanted = static_cast<int>(Number("HEADSWEEP_TEST_KILLS", 20));
  const Digests reference = Reference();
  int kills = 0, sweeps = 0, launches = 0;
  while (kills < wanted) {
    const Workspace workspace(temp_ / ("chaos-" + std::to_string(++sweeps)));
    int exit_code = -1;
    // A launch may end with 1, when a trial was killed more often than it is retried; the next one tries it
    // again.
    for (int launch = 0; exit_code != 0; ++launch) {
      ASSERT_LT(launch, 100) << "the sweep does not come to its end";
      ++launches;
      const bool ranks = Below(3) == 0;
      auto run = Start(workspace, ranks ? std::vector<std::string>{FindProgram("mpirun"), "-n", "3"}
                                        : std::vector<std::string>{});
      while (run->Running()) {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(Below(700)));  // the moment of the kill is the experiment
        if (kills < wanted && run->Running()) kills += KillSomething(workspace, *run);
      }
      exit_code = run->Wait().code;
      ASSERT_TRUE(WaitUntil([&] { return Trials(workspace).empty(); })) << "an orphan lives on";
    }
    ASSERT_EQ(DigestsOf(workspace), reference);
    ExpectNothingRanTwice(workspace);
  }
  std::printf("  %d kills in %d launches of %d sweeps\n", kills, launches, sweeps);
  EXPECT_GT(launches, sweeps) << "no launcher was ever killed";
}

}  // namespace
}  // namespace headsweep
