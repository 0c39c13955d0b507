// Time as an interface, so that schedulers and progress can be tested without waiting.
#pragma once

#include <chrono>

namespace headsweep {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double Monotonic() const = 0;  // seconds from an arbitrary start; never goes back
  virtual double Wall() const = 0;       // seconds since 1970-01-01 UTC; may jump
};

class SystemClock final : public Clock {
 public:
  double Monotonic() const override { return Seconds(std::chrono::steady_clock::now()); }
  double Wall() const override { return Seconds(std::chrono::system_clock::now()); }

 private:
  template <class TimePoint>
  static double Seconds(TimePoint t) {
    return std::chrono::duration<double>(t.time_since_epoch()).count();
  }
};

}  // namespace headsweep
