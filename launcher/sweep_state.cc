#include "launcher/sweep_state.h"

#include <cstdlib>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

std::string Field(const JournalEvent& event, const char* name) {
  const auto found = event.fields.find(name);
  return found != event.fields.end() ? found->second : "";
}

void ReadAttempts(const std::vector<JournalEvent>& events, SweepState& state) {
  std::map<std::pair<std::string, int>, std::size_t> known;
  for (const JournalEvent& event : events) {
    if (event.type == journal::kSweepStarted) state.last_exit_code.reset();
    if (event.type == journal::kSweepEnded)
      state.last_exit_code = std::atoi(Field(event, "exit_code").c_str());
    if (event.stage.empty() || event.attempt == 0) continue;
    const auto [position, is_new] = known.try_emplace({event.stage, event.attempt}, state.attempts.size());
    if (is_new) state.attempts.emplace_back();
    AttemptHistory& attempt = state.attempts[position->second];
    attempt.stage = event.stage;
    attempt.attempt = event.attempt;
    state.latest[event.stage] = position->second;
    if (event.type == journal::kAttemptStarted) {
      attempt.host = Field(event, "host");
      attempt.slots = Field(event, "slots");
      attempt.started_at = event.time;
    } else if (event.type == journal::kCheckpointed) {
      attempt.checkpoint_step = std::atoll(Field(event, "step").c_str());
    } else if (event.type == journal::kAttemptEnded) {
      attempt.outcome = Field(event, "outcome");
      attempt.cause = Field(event, "cause");
      attempt.message = Field(event, "message");
      attempt.charged = Field(event, "charged") == "yes";
      attempt.ended_at = event.time;
    }
  }
}

}  // namespace

bool SweepState::IsRunning(const std::string& stage) const {
  const AttemptHistory* attempt = LatestAttempt(stage);
  return launcher_may_live && attempt != nullptr && attempt->ended_at == 0;
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

SweepState ReadSweepState(const Workspace& workspace, const FileSystem& files, const std::string& name) {
  PlannedSweep planned = PlanSweep(LoadKeptSweep(workspace, files, name), FingerprintOfSource());
  const JournalHistory history = ReadJournal(files, workspace.Journal(name));
  std::map<StageId, std::string> done;
  for (const auto& [stage, position] : planned.index)
    if (files.Exists(workspace.TrialResult(stage))) done.emplace(StageId(stage), "");
  const std::optional<LockOwner> launcher = ReadSweepLock(workspace.Lock(name));
  const bool may_live = launcher && StateOf(*launcher, ThisProcess()) != OwnerState::kDead;
  CorePolicy policy;
  policy.automatic_restart =
      may_live;  // what failed in its launch has failed; a new launch would try it again
  policy.early_stopping = planned.early_stopping();
  Core core(planned.Specs(), policy, history.events, done);
  SweepState state{.name = name,
                   .planned = std::move(planned),
                   .core = std::move(core),
                   .attempts = {},
                   .launcher = launcher,
                   .launcher_may_live = may_live,
                   .last_exit_code = {},
                   .latest = {}};
  ReadAttempts(history.events, state);
  return state;
}

}  // namespace headsweep
