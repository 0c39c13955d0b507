// Leases of trials: one holder at a time, numbers that never come back, and a fence that stops whoever has lost his.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <set>
#include <vector>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "launcher/lease.h"
#include "launcher/roster.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using testing::TempDir;

const auto kNobodyIsGone = [](const std::string&) { return false; };
const auto kEverybodyIsGone = [](const std::string&) { return true; };

TEST(Lease, IsHeldByOneAndSaysByWhom) {
  TempDir trial;
  const LeaseOwner anna{"sweeps/s/launchers/anna"}, ben{"sweeps/s/launchers/ben"};
  const Claim first = ClaimTrial(trial.path(), anna, 1, kNobodyIsGone);
  ASSERT_TRUE(first.lease.has_value());
  EXPECT_EQ(first.lease->token, 1);
  EXPECT_TRUE(IsHeld(*first.lease, anna));
  EXPECT_FALSE(IsHeld(*first.lease, ben));
  EXPECT_EQ(HolderOf(trial.path()), anna);
  const Claim second = ClaimTrial(trial.path(), ben, 1, kNobodyIsGone);
  EXPECT_FALSE(second.lease.has_value());
  EXPECT_EQ(second.holder, anna.launcher);
  Release(*first.lease);
  EXPECT_EQ(HolderOf(trial.path()), std::nullopt);
  EXPECT_TRUE(ClaimTrial(trial.path(), ben, 2, kNobodyIsGone).lease.has_value());
}

TEST(Lease, ItsNumberIsGreaterThanAnyThatWasEverUsed) {
  TempDir trial;
  const LeaseOwner anna{"anna"};
  ::mkdir((trial / "attempt-4").c_str(), 0755);
  Claim claim = ClaimTrial(trial.path(), anna, 2, kNobodyIsGone);
  EXPECT_EQ(claim.lease->token, 5);
  claim = ClaimTrial(trial.path(), {"ben"}, 2, kEverybodyIsGone);
  EXPECT_EQ(claim.lease->token, 6) << "after the lost 5";
  Release(*claim.lease);
  EXPECT_EQ(ClaimTrial(trial.path(), anna, 9, kNobodyIsGone).lease->token, 9) << "what the journals know counts too";
}

TEST(Lease, ThatWasTakenOverSealsNothing) {
  TempDir trial;
  FileSystem& files = FileSystem::Real();
  const Claim stale = ClaimTrial(trial.path(), {"stopped"}, 1, kNobodyIsGone);
  files.WriteFile(trial / "result.tmp-1", "of the stale attempt");
  const Claim now = ClaimTrial(trial.path(), {"successor"}, 1, kEverybodyIsGone);
  EXPECT_EQ(now.taken_from, "stopped");
  EXPECT_FALSE(IsHeld(*stale.lease, {"stopped"}));
  try {
    SealInPlace(files, trial / "result.tmp-1", trial / "result.h5", stale.lease->fence);
    FAIL() << "it sealed";
  } catch (const IoError& error) {
    EXPECT_EQ(error.error_number(), ESTALE);
    EXPECT_NE(std::string(error.what()).find("another launcher has taken this trial over"), std::string::npos);
  }
  EXPECT_FALSE(files.Exists(trial / "result.h5"));
  files.WriteFile(trial / "result.tmp-2", "of the successor");
  SealInPlace(files, trial / "result.tmp-2", trial / "result.h5", now.lease->fence);
  EXPECT_EQ(files.ReadFile(trial / "result.h5"), "of the successor");
  Release(*stale.lease);  // of what is not its own any more
  EXPECT_TRUE(IsHeld(*now.lease, {"successor"}));
}

// Processes that claim, work and give back as fast as they can; some pretend that the others are gone, and take over.
// Whoever has the lease writes a file through its fence that must not be there yet; whoever was fenced fails at that.
TEST(Lease, ManyProcessesNeverHaveItAtOnce) {
  TempDir folder;
  const std::string trial = folder / "trial", work = folder / "work";
  ::mkdir(trial.c_str(), 0755);
  ::mkdir(work.c_str(), 0755);
  constexpr int kProcesses = 4, kClaims = 25;
  std::vector<pid_t> children;
  for (int child = 0; child < kProcesses; ++child) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      children.push_back(pid);
      continue;
    }
    int status = 0;
    try {
      const LeaseOwner me{"launcher-" + std::to_string(child)};
      const bool impatient = child < 2;
      for (int claims = 0, tries = 0; claims < kClaims && tries < 100000; ++tries) {
        const Claim claim =
            ClaimTrial(trial, me, 1, [&](const std::string&) { return impatient && tries % 7 == 0; });
        if (!claim.lease) continue;
        ++claims;
        const std::string temporary = fmt::format("{}/tmp-{}", work, child);
        FileSystem::Real().WriteFile(temporary, me.launcher);
        // The number belongs to this attempt alone, for ever.
        if (::mkdir(fmt::format("{}/attempt-{}", trial, claim.lease->token).c_str(), 0755) != 0) status = 3;
        try {
          SealInPlace(FileSystem::Real(), temporary, fmt::format("{}/sealed-{}", work, claim.lease->token),
                      claim.lease->fence);
        } catch (const IoError& error) {
          if (error.error_number() != ESTALE) status = 4;
        }
        if (IsHeld(*claim.lease, me)) Release(*claim.lease);
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "process %d: %s\n", child, error.what());
      status = 5;
    }
    ::_exit(status);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0) << "3: a number was given twice, 4: sealing failed, 5: see above; exit status "
                         << WEXITSTATUS(status);
  }
  const std::vector<std::string> names = FileSystem::Real().List(trial);
  EXPECT_EQ(std::count_if(names.begin(), names.end(), [](const auto& name) { return name.starts_with("attempt-"); }),
            kProcesses * kClaims);
  EXPECT_TRUE(std::any_of(names.begin(), names.end(), [](const auto& name) { return name.starts_with("lost-"); }))
      << "nobody was ever fenced";
}

// --- Who is gone
// ---------------------------------------------------------------------------------------------------------------------

class RosterTest : public ::testing::Test {
 protected:
  RosterTest() : workspace_(temp_ / "runs") {}
  // Of a host where this process cannot look.
  std::string Elsewhere(Membership& member) {
    const std::string card = member.card().directory + "/launcher.json";
    std::string text = files_.ReadFile(card);
    const std::string host = ThisProcess().host;
    for (std::size_t at = text.find(host); at != std::string::npos; at = text.find(host, at + 1))
      text.replace(at, host.size(), "node-x");
    files_.WriteFile(card, text);
    return member.card().key;
  }

  TempDir temp_;
  Workspace workspace_;
  FileSystem& files_ = FileSystem::Real();
};

TEST_F(RosterTest, NamesWhoJoinedAndWhoHasLeft) {
  {
    Membership member(files_, workspace_, "s", "", "hash");
    const std::vector<LauncherCard> roster = ReadRoster(files_, workspace_, "s");
    ASSERT_EQ(roster.size(), 1u);
    EXPECT_EQ(roster[0].key, member.card().key);
    EXPECT_EQ(roster[0].process.start_ticks, ThisProcess().start_ticks);
    EXPECT_EQ(roster[0].launch, member.card().launch);
    LauncherWatch watch(files_, workspace_.root(), 10);
    EXPECT_FALSE(watch.IsGone(member.card().key));
    EXPECT_TRUE(watch.IsAlive(member.card().key));
  }
  const std::vector<LauncherCard> roster = ReadRoster(files_, workspace_, "s");
  ASSERT_EQ(roster.size(), 1u) << "its journal stays";
  EXPECT_TRUE(HealthOf(files_, roster[0]).left);
  LauncherWatch watch(files_, workspace_.root(), 10);
  EXPECT_TRUE(watch.IsGone(roster[0].key));
}

TEST_F(RosterTest, ALauncherElsewhereIsGoneOnlyAfterALeaseOfWatchedSilence) {
  Membership member(files_, workspace_, "s", "", "hash");
  const std::string key = Elsewhere(member);
  LauncherWatch watch(files_, workspace_.root(), 10);
  double now = 100;
  const auto look = [&](double seconds) { watch.Look(now += seconds, 2); };
  EXPECT_FALSE(watch.IsGone(key));
  EXPECT_FALSE(watch.IsAlive(key)) << "unknown is neither";
  look(0);
  for (int i = 0; i < 9; ++i) look(1);
  EXPECT_FALSE(watch.IsGone(key));
  member.Beat();
  look(1);
  EXPECT_TRUE(watch.IsAlive(key));
  for (int i = 0; i < 9; ++i) look(1);
  EXPECT_FALSE(watch.IsGone(key)) << "it has beaten in between";
  look(1000);  // this process stood still, or the file server: nobody's silence
  EXPECT_TRUE(watch.IsGone(key)) << "two seconds more";
  member.Beat();
  look(1);
  EXPECT_FALSE(watch.IsGone(key)) << "it lives after all";
}

TEST_F(RosterTest, ADeadProcessOfThisHostIsGoneAtOnce) {
  const pid_t child = ::fork();
  if (child == 0) {
    Membership member(files_, workspace_, "s", "", "hash");
    ::_exit(0);  // without leaving
  }
  ::waitpid(child, nullptr, 0);
  const std::vector<LauncherCard> roster = ReadRoster(files_, workspace_, "s");
  ASSERT_EQ(roster.size(), 1u);
  LauncherWatch watch(files_, workspace_.root(), 1000);
  EXPECT_TRUE(watch.IsGone(roster[0].key));
  EXPECT_TRUE(HealthOf(files_, roster[0]).dead);
}

TEST_F(RosterTest, SilenceIsToldByTheFileSystemsOwnClock) {
  Membership member(files_, workspace_, "s", "", "hash");
  Elsewhere(member);
  struct timespec times[2];
  ::clock_gettime(CLOCK_REALTIME, &times[0]);
  times[0].tv_sec -= 300;
  times[1] = times[0];
  ASSERT_EQ(::utimensat(AT_FDCWD, (member.card().directory + "/beat").c_str(), times, 0), 0);
  const LauncherHealth health = HealthOf(files_, ReadRoster(files_, workspace_, "s").at(0));
  ASSERT_TRUE(health.silent_for.has_value());
  EXPECT_NEAR(*health.silent_for, 300, 10);
}

}  // namespace
}  // namespace headsweep
