// The half of Core that looks at time and the queue: what is due, what starts next, whether the sweep is
// over.
#include <algorithm>
#include <limits>

#include "cluster/base/errors.h"
#include "launcher/core.h"
#include "launcher/failure_policy.h"

namespace headsweep {

void Core::Ring() {
  while (!alarms_.empty() && alarms_.begin()->first <= now_) {
    const int stage = alarms_.begin()->second;
    switch (At(stage).run) {
      case Run::kRunning:
        Kill(stage, cause::kHang,
             fmt::format("no sign of life for {:.0f} s, the last at step {}", now_ - At(stage).watch.last(),
                         At(stage).status.step));
        break;
      case Run::kStopping:
        Kill(stage, cause::kStopped, fmt::format("did not stop within {:.0f} s", policy_.stop_grace_seconds));
        break;
      case Run::kKilling:
        Kill(stage, At(stage).kill_cause, "still there after the last kill");
        break;
      case Run::kClaiming:
      case Run::kNone:
        HEADSWEEP_CHECK(false, "an alarm of a stage that does not run");
    }
  }
  while (!delayed_.empty() && delayed_.begin()->first <= now_) {
    const int stage = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    At(stage).delayed_until.reset();
    At(stage).queued = true;
    queue_.Insert(QueueEntry(stage));
  }
  while (!quarantine_.empty() && quarantine_.front().first <= now_) {
    pool_.Restore(quarantine_.front().second);
    quarantine_.pop_front();
  }
}

void Core::MakeReady(int stage, double delay) {
  Enter(stage, StageState::kReady);
  Entry& entry = At(stage);
  if (entry.status.elsewhere > Attempt(0)) return;
  if (delay > 0) {
    entry.delayed_until = now_ + delay;
    delayed_.insert({*entry.delayed_until, stage});
  } else {
    entry.queued = true;
    queue_.Insert(QueueEntry(stage));
  }
}

void Core::Unqueue(int stage) {
  Entry& entry = At(stage);
  if (entry.queued) queue_.Erase(QueueEntry(stage));
  entry.queued = false;
  if (entry.delayed_until) delayed_.erase({*entry.delayed_until, stage});
  entry.delayed_until.reset();
  if (reserved_for_ == stage) reserved_for_ = -1;
}

ReadyQueue::Entry Core::QueueEntry(int stage) const {
  return {.stage = stage,
          .slots = plan_[static_cast<std::size_t>(stage)].slots,
          .chain = At(stage).chain,
          .child = At(stage).parent >= 0,
          .priority = plan_[static_cast<std::size_t>(stage)].priority};
}

void Core::StartReady() {
  while (phase_ == Phase::kOpen && !paused_ && !IsTooLateToStart() && pool_.free() > 0 && !queue_.empty()) {
    std::optional<ReadyQueue::Entry> next;
    if (reserved_for_ >= 0 && QueueEntry(reserved_for_).slots <= pool_.usable()) {
      next = QueueEntry(reserved_for_);
    } else {
      reserved_for_ = -1;
      next = queue_.Best(pool_.usable(), (total_flops_ - closed_flops_) / pool_.usable());
    }
    if (!next) return;
    if (next->slots > pool_.free()) {
      if (reserved_for_ < 0) {
        reserved_for_ = next->stage;
        passed_by_ = 0;
      }
      if (passed_by_ >= pool_.total()) return;
      next = queue_.BestWithin(pool_.free(), WaitFor(next->slots));
      if (!next) return;
      ++passed_by_;
    }
    Start(*next);
  }
}

void Core::ObeyTimeLimit() {
  if (!ends_at_ || phase_ != Phase::kOpen) return;
  const std::string what = "the allocation's time limit";
  if (last_now_ >= *ends_at_ - policy_.time_limit_lead_seconds) {
    On(StopRequested{what});
  } else if (running_.empty() && !queue_.empty() && IsTooLateToStart()) {
    Close(Phase::kStopping, kExitResumable,
          fmt::format("what is left of {} is too short to start more; run `headsweep resume` to go on", what));
  }
}

// A stage that is asked to stop saves what it has done at its next step, so it is worth starting if it gets under way.
bool Core::IsTooLateToStart() const {
  return ends_at_ && last_now_ + 2 * start_up_ >= *ends_at_ - policy_.time_limit_lead_seconds;
}

void Core::Start(const ReadyQueue::Entry& next) {
  const int stage = next.stage;
  Entry& entry = At(stage);
  Unqueue(stage);
  const StageSpec& spec = plan_[static_cast<std::size_t>(stage)];
  entry.status.slots = pool_.Take(spec.slots);
  running_.insert(stage);
  Enter(stage, StageState::kRunning);
  const Attempt following(entry.status.attempt.value() + 1);
  if (!policy_.shared) return Begin(stage, following);
  entry.run = Run::kClaiming;
  SetAlarm(stage, std::numeric_limits<double>::infinity());
  Emit(ClaimStage{spec.id, following});
}

void Core::Begin(int stage, Attempt attempt) {
  Entry& entry = At(stage);
  const StageSpec& spec = plan_[static_cast<std::size_t>(stage)];
  entry.status.attempt = attempt;
  entry.status.started_at = last_now_;
  entry.status.step = entry.step_at_start = entry.checkpoint_step;
  entry.run = Run::kRunning;
  entry.under_way = false;
  entry.watch = HangWatch(now_);
  SetAlarm(stage, entry.watch.Deadline(policy_.hang_factor, policy_.hang_floor_seconds));

  std::string hosts, slots;
  for (const SlotId& slot : entry.status.slots) {
    slots += fmt::format("{}{}:{}", slots.empty() ? "" : ",", slot.node.value(), slot.index);
    if (&slot == entry.status.slots.data() || (&slot)[-1].node != slot.node) {
      hosts += (hosts.empty() ? "" : ",") + pool_.host(slot.node);
    }
  }
  RecordEvent(journal::kAttemptStarted, stage, {{"host", hosts}, {"slots", slots}});
  Emit(StartAttempt{spec.id, entry.status.attempt, entry.status.slots, entry.micro_batch_divisor});
}

double Core::RemainingFlops(int stage) const {
  const StageStatus& status = At(stage).status;
  const double done =
      status.steps > 0 ? static_cast<double>(status.step) / static_cast<double>(status.steps) : 0;
  return plan_[static_cast<std::size_t>(stage)].flops * (1 - std::clamp(done, 0.0, 1.0));
}

double Core::WaitFor(int slots) const {
  std::vector<std::pair<double, int>> ends;  // (slot time left, slots)
  ends.reserve(running_.size());
  for (const int stage : running_) {
    const int wide = static_cast<int>(At(stage).status.slots.size());
    ends.push_back({RemainingFlops(stage) / wide, wide});
  }
  std::sort(ends.begin(), ends.end());
  int free = pool_.free();
  for (const auto& [time, wide] : ends) {
    free += wide;
    if (free >= slots) return time;
  }
  return std::numeric_limits<double>::infinity();  // not before a slot comes back from quarantine
}

int Core::busy_slots() const {
  int busy = 0;
  for (const int stage : running_) busy += static_cast<int>(At(stage).status.slots.size());
  return busy;
}

double Core::longest_chain_left() const {
  double longest = queue_.longest();
  for (const int stage : running_) {
    const StageSpec& spec = plan_[static_cast<std::size_t>(stage)];
    longest = std::max(longest, At(stage).chain - (spec.flops - RemainingFlops(stage)) / spec.slots);
  }
  for (const auto& [time, stage] : delayed_) longest = std::max(longest, At(stage).chain);
  return longest;
}

void Core::EndIfDone() {
  const bool fits = queue_.empty() || queue_.smallest() <= pool_.total();
  if (!running_.empty() || (phase_ == Phase::kOpen && fits)) nothing_fits_since_.reset();
  if (!running_.empty()) return;

  int code = close_code_;
  std::string reason = close_reason_;
  if (counts_.waiting + counts_.ready == 0 && (phase_ == Phase::kOpen || code == kExitResumable)) {
    code = counts_.failed + counts_.skipped > 0 ? kExitFailed : kExitDone;
    reason = code == kExitDone ? "every stage is done"
                               : fmt::format(
                                     "{} stages failed, {} were skipped because of them; run `headsweep "
                                     "resume` to try them again",
                                     counts_.failed, counts_.skipped);
    if (counts_.early_stopped > 0) reason += fmt::format("; {} were stopped early", counts_.early_stopped);
  } else if (phase_ == Phase::kOpen) {
    if (fits || paused_ || !delayed_.empty() || !any_node_) return;
    if (!nothing_fits_since_) nothing_fits_since_ = now_;
    if (now_ - *nothing_fits_since_ < policy_.gang_patience_seconds) return;
    code = any_lost_ ? kExitResumable : kExitUsage;
    reason = fmt::format("the stages left need at least {} slots at once, but there are {}; {}",
                         queue_.smallest(), pool_.total(),
                         any_lost_ ? "run `headsweep resume` on more nodes"
                                   : "ask for more nodes, or for fewer devices in [run]");
  }
  ended_ = true;
  RecordEvent(journal::kSweepEnded, -1, {{"exit_code", fmt::format("{}", code)}, {"reason", reason}});
  Emit(EndSweep{code, reason});
}

}  // namespace headsweep
