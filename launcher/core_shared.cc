// The part of Core that shares a sweep with other launchers: claims, and what is heard of the others.
#include <algorithm>
#include <cstdlib>

#include "cluster/base/errors.h"
#include "launcher/attempt_outcome.h"
#include "launcher/core.h"
#include "launcher/failure_policy.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

// After a claim that was refused: its holder has not recorded the start yet, or has just recorded the end. Chosen.
constexpr double kRefusedSeconds = 1;

}  // namespace

void Core::On(const ClaimAnswered& event) {
  const auto it = index_.find(event.stage);
  if (it == index_.end()) return;
  const int stage = it->second;
  if (At(stage).run != Run::kClaiming) {  // what was heard meanwhile has changed our mind
    if (event.attempt) Emit(ReleaseStage{event.stage, *event.attempt});
  } else if (event.attempt && phase_ == Phase::kOpen) {
    Begin(stage, *event.attempt);
  } else {
    if (event.attempt) Emit(ReleaseStage{event.stage, *event.attempt});
    Unclaim(stage);
    MakeReady(stage, event.attempt ? 0 : kRefusedSeconds);
  }
}

void Core::Unclaim(int stage) {
  Entry& entry = At(stage);
  for (const SlotId& slot : entry.status.slots) pool_.Release(slot);
  entry.status.slots.clear();
  entry.run = Run::kNone;
  SetAlarm(stage, std::nullopt);
  running_.erase(stage);
}

void Core::On(const HeardOf& event) {
  const JournalEvent& heard = event.event;
  const auto it = index_.find(StageId(heard.stage));
  if (it == index_.end()) return;
  const int stage = it->second;
  Entry& entry = At(stage);
  if (heard.type == journal::kEvaluated) return HearValue(stage, heard);
  if (entry.status.state == StageState::kFinished || entry.status.state == StageState::kDiverged) return;
  const std::string outcome = journal::Field(heard, "outcome");
  if (heard.type == journal::kAttemptStarted) {
    HearStart(stage, Attempt(heard.attempt));
  } else if (heard.type == journal::kCheckpointed) {
    entry.checkpoint_step = std::max<std::int64_t>(entry.checkpoint_step, journal::NumberField(heard, "step"));
    if (!IsLive(stage)) entry.status.step = entry.checkpoint_step;
  } else if (heard.type == journal::kStageAdopted) {
    const bool diverged = SaysDiverged(journal::Field(heard, "summary"));
    HearResult(stage, diverged ? StageState::kDiverged : StageState::kFinished, journal::Field(heard, "summary"));
  } else if (heard.type == journal::kAttemptEnded && outcome == control::kFinished) {
    LearnMemory(plan_[static_cast<std::size_t>(stage)], journal::NumberField(heard, "memory"));
    HearResult(stage, StageState::kFinished, journal::Field(heard, "summary"));
  } else if (heard.type == journal::kAttemptEnded && outcome == control::kDiverged) {
    HearResult(stage, StageState::kDiverged, journal::Field(heard, "summary"));
  } else if (heard.type == journal::kAttemptEnded) {
    HearEnd(stage, heard);
  } else if (heard.type == journal::kEarlyStopped && early_stopping_.on()) {
    entry.given_up = journal::Field(heard, "reason");
  } else if (heard.type == journal::kRetried) {
    const bool dropped =
        entry.status.state == StageState::kFailed || entry.status.state == StageState::kEarlyStopped;
    if (dropped) return Revive(stage);
    entry.spared |= !entry.given_up.empty();
    entry.given_up.clear();
  }
}

void Core::HearValue(int stage, const JournalEvent& event) {
  const StageSpec& spec = plan_[static_cast<std::size_t>(stage)];
  if (spec.group.empty()) return;
  early_stopping_.Observe(spec.group, spec.id, journal::NumberField(event, "step"),
                          std::strtod(journal::Field(event, "value").c_str(), nullptr));
}

void Core::HearStart(int stage, Attempt attempt) {
  Entry& entry = At(stage);
  if (attempt < entry.status.attempt) return;  // a later one is known already
  if (attempt == entry.status.attempt && IsLive(stage)) return;
  entry.status.elsewhere = std::max(entry.status.elsewhere, attempt);
  if (IsLive(stage)) return LoseLease(stage);
  if (entry.run == Run::kClaiming) {
    Unclaim(stage);
    MakeReady(stage, 0);
  }
  entry.status.attempt = attempt;
  entry.status.started_at = last_now_;
  if (entry.status.state == StageState::kFailed) Revive(stage);
  Unqueue(stage);
}

// Of an attempt that did not finish.
void Core::HearEnd(int stage, const JournalEvent& event) {
  Entry& entry = At(stage);
  const std::string cause = journal::Field(event, "cause");
  const bool charged = journal::Field(event, "charged") == "yes";
  if (charged) ++entry.status.failures;
  if (cause == control::kCauseOutOfMemory) LearnOutOfMemory(entry, journal::Field(event, "in_company") == "yes");
  const Attempt attempt(event.attempt);
  if (attempt >= entry.status.elsewhere) entry.status.elsewhere = Attempt(0);
  if (IsLive(stage) || attempt < entry.status.attempt) return;  // a later attempt says how it goes on
  if (entry.run == Run::kClaiming) {
    Unclaim(stage);
    MakeReady(stage, 0);
  }
  Unqueue(stage);
  entry.status.attempt = attempt;
  entry.status.cause = cause;
  entry.status.message = journal::Field(event, "message");
  if (entry.status.state != StageState::kReady) return;  // what makes it ready is not heard yet
  const int retries = plan_[static_cast<std::size_t>(stage)].retries;
  if (entry.given_up.empty() &&
      (VerdictOn(cause) == Verdict::kGiveUp || (charged && entry.status.failures > retries))) {
    GiveUp(stage, cause, entry.status.message);
  } else {
    Reopen(stage, charged ? BackoffSeconds(entry.status.failures) : 0);
  }
}

void Core::Reopen(int stage, double delay) {
  Entry& entry = At(stage);
  if (entry.given_up.empty()) return MakeReady(stage, delay);
  entry.status.message = entry.given_up;
  Enter(stage, StageState::kEarlyStopped);
  for (const int child : entry.children) Drop(child, StageState::kEarlyStopped);
}

void Core::HearResult(int stage, StageState state, const std::string& summary) {
  Entry& entry = At(stage);
  if (IsLive(stage)) {  // ours is of no use any more
    entry.result_elsewhere = state;
    entry.status.summary = summary;
    return LoseLease(stage);
  }
  if (entry.run == Run::kClaiming) {
    Unclaim(stage);
    MakeReady(stage, 0);
  }
  Unqueue(stage);
  entry.status.elsewhere = Attempt(0);
  Conclude(stage, state, summary);
}

void Core::On(const LeftBehind& event) {
  const auto it = index_.find(event.stage);
  if (it == index_.end() || At(it->second).status.elsewhere != event.attempt) return;
  const int stage = it->second;
  At(stage).status.elsewhere = Attempt(0);
  if (IsLive(stage) || At(stage).status.state != StageState::kReady) return;
  At(stage).status.step = At(stage).checkpoint_step;
  Reopen(stage, 0);
}

void Core::On(const LeaseLost& event) {
  const int stage = FindLive(event.stage, event.attempt);
  if (stage >= 0) LoseLease(stage);
}

void Core::LoseLease(int stage) {
  if (At(stage).run == Run::kKilling && At(stage).kill_cause == cause::kLostLease) return;
  At(stage).kill_cause = cause::kLostLease;
  At(stage).run = Run::kKilling;
  Kill(stage, cause::kLostLease, "another launcher has taken the trial over");
}

}  // namespace headsweep
