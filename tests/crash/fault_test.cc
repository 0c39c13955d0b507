// The operating system fails under the real programs: fsync, a read-only file system, a clock that jumps, processes that stand
// still. After each the sweep goes on and ends with the same bits, and nothing lives on.
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "cluster/base/errors.h"
#include "tests/crash/disturbed_sweep.h"

namespace headsweep {
namespace {

using namespace testing;

class FaultTest : public DisturbedSweepTest {
 protected:
  std::unique_ptr<HeadsweepProgram> StartFaulty(const Workspace& workspace, const std::string& fault,
                                                const std::vector<std::string>& more = {}) {
    std::vector<std::pair<std::string, std::string>> environment = {
        {"LD_PRELOAD", std::string(HEADSWEEP_BINARY_DIR) + "/tests/libheadsweep_faults.so"},
        {"ASAN_OPTIONS", "verify_asan_link_order=0"},
        {"HEADSWEEP_FAULT_WHILE", Gate()},
        {"HEADSWEEP_FAULT_CLOCK", temp_ / "offset"}};
    if (!fault.empty()) environment.emplace_back("HEADSWEEP_FAULT", fault);
    std::vector<std::string> arguments = {"run", temp_ / "sweep.toml", "--no-report", "--slots", "2", "--workspace", workspace.root()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return std::make_unique<HeadsweepProgram>(arguments, temp_ / ("log-" + std::to_string(++programs_)), environment);
  }
  std::string Gate() const { return temp_ / "gate"; }

  void ExpectItGoesOn(const Workspace& workspace, const Digests& reference) {
    EXPECT_EQ(CountTrialProcesses(workspace.root()), 0) << "an orphan lives on";
    const Finished end = Start(workspace)->Wait();
    EXPECT_EQ(end.code, 0) << end.output;
    EXPECT_EQ(DigestsOf(workspace), reference);
    ExpectNothingRanTwice(workspace);
  }
};

// The n-th fsync of the launcher (its journal, a configuration) or of a trainer (a checkpoint, a result) says EIO. Nobody knows
// what the disk holds then, so the program must not go on as if it were written.
TEST_F(FaultTest, AnFsyncThatFailsEndsTheRunAndLosesNothing) {
  const Digests reference = Reference();
  struct Case {
    const char* program;
    int nth;
  };
  for (const auto& [program, nth] : {Case{"headsweep", 8}, Case{"headsweep", 17}, Case{"headsweep-trainer", 2},
                                     Case{"headsweep-trainer", 30}}) {
    SCOPED_TRACE(fmt::format("fsync {} of {}", nth, program));
    const Workspace workspace(temp_ / fmt::format("{}-{}", program, nth));
    std::ofstream(Gate()) << "now";
    const Finished run =
        StartFaulty(workspace, fmt::format("{}:fsync:{}:{}:1:{}", program, EIO, nth, workspace.root()))->Wait();
    ::unlink(Gate().c_str());
    EXPECT_TRUE(run.code == kExitResumable || run.code == kExitFailed) << run.code << ": " << run.output;
    EXPECT_NE(run.output.find("fsync " + workspace.root()), std::string::npos) << run.output;
    EXPECT_NE(run.output.find("Input/output error"), std::string::npos) << run.output;
    ExpectItGoesOn(workspace, reference);
  }
}

TEST_F(FaultTest, AFileSystemThatBecomesReadOnlyStopsTheRunUntilItCanBeWrittenAgain) {
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "read-only");
  const std::string fault = fmt::format("*:change:{}:1:1000000:{}", EROFS, workspace.root());
  auto run = StartFaulty(workspace, fault);
  ASSERT_TRUE(WaitUntil([&] {
    return !run->Running() || (FileSystem::Real().Exists(workspace.Journal("s")) &&
                               run->Running() && CountTrialProcesses(workspace.root()) > 0);
  }));
  std::ofstream(Gate()) << "now";
  const Finished stopped = run->Wait();
  EXPECT_TRUE(stopped.code == kExitResumable || stopped.code == kExitFailed) << stopped.code << ": " << stopped.output;
  EXPECT_NE(stopped.output.find("Read-only file system"), std::string::npos) << stopped.output;
  const Finished refused = StartFaulty(workspace, fault)->Wait();
  EXPECT_EQ(refused.code, kExitFailed) << refused.output;
  EXPECT_NE(refused.output.find("Read-only file system"), std::string::npos) << refused.output;
  ::unlink(Gate().c_str());
  ExpectItGoesOn(workspace, reference);
}

// As NFS without a lock service says it.
TEST_F(FaultTest, AFileSystemWithoutLocksSaysSoAndLeasesDoWithoutThem) {
  const Digests reference = Reference();
  const Workspace alone(temp_ / "alone"), shared(temp_ / "shared");
  std::ofstream(Gate()) << "now";
  const std::string fault = fmt::format("*:flock:{}:1:1000000:/trials/", ENOLCK);
  const Finished refused = StartFaulty(alone, fault)->Wait();
  EXPECT_NE(refused.code, 0) << refused.output;
  EXPECT_NE(refused.output.find("No locks available"), std::string::npos) << refused.output;
  EXPECT_NE(refused.output.find("mount it with flock, or run with --join"), std::string::npos) << refused.output;
  const Finished joined = StartFaulty(shared, fault, {"--join"})->Wait();
  EXPECT_EQ(joined.code, 0) << joined.output;
  EXPECT_EQ(DigestsOf(shared), reference);
  const Finished status = HeadsweepProgram({"status", "s", "--json", "--workspace", shared.root()}, temp_ / "status").Wait();
  for (const json& stage : json::parse(status.output)["stages"]) EXPECT_EQ(stage["attempts"], 1) << stage;
}

TEST_F(FaultTest, AFileThatTheServerHasForgottenIsNamedAndTheRunIsResumed) {
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "stale");
  std::ofstream(Gate()) << "now";
  const Finished run = StartFaulty(workspace, fmt::format("headsweep:change:{}:3:1:/trials/", ESTALE))->Wait();
  ::unlink(Gate().c_str());
  EXPECT_NE(run.code, 0) << run.output;
  EXPECT_NE(run.output.find(workspace.root() + "/trials/"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("another machine has removed it, or the export has changed"), std::string::npos) << run.output;
  ExpectItGoesOn(workspace, reference);
}

TEST_F(FaultTest, AClockThatJumpsChangesNothing) {
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "clock");
  auto run = StartFaulty(workspace, "");
  int jumps = 0;
  for (const char* offset : {"86400", "-86400", "3.2e8", "-1e9", "0"}) {
    ASSERT_TRUE(WaitUntil([&] {
      return !run->Running() || (FileSystem::Real().Exists(workspace.Journal("s")) &&
                                 static_cast<int>(Events(workspace).size()) >= 3 * (jumps + 1));
    }));
    std::ofstream(temp_ / "offset.new") << offset;
    ASSERT_EQ(::rename((temp_ / "offset.new").c_str(), (temp_ / "offset").c_str()), 0);
    ++jumps;
  }
  const Finished end = run->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(DigestsOf(workspace), reference);
  ExpectNothingRanTwice(workspace);
  double earliest = 1e18, latest = -1e18;
  for (const JournalEvent& event : Events(workspace)) {
    earliest = std::min(earliest, event.time);
    latest = std::max(latest, event.time);
  }
  EXPECT_GT(latest - earliest, 86400) << "the clock did not jump";
}

TEST_F(FaultTest, WhoeverStandsStillForAWhileGoesOn) {
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "stopped");
  auto run = Start(workspace);
  std::mt19937 random(20261201);
  int stops = 0;
  while (run->Running()) {
    std::vector<pid_t> processes;
    if (random() % 2 == 0) processes.push_back(run->pid());
    for (const TaggedProcess& process : FindTaggedProcesses())
      if (process.sweep.starts_with(workspace.root() + "/") && random() % 2 == 0) processes.push_back(process.pid);
    for (const pid_t pid : processes) stops += ::kill(pid, SIGSTOP) == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));  // the length of the stop is the experiment
    for (const pid_t pid : processes) ::kill(pid, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
  }
  const Finished end = run->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_GT(stops, 0);
  EXPECT_EQ(DigestsOf(workspace), reference);
  ExpectNothingRanTwice(workspace);
}

}  // namespace
}  // namespace headsweep
