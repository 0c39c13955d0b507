#include "launcher/progress_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace headsweep {
namespace {

// Chosen: long enough to even out checkpoints and evaluations, short enough to follow a change of model size.
constexpr double kHalfLifeSlotSeconds = 300;
// Less than that of work is start-up time, not speed.
constexpr double kLeastSlotSeconds = 2;

}  // namespace

ProgressSnapshot Snapshot(const Core& core) {
  return {.counts = core.counts(),
          .slots = core.slots(),
          .finished_flops = core.finished_flops(),
          .total_flops = core.total_flops(),
          .longest_chain = core.longest_chain_left(),
          .busy_slots = core.busy_slots()};
}

void ProgressModel::Observe(const ProgressSnapshot& now_is, double now) {
  if (last_time_ && now > *last_time_) {
    const double seconds = (now - *last_time_) * last_.busy_slots;
    const double work = now_is.finished_flops - last_.finished_flops;
    if (seconds > 0 && work >= 0) {
      const double fade = std::exp2(-seconds / kHalfLifeSlotSeconds);
      slot_seconds_ = slot_seconds_ * fade + seconds;
      flops_ = flops_ * fade + work;
    }
  }
  if (!last_time_ || now >= *last_time_) {
    last_ = now_is;
    last_time_ = now;
  }
}

double ProgressModel::slot_speed() const {
  return slot_seconds_ >= kLeastSlotSeconds ? flops_ / slot_seconds_ : 0;
}

std::optional<double> ProgressModel::SecondsLeft() const {
  if (last_.counts.waiting + last_.counts.ready + last_.counts.running == 0) return 0.0;
  const double speed = slot_speed();
  if (!(speed > 0) || last_.slots <= 0) return std::nullopt;
  const double left = std::max(0.0, last_.total_flops - last_.finished_flops);
  return std::max(left / last_.slots, last_.longest_chain) / speed;
}

std::string ProgressModel::Line() const {
  const Core::Counts& c = last_.counts;
  const int all = c.waiting + c.ready + c.running + c.finished + c.diverged + c.failed + c.skipped +
                  c.early_stopped;
  std::string line = fmt::format("{}/{} stages, {} running", c.finished + c.diverged, all, c.running);
  for (const auto& [count, name] :
       {std::pair(c.diverged, "diverged"), {c.failed, "failed"}, {c.skipped, "skipped"},
        {c.early_stopped, "stopped early"}}) {
    if (count > 0) line += fmt::format(", {} {}", count, name);
  }
  const bool done = c.waiting + c.ready + c.running == 0;
  const double part = last_.total_flops > 0 ? last_.finished_flops / last_.total_flops : (done ? 1 : 0);
  // Rounded down: 100 % means that nothing is left.
  line += fmt::format(", {} %", done ? 100 : static_cast<int>(std::clamp(100 * part, 0.0, 99.0)));
  if (done) return line;
  const auto left = SecondsLeft();
  return line + ", ETA " + (left ? FormatDuration(*left) : "not known yet");
}

std::string FormatDuration(double seconds) {
  const auto s = static_cast<std::int64_t>(std::llround(std::clamp(seconds, 0.0, 1e12)));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

}  // namespace headsweep
