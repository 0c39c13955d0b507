// The half of Core that looks at time and the queue: what is due, what starts next, whether the sweep is
// over.
#include <algorithm>
#include <limits>

#include "cluster/base/errors.h"
#include "cluster/base/memory.h"
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
    // With everything at its disposal it is started whatever it is thought to need.
    const bool has_all = running_.empty() && next->slots <= pool_.free();
    if (!has_all && !pool_.Fits(next->slots, MemoryOf(next->stage))) {
      if (reserved_for_ < 0) {
        reserved_for_ = next->stage;
        passed_by_ = 0;
      }
      if (passed_by_ >= pool_.total() || short_of_memory_since_ == pool_.changes()) return;
      const bool short_of_memory = next->slots <= pool_.free();
      next = queue_.BestWithin(pool_.free(), WaitFor(next->stage),
                               [this](const auto& other) { return pool_.Fits(other.slots, MemoryOf(other.stage)); });
      if (!next) {
        if (short_of_memory) short_of_memory_since_ = pool_.changes();
        if (short_of_memory) TellShortOfMemory(reserved_for_);
        return;
      }
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
  const std::int64_t memory = MemoryOf(stage);
  entry.status.slots =
      pool_.Fits(spec.slots, memory) ? pool_.Take(spec.slots, memory) : pool_.TakeAnyway(spec.slots, memory);
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

double Core::WaitFor(int stage) const {
  std::vector<std::pair<double, int>> ends;  // (slot time left, stage)
  ends.reserve(running_.size());
  for (const int other : running_)
    ends.push_back({RemainingFlops(other) / static_cast<double>(At(other).status.slots.size()), other});
  std::sort(ends.begin(), ends.end());
  std::vector<const std::vector<SlotId>*> slots;
  slots.reserve(ends.size());
  for (const auto& [time, other] : ends) slots.push_back(&At(other).status.slots);
  const int ends_until = pool_.EndsUntilFit(plan_[static_cast<std::size_t>(stage)].slots, MemoryOf(stage), slots);
  if (ends_until < 0) return std::numeric_limits<double>::infinity();  // not before a slot comes back from quarantine
  return ends_until == 0 ? 0 : ends[static_cast<std::size_t>(ends_until) - 1].first;
}

std::int64_t Core::MemoryOf(int stage) const {
  if (At(stage).alone) return SlotPool::kWholeDevice;
  const StageSpec& spec = plan_[static_cast<std::size_t>(stage)];
  if (spec.memory == 0) return 0;
  const auto measured = measured_memory_.find({spec.kind, spec.memory});
  return measured != measured_memory_.end() ? measured->second : spec.memory + memory_underestimate_;
}

void Core::TellShortOfMemory(int stage) {
  if (std::exchange(told_short_of_memory_, true)) return;
  const StageSpec& spec = plan_[static_cast<std::size_t>(stage)];
  const std::string needs = At(stage).alone ? "a device of its own" : FormatBytes(MemoryOf(stage)) + " on each device";
  Emit(Notice{fmt::format("memory, not slots, limits how many trials run at once: {} of {} slots are busy, and {} needs {}",
                          busy_slots(), pool_.usable(), spec.id.value(), needs)});
}

void Core::LearnMemory(const StageSpec& spec, std::int64_t measured) {
  if (spec.memory == 0 || measured <= 0) return;
  std::int64_t& most = measured_memory_[{spec.kind, spec.memory}];
  most = std::max(most, measured);
  memory_underestimate_ = std::max(memory_underestimate_, measured - spec.memory);
}

void Core::LearnOutOfMemory(Entry& entry, bool in_company) {
  if (in_company) {
    entry.alone = true;
  } else if (entry.micro_batch_divisor < (1 << 20)) {
    entry.micro_batch_divisor *= 2;
  }
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
