#include "launcher/failure_policy.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "trainer/control_protocol.h"

namespace headsweep {

Verdict VerdictOn(std::string_view cause) {
  if (cause == control::kCauseConfiguration) return Verdict::kGiveUp;
  if (cause == control::kCauseInputOutput) return Verdict::kPauseSweep;
  if (cause == cause::kStopped || cause == cause::kLostNode || cause == cause::kLostLease ||
      cause == cause::kEarlyStopped)
    return Verdict::kRetryFree;
  return Verdict::kRetryCharged;
}

double BackoffSeconds(int failures) { return std::pow(4.0, std::clamp(failures - 1, 0, 4)); }

std::string FailureSignature(std::string_view cause, std::string_view message, std::string_view stage) {
  constexpr std::size_t kPrefix =
      80;  // chosen: long enough to tell reasons apart, short enough to leave values out
  std::string text(message.substr(0, message.find('\n')));
  for (std::size_t at = 0; !stage.empty() && (at = text.find(stage, at)) != std::string::npos; ++at) {
    text.replace(at, stage.size(), "#");
  }
  std::string blotted;
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) {
      blotted += c;
    } else if (blotted.empty() || blotted.back() != '#') {
      blotted += '#';
    }
    if (blotted.size() == kPrefix) break;
  }
  return std::string(cause) + ": " + blotted;
}

}  // namespace headsweep
