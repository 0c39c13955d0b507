// Child processes, their environment, their end; tagged processes; slots; the verdict on an attempt.
#include "launcher/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cluster/base/errors.h"
#include "launcher/attempt_outcome.h"
#include "launcher/failure_policy.h"
#include "launcher/nearest.h"
#include "launcher/slots.h"
#include "launcher/tagged_processes.h"
#include "launcher/trial_lock.h"
#include "tests/support/temp_dir.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

using testing::TempDir;

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

ProcessSpec Shell(const std::string& script) {
  ProcessSpec spec;
  spec.command = {"/bin/sh", "-c", script};
  return spec;
}

TEST(Process, OutputGoesToTheLogAndIsAppended) {
  TempDir temp;
  ProcessSpec spec = Shell("echo out; echo err >&2");
  spec.log_path = temp / "log.txt";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(WaitFor(Spawn(spec).pid, 20), (ExitStatus{.code = 0, .signal = 0}));
  EXPECT_EQ(ReadAll(spec.log_path), "out\nerr\nout\nerr\n");
}

TEST(Process, MpiVariablesDoNotReachTheChildAndAddedOnesDo) {
  TempDir temp;
  for (const char* name : {"OMPI_X", "PMIX_X", "ORTE_X", "PMI_X"}) ::setenv(name, "1", 1);
  ::setenv("NOT_PMI_X", "kept", 1);
  ProcessSpec spec = Shell("env");
  spec.environment = {{"HEADSWEEP_ADDED", "a=b c"}, {"HOME", "/replaced"}};
  spec.log_path = temp / "log.txt";
  ASSERT_TRUE(WaitFor(Spawn(spec).pid, 20));
  const std::string environment = "\n" + ReadAll(spec.log_path);
  for (const char* name : {"OMPI_X", "PMIX_X", "ORTE_X", "PMI_X"}) {
    EXPECT_EQ(environment.find("\n" + std::string(name) + "="), std::string::npos) << name;
    ::unsetenv(name);
  }
  EXPECT_NE(environment.find("\nNOT_PMI_X=kept\n"), std::string::npos);
  EXPECT_NE(environment.find("\nHEADSWEEP_ADDED=a=b c\n"), std::string::npos);
  EXPECT_NE(environment.find("\nHOME=/replaced\n"), std::string::npos);
}

TEST(Process, OnlyTheNamedDescriptorsAreOpenInTheChild) {
  TempDir temp;
  const int leaking = ::dup(0);  // not close-on-exec
  TrialLock lock;
  ASSERT_TRUE(lock.TryLock(temp / "lock"));
  ProcessSpec spec = Shell("for fd in /proc/self/fd/*; do echo ${fd##*/}; done");
  spec.control_channel = true;
  spec.kept_descriptor = lock.descriptor();
  spec.log_path = temp / "log.txt";
  const SpawnedProcess child = Spawn(spec);
  ASSERT_TRUE(WaitFor(child.pid, 20));
  ::close(child.control);
  ::close(leaking);
  std::istringstream list(ReadAll(spec.log_path));
  std::vector<int> open;
  for (int fd; list >> fd;)
    if (fd <= 9) open.push_back(fd);  // the shell keeps its own above 9
  EXPECT_EQ(std::vector<int>(open.begin(), open.begin() + 5), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_LE(open.size(), 6u);  // one more is the directory being listed
}

TEST(Process, TheControlChannelCarriesBothWays) {
  ProcessSpec spec = Shell("read line <&3; echo \"heard $line\" >&3");
  spec.control_channel = true;
  const SpawnedProcess child = Spawn(spec);
  ASSERT_EQ(::send(child.control, "you\n", 4, 0), 4);
  ASSERT_TRUE(WaitFor(child.pid, 20));
  char buffer[64] = {};
  EXPECT_EQ(::read(child.control, buffer, sizeof buffer), 10);
  EXPECT_STREQ(buffer, "heard you\n");
  ::close(child.control);
}

TEST(Process, AMissingProgramIsAnErrorThatNamesIt) {
  ProcessSpec spec;
  spec.command = {"/no/such/program"};
  try {
    Spawn(spec);
    FAIL() << "it started";
  } catch (const IoError& error) {
    EXPECT_EQ(error.path(), "/no/such/program");
    EXPECT_EQ(error.error_number(), ENOENT);
  }
}

TEST(Process, ReapingKillsWhatIsLeftOfTheGroup) {
  TempDir temp;
  ProcessSpec spec = Shell("sleep 1000 & echo $! > " + (temp / "pid") + "; exit 3");
  const SpawnedProcess child = Spawn(spec);
  EXPECT_EQ(WaitFor(child.pid, 20), (ExitStatus{.code = 3, .signal = 0}));
  const pid_t grandchild = std::atoi(ReadAll(temp / "pid").c_str());
  ASSERT_GT(grandchild, 0);
  for (int i = 0; i < 2000 && !ProcessIdentity(grandchild).empty(); ++i) ::usleep(1000);
  EXPECT_EQ(ProcessIdentity(grandchild), "");
}

TEST(Process, ASignalIsTold) {
  const SpawnedProcess child = Spawn(Shell("kill -SEGV $$"));
  const auto status = WaitFor(child.pid, 20);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->signal, SIGSEGV);
  EXPECT_EQ(ToString(*status), "signal 11 (Segmentation fault)");
}

TEST(TaggedProcesses, LeftoversOfADeadLauncherAreKilledAndThoseOfALivingOneAreNot) {
  TempDir temp;
  const SpawnedProcess dead = Spawn(Shell("exit 0"));
  const std::string dead_identity = ProcessIdentity(dead.pid);
  ASSERT_TRUE(WaitFor(dead.pid, 20));
  const auto tagged = [&](const std::string& workspace, const std::string& launcher) {
    // A session of its own, and a parent that is gone: found by its tag alone.
    ProcessSpec spec = Shell("exec sleep 1000");
    spec.environment = {{kTagSweep, workspace + "/sweeps/a"}, {kTagStage, "s/1"}, {kTagLauncher, launcher}};
    return Spawn(spec).pid;
  };
  const std::string alive = ProcessIdentity(::getpid());
  const pid_t orphan = tagged(temp.path(), dead_identity.empty() ? "999999:1" : dead_identity);
  const pid_t kept = tagged(temp.path(), alive);
  const pid_t other_workspace = tagged(temp.path() + "-other", "999999:1");
  EXPECT_EQ(KillLeftovers(temp.path(), 10), 1);
  EXPECT_EQ(WaitFor(orphan, 20), (ExitStatus{.code = 0, .signal = SIGKILL}));
  EXPECT_FALSE(TryReap(kept));
  EXPECT_FALSE(TryReap(other_workspace));
  EXPECT_EQ(KillAttemptLeftovers("s/1", 10), 1);
  EXPECT_TRUE(WaitFor(kept, 20));
  ::kill(other_workspace, SIGKILL);
  EXPECT_TRUE(WaitFor(other_workspace, 20));
}

TEST(TaggedProcesses, AnIdentityIsNotFooledByAReusedNumber) {
  const std::string self = ProcessIdentity(::getpid());
  EXPECT_TRUE(IsAlive(self));
  EXPECT_FALSE(IsAlive(std::to_string(::getpid()) + ":1"));
  EXPECT_FALSE(IsAlive(""));
}

TEST(TrialLock, IsHeldUntilTheLastInheritorIsGone) {
  TempDir temp;
  TrialLock first, second;
  ASSERT_TRUE(first.TryLock(temp / "lock"));
  ProcessSpec spec = Shell("read line <&3");
  spec.control_channel = true;
  spec.kept_descriptor = first.descriptor();
  const SpawnedProcess child = Spawn(spec);
  first = TrialLock();
  EXPECT_FALSE(second.TryLock(temp / "lock"));
  ::close(child.control);
  ASSERT_TRUE(WaitFor(child.pid, 20));
  EXPECT_TRUE(second.TryLock(temp / "lock"));
}

TEST(Slots, FillTheCoresAndShareThemBetweenTheAgentsOfAHost) {
  using Slots = std::vector<std::vector<int>>;
  EXPECT_EQ(PlanSlots({.cpus = {0, 1, 4, 5}, .threads = 2}), (Slots{{0, 1}, {4, 5}}));
  EXPECT_EQ(PlanSlots({.cpus = {0, 1, 2}, .threads = 2}), (Slots{{0, 1}}));
  EXPECT_EQ(PlanSlots({.cpus = {0}, .threads = 4}), (Slots{{}}));
  EXPECT_EQ(PlanSlots({.cpus = {0, 1}, .threads = 1, .slots = 3}), (Slots{{}, {}, {}}));
  EXPECT_EQ(PlanSlots({.cpus = {0, 1}, .threads = 1, .slots = 1}), (Slots{{}}));
  EXPECT_EQ(PlanSlots({.cpus = {0, 1}, .threads = 1, .slots = 2}), (Slots{{0}, {1}}));
  EXPECT_EQ(PlanSlots({.cpus = {0, 1, 2}, .threads = 1, .rank_on_host = 0, .ranks_on_host = 2}),
            (Slots{{0}}));
  EXPECT_EQ(PlanSlots({.cpus = {0, 1, 2}, .threads = 1, .rank_on_host = 1, .ranks_on_host = 2}),
            (Slots{{1}, {2}}));
  EXPECT_EQ(PlanSlots({.cpus = {0}, .threads = 1, .rank_on_host = 2, .ranks_on_host = 3}), (Slots{{0}}));
  EXPECT_FALSE(UsableCpus().empty());
}

TEST(Slots, OfANodeWithGpusAreItsGpusUnlessMoreOrFewerAreAskedFor) {
  using Gpus = std::vector<std::string>;
  EXPECT_EQ(PlanGpuSlots({"3", "GPU-ab"}, 0), (Gpus{"3", "GPU-ab"}));
  EXPECT_EQ(PlanGpuSlots({"0", "1", "2"}, 1), (Gpus{"0"}));
  EXPECT_EQ(PlanGpuSlots({"0", "1"}, 3), (Gpus{"0", "1", "0"})) << "on purpose: small trials share a GPU";
  EXPECT_EQ(PlanGpuSlots({}, 4), Gpus{}) << "no GPU is made up";
}

TEST(Slots, OfAGpuShareWhatIsFreeOfItLessWhatEachProcessTakes) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  GpuReport report;
  report.devices.resize(2);
  report.devices[0].free_bytes = 80 * kGiB;
  report.devices[1].free_bytes = 2 * kGiB;
  using Bytes = std::vector<std::int64_t>;
  EXPECT_EQ(GpuSlotBytes({"5", "2"}, {"5", "2"}, report, 2), (Bytes{79 * kGiB, 1 * kGiB}));
  EXPECT_EQ(GpuSlotBytes({"2"}, {"5", "2"}, report, 3), (Bytes{0})) << "not known rather than negative: it is tried";
  EXPECT_EQ(GpuSlotBytes({"5", "2"}, {"5", "2"}, report, 3), (Bytes{78 * kGiB, 0}));
}

AttemptFacts Exited(int code) {
  AttemptFacts facts;
  facts.exit = ExitStatus{.code = code, .signal = 0};
  return facts;
}

TEST(AttemptOutcome, ASealedResultWinsOverEverything) {
  AttemptFacts facts;
  facts.exit = ExitStatus{.code = 0, .signal = SIGSEGV};
  facts.result_sealed = true;
  facts.killed_because = kKilledByUser;
  EXPECT_EQ(JudgeAttempt(facts).outcome, "finished");
  facts.said_done = true;
  facts.done_outcome = "diverged";
  facts.done_summary = "{}";
  EXPECT_EQ(JudgeAttempt(facts).outcome, "diverged");
  EXPECT_EQ(JudgeAttempt(facts).summary, "{}");
}

TEST(AttemptOutcome, ExitZeroWithoutAWordIsAFailure) {
  EXPECT_EQ(JudgeAttempt(Exited(0)).outcome, "failed");
  EXPECT_EQ(JudgeAttempt(Exited(0)).cause, cause::kExit);
}

TEST(AttemptOutcome, AClaimWithoutAResultIsAFailure) {
  AttemptFacts facts = Exited(0);
  facts.said_done = true;
  facts.done_outcome = "finished";
  EXPECT_EQ(JudgeAttempt(facts).outcome, "failed");
  EXPECT_EQ(JudgeAttempt(facts).cause, control::kCauseError);
}

TEST(AttemptOutcome, ExitCodesStandForTheirCauses) {
  EXPECT_EQ(JudgeAttempt(Exited(2)).cause, control::kCauseConfiguration);
  EXPECT_EQ(JudgeAttempt(Exited(12)).cause, control::kCauseOutOfMemory);
  EXPECT_EQ(JudgeAttempt(Exited(74)).cause, control::kCauseInputOutput);
  EXPECT_EQ(JudgeAttempt(Exited(71)).cause, control::kCauseDevice);
  EXPECT_EQ(JudgeAttempt(Exited(75)).outcome, "failed") << "nobody had asked it to stop";
  AttemptFacts stopped = Exited(75);
  stopped.asked_to_stop = true;
  EXPECT_EQ(JudgeAttempt(stopped).outcome, "stopped");
}

TEST(AttemptOutcome, WhatWeKilledCountsAsStopped) {
  AttemptFacts facts;
  facts.exit = ExitStatus{.code = 0, .signal = SIGTERM};
  for (const char* reason : {kKilledByUser, kKilledLateStop, kKilledNoCoordinator}) {
    facts.killed_because = reason;
    EXPECT_EQ(JudgeAttempt(facts).outcome, "stopped") << reason;
  }
  facts.killed_because = "";
  EXPECT_EQ(JudgeAttempt(facts).cause, cause::kSignal);
}

TEST(NearestName, FindsSlipsAndRefusesStrangers) {
  const std::vector<std::string> commands = {"run", "resume", "status", "collect", "report"};
  EXPECT_EQ(NearestName("rnu", commands), "run");
  EXPECT_EQ(NearestName("resme", commands), "resume");
  EXPECT_EQ(NearestName("sttaus", commands), "status");
  EXPECT_EQ(NearestName("xyzzyplugh", commands), "");
  EXPECT_EQ(NearestName("", commands), "");
}

}  // namespace
}  // namespace headsweep
