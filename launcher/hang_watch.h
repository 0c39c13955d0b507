// HangWatch: how long an attempt may be silent. It knows the attempt's own pace: the limit is a multiple of
// the median time of its last steps, so that big models are not killed for being slow. Part of the scheduler
// core, so it is pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace headsweep {

class HangWatch {
 public:
  HangWatch() = default;
  explicit HangWatch(double now) : last_(now), last_step_time_(now) {}

  // A sign of life at `step`. Steps that were reported together share the time since the report before.
  void OnProgress(std::int64_t step, double now) {
    last_ = now;
    if (step <= step_) return;
    if (step_ > 0) {
      seconds_[static_cast<std::size_t>(count_ % kWindow)] =
          (now - last_step_time_) / static_cast<double>(step - step_);
      ++count_;
    }
    step_ = step;
    last_step_time_ = now;
  }

  double last() const { return last_; }  // time of the last sign of life

  double MedianStepSeconds() const {  // 0 if not known yet
    if (count_ == 0) return 0;
    auto seconds = seconds_;
    const auto end = seconds.begin() + std::min(count_, kWindow);
    const auto middle = seconds.begin() + std::min(count_, kWindow) / 2;
    std::nth_element(seconds.begin(), middle, end);
    return *middle;
  }

  // When the attempt counts as hung unless it shows a sign of life before.
  double Deadline(double factor, double floor_seconds) const {
    return last_ + std::max(factor * MedianStepSeconds(), floor_seconds);
  }

 private:
  static constexpr int kWindow = 31;  // chosen: odd, and short enough to follow a change of pace
  std::array<double, kWindow> seconds_{};
  int count_ = 0;
  std::int64_t step_ = 0;
  double last_ = 0, last_step_time_ = 0;
};

}  // namespace headsweep
