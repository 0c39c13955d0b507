// ProgressModel: how far a sweep is and how long it will take. Work is measured in FLOPs (the estimates of
// the plan); time is that work divided by the speed that slots have shown, so that big models count for what
// they cost. Pure: the time is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/core.h"

namespace headsweep {

struct ProgressSnapshot {
  Core::Counts counts;
  int slots = 0;              // usable
  double finished_flops = 0;  // including the done part of what runs
  double total_flops = 0;     // of all stages that can still be finished, and those that are
  double longest_chain =
      0;               // slot time of the longest chain of stages left; no number of slots makes it shorter
  int busy_slots = 0;  // slots in use now
};
ProgressSnapshot Snapshot(const Core& core);

class ProgressModel {
 public:
  // now: monotonic seconds. Call at every tick; more often does no harm. Work that appears without time
  // (adopted results) does not count as speed, nor does work that is lost with an attempt.
  void Observe(const ProgressSnapshot& snapshot, double now);

  // FLOP/s of one busy slot; 0 if not known yet. A moving average over about five minutes of busy time.
  double slot_speed() const;
  // nullopt: not known yet (nothing has run long enough).
  std::optional<double> SecondsLeft() const;

  // "12/70 stages, 3 running, 41 %, ETA 2m10s"; failed, diverged and skipped stages are named when there are
  // any.
  std::string Line() const;

 private:
  ProgressSnapshot last_;
  std::optional<double> last_time_;
  double slot_seconds_ = 0, flops_ = 0;  // both fade with the same half-life
};

std::string FormatDuration(double seconds);  // "0s" "59s" "2m10s" "3h05m" "2d04h"

}  // namespace headsweep
