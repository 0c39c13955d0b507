#include "launcher/core.h"

#include <algorithm>
#include <iterator>

#include "cluster/base/errors.h"
#include "launcher/failure_policy.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

// Time in which nobody called Handle (a suspended laptop, a stopped launcher) is not held against the
// attempts: their messages of that time have not been read yet. Chosen well above the coordinator's tick and
// below every limit.
constexpr double kLongestGapSeconds = 10;

// Free retries in a row that did not get one step further; more are charged, or a stage that kills its node
// would go on for ever. Chosen.
constexpr int kFutileLimit = 10;

int& CountOf(Core::Counts& counts, StageState state) {
  switch (state) {
    case StageState::kWaiting:
      return counts.waiting;
    case StageState::kReady:
      return counts.ready;
    case StageState::kRunning:
      return counts.running;
    case StageState::kFinished:
      return counts.finished;
    case StageState::kDiverged:
      return counts.diverged;
    case StageState::kFailed:
      return counts.failed;
    case StageState::kEarlyStopped:
      return counts.early_stopped;
    case StageState::kSkipped:
      break;
  }
  return counts.skipped;
}

// Its flops are not among those that are still to be done.
bool IsGivenUp(StageState state) {
  return state == StageState::kFailed || state == StageState::kSkipped || state == StageState::kEarlyStopped;
}

}  // namespace

const char* ToString(StageState state) {
  switch (state) {
    case StageState::kWaiting:
      return "waiting";
    case StageState::kReady:
      return "ready";
    case StageState::kRunning:
      return "running";
    case StageState::kFinished:
      return "finished";
    case StageState::kDiverged:
      return "diverged";
    case StageState::kFailed:
      return "failed";
    case StageState::kEarlyStopped:
      return "early-stopped";
    case StageState::kSkipped:
      break;
  }
  return "skipped";
}

std::vector<Command> Core::Handle(const Event& event, double now) {
  if (ended_) return {};
  if (!begun_) {
    begun_ = true;
    now_ = last_now_ = now;
    commands_ = std::move(pending_);
  }
  HEADSWEEP_CHECK(now >= last_now_, "the clock went back from {} to {}", last_now_, now);
  now_ += std::min(now - last_now_, kLongestGapSeconds);
  last_now_ = now;

  std::visit([this](const auto& e) { On(e); }, event);
  Ring();
  ObeyTimeLimit();
  StartReady();
  EndIfDone();

  std::stable_partition(commands_.begin(), commands_.end(),
                        [](const Command& c) { return std::holds_alternative<Record>(c); });
  return std::exchange(commands_, {});
}

const StageStatus& Core::status(const StageId& stage) const {
  const auto it = index_.find(stage);
  HEADSWEEP_CHECK(it != index_.end(), "stage {} is not in the plan", stage.value());
  return entries_[static_cast<std::size_t>(it->second)].status;
}

double Core::finished_flops() const {
  double flops = closed_flops_;
  for (const int stage : running_)
    flops += plan_[static_cast<std::size_t>(stage)].flops - RemainingFlops(stage);
  return flops;
}

int Core::FindLive(const StageId& stage, Attempt attempt) const {
  const auto it = index_.find(stage);
  if (it == index_.end()) return -1;
  const Entry& entry = At(it->second);
  return IsLive(it->second) && entry.status.attempt == attempt ? it->second : -1;
}

// --- Nodes
// ----------------------------------------------------------------------------------------------------------------

void Core::On(const NodeJoined& event) {
  if (pool_.HasNode(event.node) || event.slots < 1) return;
  any_node_ = true;
  pool_.AddNode(event.node, event.host, event.slots, event.device_bytes);
}

void Core::On(const NoSlots& event) {
  if (!any_node_) Close(Phase::kStopping, kExitUsage, event.reason);
}

void Core::On(const NodeLost& event) {
  if (!pool_.HasNode(event.node)) return;
  any_lost_ = true;
  const std::string host = pool_.host(event.node);
  pool_.RemoveNode(event.node);
  std::erase_if(quarantine_, [&](const auto& item) { return item.second.node == event.node; });
  std::erase_if(strikes_, [&](const auto& item) { return item.first.node == event.node; });

  const std::vector<int> running(running_.begin(), running_.end());
  for (const int stage : running) {
    std::vector<SlotId>& slots = At(stage).status.slots;
    if (std::erase_if(slots, [&](const SlotId& s) { return s.node == event.node; }) == 0) continue;
    const std::string message =
        fmt::format("node {} ({}) was lost: {}", event.node.value(), host, event.reason);
    if (At(stage).run == Run::kClaiming) {
      Unclaim(stage);
      MakeReady(stage, 0);
    } else if (slots.empty()) {
      if (At(stage).run == Run::kKilling) At(stage).kill_cause = cause::kLostNode;
      Fail(stage, cause::kLostNode,
           {plan_[static_cast<std::size_t>(stage)].id, At(stage).status.attempt, control::kFailed, "",
            message, ""});
    } else {
      Kill(stage, cause::kLostNode, message);
    }
  }
  if (pool_.empty()) Close(Phase::kStopping, kExitResumable, "all nodes are lost; run `headsweep resume`");
}

// --- Attempts
// -------------------------------------------------------------------------------------------------------------

void Core::On(const AttemptProgressed& event) {
  const int stage = FindLive(event.stage, event.attempt);
  if (stage < 0) return;
  Entry& entry = At(stage);
  entry.status.step = std::max(entry.status.step, event.step);
  entry.status.steps = event.steps;
  if (!entry.under_way && event.step > entry.step_at_start) {
    entry.under_way = true;
    const double took = last_now_ - entry.status.started_at;
    start_up_ = start_up_ == 0 ? took : 0.7 * start_up_ + 0.3 * took;
  }
  entry.watch.OnProgress(event.step, now_);
  if (entry.run == Run::kRunning) {
    SetAlarm(stage, entry.watch.Deadline(policy_.hang_factor, policy_.hang_floor_seconds));
  }
}

void Core::On(const AttemptCheckpointed& event) {
  const int stage = FindLive(event.stage, event.attempt);
  if (stage < 0 || event.step <= At(stage).checkpoint_step) return;
  At(stage).checkpoint_step = event.step;
  RecordEvent(journal::kCheckpointed, stage, {{"step", fmt::format("{}", event.step)}});
}

void Core::On(const AttemptEvaluated& event) {
  const int stage = FindLive(event.stage, event.attempt);
  if (stage < 0 || !early_stopping_.on()) return;
  Entry& entry = At(stage);
  const std::string& group = plan_[static_cast<std::size_t>(stage)].group;
  if (group.empty()) return;
  RecordEvent(journal::kEvaluated, stage,
              {{"step", fmt::format("{}", event.step)}, {"value", fmt::format("{}", event.value)}});
  early_stopping_.Observe(group, event.stage, event.step, event.value);
  if (entry.spared || !entry.given_up.empty()) return;
  const std::optional<std::string> why = early_stopping_.Judge(group, event.stage, event.step);
  if (!why) return;
  entry.given_up = *why;
  RecordEvent(journal::kEarlyStopped, stage, {{"step", fmt::format("{}", event.step)}, {"reason", *why}});
  Stop(stage);
}

void Core::On(const AttemptEnded& event) {
  const int stage = FindLive(event.stage, event.attempt);
  if (stage < 0) return;
  if (event.outcome == control::kFinished) {
    Finish(stage, StageState::kFinished, event);
  } else if (event.outcome == control::kDiverged) {
    Finish(stage, StageState::kDiverged, event);
  } else if (event.outcome == control::kStopped) {
    Fail(stage, cause::kStopped, event);
  } else {
    Fail(stage, event.cause.empty() ? control::kCauseError : event.cause, event);
  }
}

// A result is a result, also of an attempt that was asked to stop, or even killed, while it sealed.
void Core::Finish(int stage, StageState state, const AttemptEnded& event) {
  Entry& entry = At(stage);
  std::map<std::string, std::string> fields = {
      {"outcome", event.outcome}, {"message", event.message}, {"summary", event.summary}};
  if (event.memory > 0) fields["memory"] = fmt::format("{}", event.memory);
  RecordEvent(journal::kAttemptEnded, stage, std::move(fields));
  LearnMemory(plan_[static_cast<std::size_t>(stage)], event.memory);
  ReleaseSlots(stage, cause::kStopped, true);
  entry.status.message = event.message;
  entry.status.step = entry.status.steps;
  Conclude(stage, state, event.summary);
}

void Core::Conclude(int stage, StageState state, const std::string& summary) {
  Entry& entry = At(stage);
  entry.status.summary = summary;
  entry.status.cause.clear();
  any_finished_ = true;
  Enter(stage, state);
  for (const int child : entry.children) {
    if (At(child).status.state != StageState::kWaiting) continue;
    if (state == StageState::kFinished) {
      MakeReady(child, 0);
    } else {
      Drop(child, StageState::kSkipped);
    }
  }
}

void Core::Fail(int stage, const std::string& reported, const AttemptEnded& event) {
  Entry& entry = At(stage);
  std::string cause = reported;
  if (entry.run == Run::kKilling) {
    cause = entry.kill_cause;  // what we killed it for, not how it died
  } else if (entry.run == Run::kStopping &&
             (cause == cause::kSignal || cause == cause::kExit || cause == cause::kHang ||
              cause == control::kCausePeer)) {
    cause = cause::kStopped;  // Ctrl-C and the batch system reach the trainers too
  }
  const bool given_up = !entry.given_up.empty();
  const bool pause = VerdictOn(cause) == Verdict::kPauseSweep;
  if (given_up) cause = cause::kEarlyStopped;  // however it ended: it is not wanted any more
  Verdict verdict = VerdictOn(cause);
  if (verdict == Verdict::kRetryFree) {
    entry.futile = entry.status.step > entry.step_at_start ? 0 : entry.futile + 1;
    if (entry.futile > kFutileLimit) verdict = Verdict::kRetryCharged;
  }
  const bool charged = verdict == Verdict::kRetryCharged;
  if (charged) ++entry.status.failures;
  const bool in_company = cause == control::kCauseOutOfMemory && pool_.HasCompany(entry.status.slots);
  if (cause == control::kCauseOutOfMemory) LearnOutOfMemory(entry, in_company);
  std::map<std::string, std::string> fields = {
      {"outcome", cause == cause::kStopped || given_up ? control::kStopped : control::kFailed},
      {"cause", cause},
      {"message", event.message},
      {"charged", charged ? "yes" : "no"}};
  if (in_company) fields["in_company"] = "yes";
  RecordEvent(journal::kAttemptEnded, stage, std::move(fields));
  ReleaseSlots(stage, cause, false);
  entry.status.cause = cause;
  entry.status.message = event.message;
  entry.status.step = entry.checkpoint_step;
  entry.status.attempt = std::max(entry.status.attempt, entry.status.elsewhere);
  if (entry.result_elsewhere) return Conclude(stage, *entry.result_elsewhere, entry.status.summary);

  if (given_up) {
    entry.status.message = entry.given_up;
    Enter(stage, StageState::kEarlyStopped);
    for (const int child : entry.children) Drop(child, StageState::kEarlyStopped);
  } else if (verdict == Verdict::kGiveUp ||
             (charged && entry.status.failures > plan_[static_cast<std::size_t>(stage)].retries)) {
    GiveUp(stage, cause, event.message);
  } else {
    const double delay = charged ? BackoffSeconds(entry.status.failures)
                                 : (entry.futile > 1 ? BackoffSeconds(entry.futile - 1) : 0);
    MakeReady(stage, delay);
  }
  if (pause) {
    Close(Phase::kStopping, kExitResumable,
          fmt::format("stage {} could not write or read: {}; repair that, then run `headsweep resume`",
                      event.stage.value(), event.message));
  }
}

void Core::GiveUp(int stage, const std::string& cause, const std::string& message) {
  Enter(stage, StageState::kFailed);
  for (const int child : At(stage).children) Drop(child, StageState::kSkipped);
  if (any_finished_) return;
  const StageId& id = plan_[static_cast<std::size_t>(stage)].id;
  std::vector<int>& alike = common_failures_[FailureSignature(cause, message, id.value())];
  alike.push_back(stage);
  if (static_cast<int>(alike.size()) < std::min(policy_.common_failure_limit, stages_to_start_)) return;
  Close(Phase::kStopping, cause == control::kCauseConfiguration ? kExitUsage : kExitFailed,
        fmt::format("{} different stages failed for the same reason and none has finished, so the rest was "
                    "not started: "
                    "{}: {}",
                    alike.size(), cause, message));
}

void Core::Drop(int stage, StageState state) {
  std::vector<int> open = {stage};
  while (!open.empty()) {
    const int next = open.back();
    open.pop_back();
    if (At(next).status.state != StageState::kWaiting) continue;  // has a result of its own from earlier
    Enter(next, state);
    open.insert(open.end(), At(next).children.begin(), At(next).children.end());
  }
}

void Core::ReleaseSlots(int stage, const std::string& cause, bool praise) {
  Entry& entry = At(stage);
  // Of a gang nobody knows whose device it was, so only stages on one slot are held against it.
  const bool blame = entry.status.slots.size() == 1 &&
                     (cause == control::kCauseDevice || cause == cause::kSignal || cause == cause::kHang);
  for (const SlotId& slot : entry.status.slots) {
    if (praise) strikes_.erase(slot);
    if (blame) strikes_[slot].insert(stage);
    const bool bad = blame && static_cast<int>(strikes_[slot].size()) >= policy_.slot_failure_limit;
    // Half of the slots stay: when most look bad, it is not the slots.
    if (bad && 2 * (pool_.total() - pool_.usable() + 1) <= pool_.total()) {
      pool_.Quarantine(slot);
      quarantine_.push_back({now_ + policy_.quarantine_seconds, slot});
      Emit(Notice{fmt::format(
          "slot {} of node {} ({}) is left out for {} s: {} different stages in a row failed on it",
          slot.index, slot.node.value(), pool_.host(slot.node), policy_.quarantine_seconds,
          strikes_[slot].size())});
    } else {
      pool_.Release(slot);
    }
  }
  entry.status.slots.clear();
  entry.run = Run::kNone;
  SetAlarm(stage, std::nullopt);
  running_.erase(stage);
  if (policy_.shared) Emit(ReleaseStage{plan_[static_cast<std::size_t>(stage)].id, entry.status.attempt});
}

void Core::Enter(int stage, StageState state) {
  StageState& old = At(stage).status.state;
  HEADSWEEP_CHECK(old != StageState::kFinished && old != StageState::kDiverged,
                  "stage {} is {} and cannot become {}", plan_[static_cast<std::size_t>(stage)].id.value(),
                  ToString(old), ToString(state));
  const double flops = plan_[static_cast<std::size_t>(stage)].flops;
  if (IsGivenUp(old)) total_flops_ += flops;
  --CountOf(counts_, old);
  ++CountOf(counts_, state);
  old = state;
  if (state == StageState::kFinished) closed_flops_ += flops;
  if (state == StageState::kDiverged || IsGivenUp(state)) total_flops_ -= flops;
}

// --- Stopping
// -------------------------------------------------------------------------------------------------------------

void Core::On(const StopRequested& event) {
  RecordEvent(journal::kStopRequested, -1, {{"reason", event.reason}});
  const bool again = stop_requested_;
  stop_requested_ = true;
  Close(again ? Phase::kKilling : Phase::kStopping, kExitResumable,
        fmt::format("stopped: {}; run `headsweep resume` to go on", event.reason));
}

void Core::On(const TimeLimit& event) { ends_at_ = last_now_ + event.seconds_left; }

void Core::On(const PauseRequested& event) {
  if (paused_ == event.paused) return;
  paused_ = event.paused;
  RecordEvent(paused_ ? journal::kPaused : journal::kContinued, -1, {{"by", event.by}});
  Emit(Notice{paused_
                  ? fmt::format("paused by {}: nothing more is started until `headsweep continue`", event.by)
                  : fmt::format("continued by {}", event.by)});
}

void Core::On(const RetryRequested& event) {
  if (phase_ != Phase::kOpen) {
    Emit(Notice{fmt::format("{} asked for retries, but the sweep is stopping; `headsweep resume` retries",
                            event.by)});
    return;
  }
  std::vector<int> stages;
  for (const StageId& id : event.stages) {
    const auto it = index_.find(id);
    if (it != index_.end()) stages.push_back(it->second);
  }
  for (int stage = 0; event.stages.empty() && stage < static_cast<int>(entries_.size()); ++stage)
    stages.push_back(stage);
  int revived = 0;
  for (const int stage : stages) {
    const StageState state = At(stage).status.state;
    const bool spare = state == StageState::kEarlyStopped && !event.stages.empty() && At(stage).given_up != "";
    if (state != StageState::kFailed && !spare) continue;
    RecordEvent(journal::kRetried, stage, {{"by", event.by}});
    Revive(stage);
    ++revived;
  }
  common_failures_.clear();
  Emit(Notice{
      fmt::format("{} asked for retries: {} stage{}", event.by, revived, revived == 1 ? "" : "s")});
}

void Core::Revive(int stage) {
  At(stage).status.failures = 0;
  At(stage).futile = 0;
  At(stage).spared |= !At(stage).given_up.empty();
  At(stage).given_up.clear();
  MakeReady(stage, 0);
  std::vector<int> open = At(stage).children;
  while (!open.empty()) {
    const int next = open.back();
    open.pop_back();
    const StageState state = At(next).status.state;
    if (state != StageState::kSkipped && state != StageState::kEarlyStopped) continue;
    Enter(next, StageState::kWaiting);
    open.insert(open.end(), At(next).children.begin(), At(next).children.end());
  }
}

void Core::On(const Tick&) {}

void Core::Close(Phase phase, int exit_code, const std::string& reason) {
  if (phase_ == Phase::kOpen) {
    close_code_ = exit_code;
    close_reason_ = reason;
    for (const int stage : running_) Stop(stage);
  }
  if (phase == Phase::kKilling) {
    for (const int stage : running_) Kill(stage, cause::kStopped, reason);
  }
  phase_ = std::max(phase_, phase);
}

void Core::Stop(int stage) {
  Entry& entry = At(stage);
  if (entry.run != Run::kRunning) return;
  entry.run = Run::kStopping;
  SetAlarm(stage, now_ + policy_.stop_grace_seconds);
  Emit(StopAttempt{plan_[static_cast<std::size_t>(stage)].id, entry.status.attempt});
}

void Core::Kill(int stage, const std::string& cause, const std::string& reason) {
  Entry& entry = At(stage);
  if (entry.run == Run::kClaiming) return;  // its answer finds the sweep closed
  if (entry.run != Run::kKilling) entry.kill_cause = cause;
  entry.run = Run::kKilling;
  SetAlarm(stage, now_ + policy_.stop_grace_seconds);
  Emit(KillAttempt{plan_[static_cast<std::size_t>(stage)].id, entry.status.attempt, reason});
}

void Core::SetAlarm(int stage, std::optional<double> time) {
  Entry& entry = At(stage);
  if (entry.alarm) alarms_.erase({*entry.alarm, stage});
  entry.alarm = time;
  if (time) alarms_.insert({*time, stage});
}

void Core::RecordEvent(const char* type, int stage, std::map<std::string, std::string> fields) {
  JournalEvent event;
  event.type = type;
  event.fields = std::move(fields);
  if (stage >= 0) {
    event.stage = plan_[static_cast<std::size_t>(stage)].id.value();
    event.attempt = At(stage).status.attempt.value();
  }
  Emit(Record{std::move(event)});
}

}  // namespace headsweep
