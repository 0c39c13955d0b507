// What must hold after every event. For tests: costs O(stages).
#include "cluster/base/errors.h"
#include "launcher/core.h"

namespace headsweep {

void Core::CheckInvariants() const {
  Counts counts;
  std::vector<SlotId> taken;
  double total = 0;
  int queued = 0, delayed = 0, alarms = 0;
  for (int stage = 0; stage < static_cast<int>(entries_.size()); ++stage) {
    const Entry& entry = At(stage);
    const StageSpec& spec = plan_[static_cast<std::size_t>(stage)];
    const std::string& id = spec.id.value();
    const StageState state = entry.status.state;
    const StageState parent = entry.parent < 0 ? StageState::kFinished : At(entry.parent).status.state;
    const bool runs = state == StageState::kRunning;

    HEADSWEEP_CHECK(runs == (entry.run != Run::kNone) && runs == running_.contains(stage) &&
                        runs == !entry.status.slots.empty() && runs == entry.alarm.has_value(),
                    "stage {} is {} but its attempt says otherwise", id, ToString(state));
    HEADSWEEP_CHECK(
        !runs || ((entry.status.attempt.value() >= 1 || entry.run == Run::kClaiming) &&
                  (entry.run == Run::kKilling || static_cast<int>(entry.status.slots.size()) == spec.slots)),
        "stage {} runs on {} slots of {}", id, entry.status.slots.size(), spec.slots);
    HEADSWEEP_CHECK(!runs || phase_ == Phase::kOpen || entry.run != Run::kRunning,
                    "stage {} was not asked to stop", id);
    const int queues = static_cast<int>(entry.queued) + static_cast<int>(entry.delayed_until.has_value());
    const bool elsewhere = entry.status.elsewhere > Attempt(0);
    HEADSWEEP_CHECK(queues == (state == StageState::kReady && !elsewhere ? 1 : 0), "stage {} is {}{} but queued {} times",
                    id, ToString(state), elsewhere ? " elsewhere" : "", queues);
    switch (state) {
      case StageState::kWaiting:
        HEADSWEEP_CHECK(
            parent == StageState::kWaiting || parent == StageState::kReady || parent == StageState::kRunning,
            "stage {} waits for a parent that is {}", id, ToString(parent));
        ++counts.waiting;
        break;
      case StageState::kReady:
      case StageState::kRunning:
        HEADSWEEP_CHECK(parent == StageState::kFinished, "stage {} is {} but its parent is {}", id,
                        ToString(state), ToString(parent));
        ++(runs ? counts.running : counts.ready);
        break;
      case StageState::kSkipped:
        HEADSWEEP_CHECK(parent == StageState::kDiverged || parent == StageState::kFailed ||
                            parent == StageState::kSkipped,
                        "stage {} is skipped but its parent is {}", id, ToString(parent));
        ++counts.skipped;
        break;
      case StageState::kEarlyStopped:
        HEADSWEEP_CHECK(early_stopping_.on() && (!entry.given_up.empty() || parent == StageState::kEarlyStopped),
                        "stage {} was stopped early without a reason", id);
        ++counts.early_stopped;
        break;
      case StageState::kFinished:
        ++counts.finished;
        break;
      case StageState::kDiverged:
        ++counts.diverged;
        break;
      case StageState::kFailed:
        ++counts.failed;
        break;
    }
    queued += entry.queued;
    delayed += entry.delayed_until.has_value();
    alarms += entry.alarm.has_value();
    if (state != StageState::kDiverged && state != StageState::kFailed && state != StageState::kSkipped &&
        state != StageState::kEarlyStopped)
      total += spec.flops;
    taken.insert(taken.end(), entry.status.slots.begin(), entry.status.slots.end());
  }
  pool_.CheckInvariants(taken);
  HEADSWEEP_CHECK(counts == counts_, "the stages are counted wrong");
  HEADSWEEP_CHECK(queued == queue_.size() && delayed == static_cast<int>(delayed_.size()) &&
                      alarms == static_cast<int>(alarms_.size()) &&
                      counts.running == static_cast<int>(running_.size()),
                  "a queue holds stages that are not in it");
  HEADSWEEP_CHECK(std::abs(total - total_flops_) <= 1e-9 * (1 + total), "{} FLOPs are counted as {}", total,
                  total_flops_);
  HEADSWEEP_CHECK(!ended_ || running_.empty(), "the sweep has ended but {} stages run", running_.size());
  HEADSWEEP_CHECK(reserved_for_ < 0 || At(reserved_for_).queued,
                  "slots are kept for a stage that does not wait");
  // Nothing starves: a slot is free, so whatever waits either does not fit or must not start yet.
  if (phase_ == Phase::kOpen && !paused_ && !IsTooLateToStart() && !ended_ && begun_ && reserved_for_ < 0 && !queue_.empty()) {
    HEADSWEEP_CHECK(pool_.free() == 0 || queue_.smallest() > pool_.usable(), "{} slots idle before a queue",
                    pool_.free());
  }
}

}  // namespace headsweep
