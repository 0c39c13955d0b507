// Where a sweep stands, read from the disk by somebody who does not run it: the workspace's copy of the sweep
// file, the journal, the results that are there, and the lock. For `status`, `collect` and `report`. Writes
// nothing, needs no lock.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "launcher/core.h"
#include "launcher/journal.h"
#include "launcher/live_view.h"
#include "launcher/planned_sweep.h"
#include "launcher/sweep_lock.h"
#include "launcher/workspace.h"

namespace headsweep {

// Somebody who works on a sweep, or did.
struct KnownLauncher {
  std::string directory;  // where its live.json and requests/ are
  LockOwner process;
  bool joined = false;    // it shares the sweep (LEASES.md); otherwise it has the sweep for itself
  bool may_live = false;  // it lives, or runs where this process cannot look
  std::optional<double> silent_for;  // seconds since the last beat, of one that joined and may live; nullopt: not known
};

struct AttemptHistory {
  std::uint32_t stage = 0;                // position in the plan
  int attempt = 0;
  std::optional<std::uint32_t> previous;  // of the same stage: position in SweepState::attempts
  std::string_view host, job, slots, outcome, cause, message;  // in SweepState::texts
  int job_restart = 0;                    // how often `job` had been requeued before
  std::string_view launcher;              // KnownLauncher::directory of who started it
  bool charged = false;                 // against the stage's retries
  double started_at = 0, ended_at = 0;  // unix seconds; 0 = not (yet)
  std::int64_t checkpoint_step = 0;
};

struct SweepState {
  std::string name;
  PlannedSweep planned;
  Core core;  // as the launcher sees it that lives, or as one that starts now would
  std::vector<AttemptHistory> attempts;  // in the order of their start, of the stages that the sweep still has
  std::vector<KnownLauncher> launchers;  // the exclusive one first, if there is one
  bool launcher_may_live = false;        // any of them
  std::optional<int>
      last_exit_code;  // of the last launcher that came to an end, if nothing was started since

  // Of a living launcher's latest attempts: not ended yet.
  bool IsRunning(const std::string& stage) const;
  std::vector<const KnownLauncher*> Living() const;  // those who may live
  // "finished", "diverged", "early-stopped", "failed", "skipped", "running", "ready", "waiting"; "interrupted": it ran when
  // its launcher died.
  std::string StateOf(const std::string& stage) const;
  const AttemptHistory* LatestAttempt(const std::string& stage) const;
  // Of the sweep's stages, by StateOf; every state is there.
  std::map<std::string, int> Counts() const;
  // The whole sweep in one word: running | done | stopped (resumable) | failed | interrupted (its launcher
  // died).
  std::string Word() const;

  std::vector<std::optional<std::uint32_t>> latest;  // by position in the plan: position in attempts
  std::unordered_set<std::string> texts;             // what attempts are told with, each once
};

// What the launchers of a sweep say of this moment, as one view; nullopt: nobody says anything.
std::optional<LiveView> ReadLive(const FileSystem& files, const SweepState& state);

// summaries: core.status(…).summary is wanted. They are most of a large journal.
SweepState ReadSweepState(const Workspace& workspace, const FileSystem& files, const std::string& name,
                          bool summaries = false);

}  // namespace headsweep
