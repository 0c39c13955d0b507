// The core's events in words, for the trace of a schedule.
#pragma once

#include <fmt/format.h>

#include <string>

#include "launcher/core.h"

namespace headsweep::testing {

inline std::string DescribeEvent(const NodeJoined& e) { return fmt::format("node {} joins with {} slots", e.node.value(), e.slots); }
inline std::string DescribeEvent(const NoSlots& e) { return fmt::format("no node has a slot: {}", e.reason); }
inline std::string DescribeEvent(const NodeLost& e) { return fmt::format("node {} is lost", e.node.value()); }
inline std::string DescribeEvent(const AttemptProgressed& e) {
  return fmt::format("{} attempt {} is at step {}", e.stage.value(), e.attempt.value(), e.step);
}
inline std::string DescribeEvent(const AttemptCheckpointed& e) {
  return fmt::format("{} attempt {} has a checkpoint of step {}", e.stage.value(), e.attempt.value(), e.step);
}
inline std::string DescribeEvent(const AttemptEvaluated& e) {
  return fmt::format("{} attempt {} has the value {} at step {}", e.stage.value(), e.attempt.value(), e.value, e.step);
}
inline std::string DescribeEvent(const AttemptEnded& e) {
  return fmt::format("{} attempt {} ended: {} {}", e.stage.value(), e.attempt.value(), e.outcome, e.cause);
}
inline std::string DescribeEvent(const StopRequested&) { return "stop is asked for"; }
inline std::string DescribeEvent(const TimeLimit& e) { return fmt::format("the allocation ends in {:.2f}", e.seconds_left); }
inline std::string DescribeEvent(const PauseRequested& e) {
  return fmt::format("{} is asked for", e.paused ? "a pause" : "the end of a pause");
}
inline std::string DescribeEvent(const RetryRequested&) { return "retries are asked for"; }
inline std::string DescribeEvent(const ClaimAnswered& e) {
  return fmt::format("the claim of {} is {}", e.stage.value(), e.attempt ? fmt::format("granted as attempt {}", e.attempt->value()) : "refused");
}
inline std::string DescribeEvent(const HeardOf& e) {
  return fmt::format("another launcher has recorded {} of {} attempt {}", e.event.type, e.event.stage, e.event.attempt);
}
inline std::string DescribeEvent(const LeftBehind& e) {
  return fmt::format("the launcher of {} attempt {} is gone", e.stage.value(), e.attempt.value());
}
inline std::string DescribeEvent(const LeaseLost& e) {
  return fmt::format("the lease of {} attempt {} is lost", e.stage.value(), e.attempt.value());
}
inline std::string DescribeEvent(const Tick&) { return "time passes"; }

}  // namespace headsweep::testing
