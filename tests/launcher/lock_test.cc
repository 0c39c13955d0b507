// The lock of a sweep: who gets it, who does not, and that two never have it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "launcher/sweep_lock.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using testing::TempDir;

// Runs body in a process of its own; its return value is the exit status.
pid_t Fork(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    int status = 99;
    try {
      status = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    ::_exit(status);
  }
  return pid;
}

int ExitStatus(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// The lock of a process that was killed while it had it.
void LeaveLockBehind(const std::string& path) {
  ASSERT_EQ(ExitStatus(Fork([&] {
              SweepLock lock(path);
              ::raise(SIGKILL);
              return 1;
            })),
            128 + SIGKILL);
  ASSERT_TRUE(FileSystem::Real().Exists(path));
}

TEST(SweepLock, NamesItsOwnerAndIsGivenBack) {
  TempDir folder;
  const std::string path = folder / "lock";
  {
    SweepLock lock(path);
    EXPECT_EQ(ReadSweepLock(path), lock.owner());
    EXPECT_EQ(lock.owner().pid, ::getpid());
    EXPECT_GT(lock.owner().start_ticks, 0u);
    EXPECT_FALSE(lock.predecessor());
  }
  EXPECT_EQ(ReadSweepLock(path), std::nullopt);
  EXPECT_EQ(FileSystem::Real().List(folder.path()), (std::vector<std::string>{"lock.guard"}));
}

TEST(SweepLock, IsRefusedWhileItsOwnerLivesAndSaysWhoThatIs) {
  TempDir folder;
  SweepLock lock(folder / "lock");
  for (const bool take_over : {false, true}) {
    const std::string error = ErrorOf([&] { SweepLock again(folder / "lock", take_over); });
    EXPECT_NE(error.find(fmt::format("process {} on {}", ::getpid(), lock.owner().host)), std::string::npos)
        << error;
    EXPECT_NE(error.find("kill"), std::string::npos) << error;
  }
  EXPECT_EQ(ReadSweepLock(folder / "lock"), lock.owner());
}

TEST(SweepLock, OfAKilledProcessIsTakenOver) {
  TempDir folder;
  LeaveLockBehind(folder / "lock");
  const auto before = ReadSweepLock(folder / "lock");
  SweepLock lock(folder / "lock");
  EXPECT_EQ(lock.predecessor(), before);
  EXPECT_EQ(ReadSweepLock(folder / "lock"), lock.owner());
}

TEST(SweepLock, OfAnEarlierProcessWithTheSamePidIsTakenOver) {
  TempDir folder;
  LockOwner earlier = ThisProcess();
  earlier.start_ticks -= 1;
  FileSystem::Real().WriteFile(folder / "lock", FormatLockOwner(earlier));
  SweepLock lock(folder / "lock");
  EXPECT_EQ(lock.predecessor(), earlier);
}

TEST(SweepLock, FromBeforeAReStartOfTheMachineIsTakenOver) {
  TempDir folder;
  LockOwner earlier = ThisProcess();
  earlier.boot = "another";
  FileSystem::Real().WriteFile(folder / "lock", FormatLockOwner(earlier));
  SweepLock lock(folder / "lock");
  EXPECT_EQ(lock.predecessor(), earlier);
}

TEST(SweepLock, OfAnotherHostIsTakenOverOnlyOnDemand) {
  TempDir folder;
  LockOwner elsewhere = ThisProcess();
  elsewhere.host = "node17";
  elsewhere.job = "4711";
  FileSystem::Real().WriteFile(folder / "lock", FormatLockOwner(elsewhere));
  const std::string error = ErrorOf([&] { SweepLock lock(folder / "lock"); });
  for (const char* part : {"on node17, job 4711", "--take-over", "squeue --job 4711"}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
  EXPECT_EQ(ReadSweepLock(folder / "lock"), elsewhere);
  SweepLock lock(folder / "lock", /*take_over=*/true);
  EXPECT_EQ(lock.predecessor(), elsewhere);
}

TEST(SweepLock, OfAnotherContainerIsNotTakenForDead) {
  TempDir folder;
  LockOwner elsewhere = ThisProcess();
  elsewhere.pid_space = "pid:[1]";
  FileSystem::Real().WriteFile(folder / "lock", FormatLockOwner(elsewhere));
  EXPECT_NE(ErrorOf([&] { SweepLock lock(folder / "lock"); }), "");
}

// A job's earlier run is over once Slurm starts it again, wherever it ran.
TEST(SweepLock, IsTakenOverFromAnEarlierRunOfTheSameJob) {
  LockOwner here = ThisProcess(), earlier = here;
  earlier.host = "another-node";
  here.job = earlier.job = "7";
  here.restart = 2;
  earlier.restart = 1;
  EXPECT_EQ(StateOf(earlier, here), OwnerState::kDead);
  earlier.restart = 2;  // the same script started twice
  EXPECT_EQ(StateOf(earlier, here), OwnerState::kUnknown);
  earlier.job = "8";
  earlier.restart = 0;
  EXPECT_EQ(StateOf(earlier, here), OwnerState::kUnknown);
  EXPECT_EQ(StateOf(here, here), OwnerState::kAlive);
  EXPECT_EQ(ParseLockOwner(FormatLockOwner(here)), here);
}

TEST(SweepLock, ItsOwnerSeesWhenItIsLost) {
  TempDir folder;
  const SweepLock lock(folder / "lock");
  EXPECT_TRUE(lock.Holds());
  LockOwner other = ThisProcess();
  other.pid += 1;
  FileSystem::Real().WriteFile(folder / "lock", FormatLockOwner(other));
  EXPECT_FALSE(lock.Holds());
  FileSystem::Real().Remove(folder / "lock");
  EXPECT_FALSE(lock.Holds());
}

TEST(SweepLock, RefusesAFileThatIsNoLock) {
  TempDir folder;
  FileSystem::Real().WriteFile(folder / "lock", "my notes\n");
  EXPECT_NE(ErrorOf([&] { SweepLock lock(folder / "lock"); }).find("not a lock file"), std::string::npos);
  EXPECT_EQ(FileSystem::Real().ReadFile(folder / "lock"), "my notes\n");
}

TEST(SweepLock, IsNotRemovedByAnOwnerWhoLostIt) {
  TempDir folder;
  LockOwner other = ThisProcess();
  other.pid += 1;
  {
    SweepLock lock(folder / "lock");
    FileSystem::Real().WriteFile(folder / "lock", FormatLockOwner(other));
  }
  EXPECT_EQ(ReadSweepLock(folder / "lock"), other);
}

TEST(SweepLock, AZombieDoesNotHoldIt) {
  TempDir folder;
  const pid_t pid = Fork([&] {
    new SweepLock(folder / "lock");  // never given back
    return 0;
  });
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT),
            0);  // dead, and still in /proc
  { SweepLock lock(folder / "lock"); }
  EXPECT_EQ(ExitStatus(pid), 0);
}

// Four processes at once, again and again: some find nothing, some a left-over lock, and all want it. Whoever
// gets it creates a file exclusively and removes it again: that fails if another one has the lock too.
TEST(SweepLock, IsNeverHeldByTwo) {
  TempDir folder;
  const std::string path = folder / "lock", proof = folder / "proof";
  constexpr int kRounds = 40, kProcesses = 4, kHeld = 10, kRefused = 11, kShared = 12;
  int held = 0, refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (round % 2 == 0) LeaveLockBehind(path);
    int gate[2];
    ASSERT_EQ(::pipe2(gate, O_CLOEXEC), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
      children.push_back(Fork([&] {
        char byte;
        ::close(gate[1]);
        if (::read(gate[0], &byte, 1) != 0) return 98;  // end of file opens the gate for all at once
        try {
          SweepLock lock(path);
          const int fd = ::open(proof.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0644);
          if (fd < 0) return kShared;
          ::close(fd);
          if (round % 4 < 2) ::sched_yield();
          if (::unlink(proof.c_str()) != 0) return kShared;
          if (round % 4 == 0) ::_exit(kHeld);  // a crash: leaves the lock
          return kHeld;
        } catch (const ConfigError&) {
          return kRefused;
        }
      }));
    }
    for (const int fd : {gate[0], gate[1]}) ::close(fd);
    int held_now = 0;
    for (const pid_t child : children) {
      const int status = ExitStatus(child);
      ASSERT_TRUE(status == kHeld || status == kRefused) << "status " << status << " in round " << round;
      ++(status == kHeld ? held_now : refused);
    }
    EXPECT_GE(held_now, 1) << "nobody got the lock in round " << round;
    held += held_now;
  }
  EXPECT_EQ(held + refused, kRounds * kProcesses);
}

}  // namespace
}  // namespace headsweep
