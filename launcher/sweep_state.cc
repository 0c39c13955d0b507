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

// Notes with the starts in a journal where they were read from.
class Tagger {
 public:
  explicit Tagger(std::string launcher) : launcher_(std::move(launcher)) {}
  void Tag(JournalEvent& event) {
    if (event.type == journal::kSweepStarted) {
      job_ = journal::Field(event, "job");
      restart_ = journal::Field(event, "restart");
    }
    if (event.type != journal::kAttemptStarted) return;
    event.fields[kLauncherField] = launcher_;
    event.fields[kJobField] = job_;
    event.fields[kRestartField] = restart_;
  }

 private:
  std::string launcher_, job_, restart_;
};

std::vector<JournalEvent> ReadTagged(const FileSystem& files, const std::string& path, const std::string& launcher) {
  std::vector<JournalEvent> events = ReadJournal(files, path).events;
  Tagger tagger(launcher);
  for (JournalEvent& event : events) tagger.Tag(event);
  return events;
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

// What the attempts were, from one event after the other.
class AttemptReader {
 public:
  explicit AttemptReader(SweepState& state) : state_(state) { state_.latest.resize(state_.planned.size()); }

  void Read(const JournalEvent& event) {
    if (event.type == journal::kSweepStarted) state_.last_exit_code.reset();
    if (event.type == journal::kSweepEnded)
      state_.last_exit_code = std::atoi(journal::Field(event, "exit_code").c_str());
    if (event.stage.empty() || event.attempt == 0) return;
    const std::optional<std::size_t> stage = state_.planned.Find(event.stage);
    if (!stage) return;  // the sweep file no longer has it
    AttemptHistory& attempt = FindOrAdd(static_cast<std::uint32_t>(*stage), event.attempt);
    if (event.type == journal::kAttemptStarted) {
      attempt.host = Keep(event, "host");
      attempt.launcher = Keep(event, kLauncherField);
      attempt.job = Keep(event, kJobField);
      attempt.job_restart = std::atoi(journal::Field(event, kRestartField).c_str());
      attempt.slots = Keep(event, "slots");
      attempt.started_at = event.time;
    } else if (event.type == journal::kCheckpointed) {
      attempt.checkpoint_step = std::atoll(journal::Field(event, "step").c_str());
    } else if (event.type == journal::kAttemptEnded) {
      attempt.outcome = Keep(event, "outcome");
      attempt.cause = Keep(event, "cause");
      attempt.message = Keep(event, "message");
      attempt.charged = journal::Field(event, "charged") == "yes";
      attempt.ended_at = event.time;
    }
  }

 private:
  // The attempt of the event last read is the stage's latest.
  AttemptHistory& FindOrAdd(std::uint32_t stage, int number) {
    std::optional<std::uint32_t>& latest = state_.latest[stage];
    for (std::optional<std::uint32_t> at = latest; at; at = state_.attempts[*at].previous) {
      if (state_.attempts[*at].attempt != number) continue;
      return state_.attempts[*at];
    }
    AttemptHistory& added = state_.attempts.emplace_back();
    added.stage = stage;
    added.attempt = number;
    added.previous = latest;
    latest = static_cast<std::uint32_t>(state_.attempts.size() - 1);
    return added;
  }

  std::string_view Keep(const JournalEvent& event, const char* field) {
    return *state_.texts.insert(journal::Field(event, field)).first;
  }

  SweepState& state_;
};

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
  const std::optional<std::size_t> position = planned.Find(stage);
  if (!position || !latest[*position]) return nullptr;
  return &attempts[*latest[*position]];
}

std::map<std::string, int> SweepState::Counts() const {
  std::map<std::string, int> counts;
  for (const char* state : {"finished", "diverged", "early-stopped", "running", "interrupted", "ready", "waiting",
                            "failed", "skipped"}) {
    counts[state] = 0;
  }
  for (const PlanStage& stage : planned.plan.stages) ++counts[StateOf(planned.plan.Id(stage))];
  return counts;
}

std::string SweepState::Word() const {
  if (launcher_may_live) return "running";
  const std::map<std::string, int> counts = Counts();
  const int total = static_cast<int>(planned.size());
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

SweepState ReadSweepState(const Workspace& workspace, const FileSystem& files, const std::string& name, bool summaries) {
  PlannedSweep planned = PlanSweep(LoadKeptSweep(workspace, files, name), FingerprintOfSource());
  const std::string directory = workspace.SweepDirectory(name);
  std::map<StageId, std::string> done;
  for (const std::uint32_t position : planned.by_id)
    if (std::string stage = planned.IdAt(position); files.Exists(workspace.TrialResult(stage)))
      done.emplace_hint(done.end(), StageId(std::move(stage)), "");
  std::vector<KnownLauncher> launchers;
  if (const std::optional<LockOwner> owner = ReadSweepLock(workspace.Lock(name)))
    launchers.push_back({directory, *owner, false, FindStateOf(*owner) != OwnerState::kDead, {}});
  const double lease = Timing::FromEnvironment().lease;
  std::vector<LauncherJournal> shared;
  for (const LauncherCard& card : ReadRoster(files, workspace, name)) {
    const LauncherHealth health = HealthOf(files, card);
    const bool silent = health.silent_for && *health.silent_for > lease;
    launchers.push_back({card.directory, card.process, true, !health.left && !health.dead && !silent, health.silent_for});
    shared.push_back({card, ReadTagged(files, JournalOf(card.directory), card.directory)});
  }
  const bool may_live = std::any_of(launchers.begin(), launchers.end(), [](const auto& l) { return l.may_live; });
  CorePolicy policy;
  policy.automatic_restart =
      may_live;  // what failed in its launch has failed; a new launch would try it again
  policy.early_stopping = planned.early_stopping();

  // Of one launcher, the journal goes by; of several it has to be put in order first.
  SweepState state{.name = name,
                   .planned = std::move(planned),
                   .core = Core({}, policy, {}, {}),
                   .attempts = {},
                   .launchers = std::move(launchers),
                   .launcher_may_live = may_live,
                   .last_exit_code = {},
                   .latest = {},
                   .texts = {}};
  AttemptReader attempts(state);
  state.core = Core(state.planned.Specs(), policy, HistoryStream([&](const HistoryStream::Visit& visit) {
    const auto take = [&](JournalEvent& event) {
      attempts.Read(event);
      if (!summaries && event.type == journal::kAttemptEnded) event.fields.erase("summary");
      visit(event);
    };
    if (shared.empty()) {
      Tagger tagger(directory);
      ScanJournal(files, workspace.Journal(name), [&](JournalEvent& event) {
        tagger.Tag(event);
        take(event);
      });
      return;
    }
    std::vector<JournalEvent> own = ReadTagged(files, workspace.Journal(name), directory);
    const std::string launch = LatestLaunch(own, shared, state.launchers);
    for (JournalEvent& event : MergeJournals(std::move(own), shared, launch)) take(event);
  }), done);
  return state;
}

}  // namespace headsweep
