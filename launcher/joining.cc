#include "launcher/joining.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "launcher/lease.h"
#include "launcher/sweep_lock.h"

namespace headsweep {
namespace {

std::string Name(const LauncherCard& card) {
  return fmt::format("process {} on {}{}", card.process.pid, card.process.host,
                     card.process.job.empty() ? "" : ", job " + card.process.job);
}

// Those of `cards` who live, after at most a lease of watching: the others are gone.
std::vector<LauncherCard> WatchWhoLives(const FileSystem& files, const Workspace& workspace,
                                        std::vector<LauncherCard> cards, const JoinOptions& options) {
  const SystemClock clock;
  LauncherWatch watch(files, workspace.root(), options.lease_seconds);
  const double begin = clock.Monotonic(), interval = std::min(1.0, options.lease_seconds / 12);
  bool said = false;
  for (;;) {
    watch.Look(clock.Monotonic(), 2 * interval);
    std::erase_if(cards, [&](const LauncherCard& card) { return watch.IsGone(card.key); });
    const bool known = std::any_of(cards.begin(), cards.end(), [&](const auto& card) { return watch.IsAlive(card.key); });
    if (known || cards.empty() || clock.Monotonic() - begin > 3 * options.lease_seconds) return cards;
    if (options.say && !std::exchange(said, true))
      options.say(fmt::format("{} may still work on this sweep; watching for at most {:.0f} s whether it does",
                              Name(cards.front()), options.lease_seconds));
    std::this_thread::sleep_for(std::chrono::duration<double>(interval));
  }
}

// The jobs of a submission, and the tasks of the batch system's array, are one launch, whenever they start; otherwise whoever comes while others are there is part of
// theirs. "": a launch of its own.
std::string ChooseLaunch(const std::vector<LauncherCard>& living) {
  const std::string given = GivenLaunch();
  if (!given.empty()) return given;
  const char* array = std::getenv("SLURM_ARRAY_JOB_ID");
  if (array != nullptr && *array != '\0') return std::string("slurm-array-") + array;
  return living.empty() ? "" : living.front().launch;
}

void RefuseOtherFile(const std::vector<LauncherCard>& living, const std::string& sweep, const std::string& hash) {
  for (const LauncherCard& card : living) {
    if (card.toml_hash == hash) continue;
    throw ConfigError(fmt::format("{} works on a sweep \"{}\" from another version of the sweep file. Wait for it, stop it "
                                  "with `headsweep cancel {}`, or give this one another name",
                                  Name(card), sweep, sweep));
  }
}

void RefuseExclusive(const Workspace& workspace, const std::string& sweep, bool take_over) {
  const std::optional<LockOwner> owner = ReadSweepLock(workspace.Lock(sweep));
  const OwnerState state = owner ? StateOf(*owner, ThisProcess()) : OwnerState::kDead;
  if (state == OwnerState::kDead || (state == OwnerState::kUnknown && take_over)) return;
  throw ConfigError(fmt::format(
      "process {} on {} has the sweep \"{}\" for itself. Stop it with `headsweep cancel {}`, then start all with --join{}",
      owner->pid, owner->host, sweep, sweep,
      state == OwnerState::kUnknown ? "; if you are sure that it does not run any more, give --take-over" : ""));
}

}  // namespace

std::string GivenLaunch() {
  const char* launch = std::getenv(kLaunchVariable);
  return launch != nullptr ? launch : "";
}

std::unique_ptr<Membership> JoinSweep(FileSystem& files, const Workspace& workspace, const std::string& sweep,
                                      const std::string& text, const JoinOptions& options) {
  const std::string hash = HashHex(text);
  std::vector<LauncherCard> others = ReadRoster(files, workspace, sweep), strangers;
  LauncherWatch watch(files, workspace.root(), options.lease_seconds);
  std::erase_if(others, [&](const LauncherCard& card) { return watch.IsGone(card.key); });
  std::copy_if(others.begin(), others.end(), std::back_inserter(strangers),
               [&](const LauncherCard& card) { return card.toml_hash != hash; });
  if (!strangers.empty()) RefuseOtherFile(WatchWhoLives(files, workspace, strangers, options), sweep, hash);

  auto membership = std::make_unique<Membership>(files, workspace, sweep, ChooseLaunch(others), hash);
  // Whoever has the sweep for itself takes the lock, then reads the roster; here it is the other way round. So of two at
  // once, one sees the other at least.
  RefuseExclusive(workspace, sweep, options.take_over);
  const std::string path = workspace.SweepToml(sweep);
  if (!files.Exists(path) || files.ReadFile(path) != text) {
    others = ReadRoster(files, workspace, sweep);  // again: those who came in this moment
    std::erase_if(others, [&](const LauncherCard& card) { return watch.IsGone(card.key); });
    std::erase_if(others, [&](const LauncherCard& card) {
      return std::any_of(strangers.begin(), strangers.end(), [&](const auto& s) { return s.key == card.key; });
    });
    RefuseOtherFile(others, sweep, hash);
    WriteFileDurably(files, path, text);
  }
  return membership;
}

void FenceOff(const Workspace& workspace, const LauncherJournal& gone) {
  std::set<std::string> open;
  for (const JournalEvent& event : gone.events) {
    if (event.type == journal::kAttemptStarted) open.insert(event.stage);
    if (event.type == journal::kAttemptEnded) open.erase(event.stage);
  }
  for (const std::string& stage : open) {
    const std::string trial = workspace.Trial(stage);
    if (HolderOf(trial) != LeaseOwner{gone.launcher.key}) continue;
    const Claim claim = ClaimTrial(trial, {"exclusive"}, 1, [](const std::string&) { return true; });
    if (claim.lease) Release(*claim.lease);
  }
}

void RefuseBesideOthers(const FileSystem& files, const Workspace& workspace, const std::string& sweep,
                        const JoinOptions& options) {
  if (options.take_over) return;
  const std::vector<LauncherCard> living =
      WatchWhoLives(files, workspace, ReadRoster(files, workspace, sweep), options);
  if (living.empty()) return;
  throw ConfigError(fmt::format(
      "{} launcher{} share the sweep \"{}\" with --join, {} among them. Join them with --join, wait, or stop them with "
      "`headsweep cancel {}`",
      living.size(), living.size() == 1 ? "" : "s", sweep, Name(living.front()), sweep));
}

}  // namespace headsweep
