#include "launcher/sweep_state.h"

#include <algorithm>
#include <cstdlib>

#include "cluster/base/errors.h"
#include "launcher/history.h"
#include "launcher/timing.h"

namespace headsweep {
namespace {

// Where an attempt's start was read from, and the job of the launcher that wrote it: not on the disk.
constexpr const char* kLauncherField = "launcher";
constexpr const char* kJobField = "launcher job";
constexpr const char* kRestartField = "launcher restart";

JournalHistory ReadTagged(const FileSystem& files, const std::string& path, const std::string& launcher) {
  JournalHistory history = ReadJournal(files, path);
  std::string job, restart;
  for (JournalEvent& event : history.events) {
    if (event.type == journal::kSweepStarted) {
      job = journal::Field(event, "job");
      restart = journal::Field(event, "restart");
    }
    if (event.type != journal::kAttemptStarted) continue;
    event.fields[kLauncherField] = launcher;
    event.fields[kJobField] = job;
    event.fields[kRestartField] = restart;
  }
  return history;
}

// The launch whose launchers may live, or the last one that began; "": of somebody who had the sweep for himself. The times
// are for display only, like this choice.
std::string LatestLaunch(const std::vector<JournalEvent>& own, const std::vector<LauncherJournal>& shared,
                         const std::vector<KnownLauncher>& launchers) {
  for (std::size_t i = 0; i < shared.size(); ++i)
    for (const KnownLauncher& launcher : launchers)
      if (launcher.may_live && launcher.directory == shared[i].launcher.directory) return shared[i].launcher.launch;
  std::string latest;
  double time = 0;
  const auto look = [&](const std::vector<JournalEvent>& events, const std::string& launch) {
    for (const JournalEvent& event : events)
      if (event.type == journal::kSweepStarted && event.time > time) time = event.time, latest = launch;
  };
  look(own, "");
  for (const LauncherJournal& journal : shared) look(journal.events, journal.launcher.launch);
  return latest;
}

void ReadAttempts(const std::vector<JournalEvent>& events, SweepState& state) {
  std::map<std::pair<std::string, int>, std::size_t> known;
  for (const JournalEvent& event : events) {
    if (event.type == journal::kSweepStarted) state.last_exit_code.reset();
    if (event.type == journal::kSweepEnded)
      state.last_exit_code = std::atoi(journal::Field(event, "exit_code").c_str());
    if (event.stage.empty() || event.attempt == 0) continue;
    const auto [position, is_new] = known.try_emplace({event.stage, event.attempt}, state.attempts.size());
    if (is_new) state.attempts.emplace_back();
    AttemptHistory& attempt = state.attempts[position->second];
    attempt.stage = event.stage;
    attempt.attempt = event.attempt;
    state.latest[event.stage] = position->second;
    if (event.type == journal::kAttemptStarted) {
      attempt.host = journal::Field(event, "host");
      attempt.launcher = journal::Field(event, kLauncherField);
      attempt.job = journal::Field(event, kJobField);
      attempt.job_restart = std::atoi(journal::Field(event, kRestartField).c_str());
      attempt.slots = journal::Field(event, "slots");
      attempt.started_at = event.time;
    } else if (event.type == journal::kCheckpointed) {
      attempt.checkpoint_step = std::atoll(journal::Field(event, "step").c_str());
    } else if (event.type == journal::kAttemptEnded) {
      attempt.outcome = journal::Field(event, "outcome");
      attempt.cause = journal::Field(event, "cause");
      attempt.message = journal::Field(event, "message");
      attempt.charged = journal::Field(event, "charged") == "yes";
      attempt.ended_at = event.time;
    }
  }
}

}  // namespace

bool SweepState::IsRunning(const std::string& stage) const {
  const AttemptHistory* attempt = LatestAttempt(stage);
  if (attempt == nullptr || attempt->ended_at != 0) return false;
  for (const KnownLauncher& launcher : launchers)
    if (launcher.may_live && launcher.directory == attempt->launcher) return true;
  return false;
}

std::vector<const KnownLauncher*> SweepState::Living() const {
  std::vector<const KnownLauncher*> living;
  for (const KnownLauncher& launcher : launchers)
    if (launcher.may_live) living.push_back(&launcher);
  return living;
}

std::string SweepState::StateOf(const std::string& stage) const {
  const StageState state = core.status(StageId(stage)).state;
  if (state != StageState::kReady && state != StageState::kWaiting) return ToString(state);
  if (IsRunning(stage)) return ToString(StageState::kRunning);
  const AttemptHistory* attempt = LatestAttempt(stage);
  if (attempt != nullptr && attempt->ended_at == 0) return "interrupted";
  // A launcher that starts now would try it again; what a person wants to know is how it ended.
  if (!launcher_may_live && attempt != nullptr && attempt->outcome == "failed")
    return ToString(StageState::kFailed);
  return ToString(state);
}

const AttemptHistory* SweepState::LatestAttempt(const std::string& stage) const {
  const auto found = latest.find(stage);
  return found != latest.end() ? &attempts[found->second] : nullptr;
}

std::map<std::string, int> SweepState::Counts() const {
  std::map<std::string, int> counts;
  for (const char* state : {"finished", "diverged", "early-stopped", "running", "interrupted", "ready", "waiting",
                            "failed", "skipped"}) {
    counts[state] = 0;
  }
  for (const auto& [stage, position] : planned.index) ++counts[StateOf(stage)];
  return counts;
}

std::string SweepState::Word() const {
  if (launcher_may_live) return "running";
  const std::map<std::string, int> counts = Counts();
  const int total = static_cast<int>(planned.index.size());
  if (counts.at("finished") + counts.at("diverged") + counts.at("early-stopped") == total) return "done";
  if (counts.at("interrupted") > 0 || !last_exit_code) return "interrupted";
  return *last_exit_code == kExitResumable ? "stopped" : "failed";
}

std::optional<LiveView> ReadLive(const FileSystem& files, const SweepState& state) {
  std::vector<LiveView> views;
  for (const KnownLauncher* launcher : state.Living())
    if (auto view = ReadLiveView(files, launcher->directory + "/live.json")) views.push_back(std::move(*view));
  if (views.empty()) return std::nullopt;
  return Combine(views);
}

SweepState ReadSweepState(const Workspace& workspace, const FileSystem& files, const std::string& name) {
  PlannedSweep planned = PlanSweep(LoadKeptSweep(workspace, files, name), FingerprintOfSource());
  const std::string directory = workspace.SweepDirectory(name);
  JournalHistory history = ReadTagged(files, workspace.Journal(name), directory);
  std::map<StageId, std::string> done;
  for (const auto& [stage, position] : planned.index)
    if (files.Exists(workspace.TrialResult(stage))) done.emplace(StageId(stage), "");
  std::vector<KnownLauncher> launchers;
  if (const std::optional<LockOwner> owner = ReadSweepLock(workspace.Lock(name)))
    launchers.push_back({directory, *owner, false, FindStateOf(*owner) != OwnerState::kDead, {}});
  const double lease = Timing::FromEnvironment().lease;
  std::vector<LauncherJournal> shared;
  for (const LauncherCard& card : ReadRoster(files, workspace, name)) {
    const LauncherHealth health = HealthOf(files, card);
    const bool silent = health.silent_for && *health.silent_for > lease;
    launchers.push_back({card.directory, card.process, true, !health.left && !health.dead && !silent, health.silent_for});
    shared.push_back({card, ReadTagged(files, JournalOf(card.directory), card.directory).events});
  }
  const bool may_live = std::any_of(launchers.begin(), launchers.end(), [](const auto& l) { return l.may_live; });
  if (!shared.empty()) {
    const std::string launch = LatestLaunch(history.events, shared, launchers);
    history.events = MergeJournals(std::move(history.events), shared, launch);
  }
  CorePolicy policy;
  policy.automatic_restart =
      may_live;  // what failed in its launch has failed; a new launch would try it again
  policy.early_stopping = planned.early_stopping();
  Core core(planned.Specs(), policy, history.events, done);
  SweepState state{.name = name,
                   .planned = std::move(planned),
                   .core = std::move(core),
                   .attempts = {},
                   .launchers = std::move(launchers),
                   .launcher_may_live = may_live,
                   .last_exit_code = {},
                   .latest = {}};
  ReadAttempts(history.events, state);
  return state;
}

}  // namespace headsweep
