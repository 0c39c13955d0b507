// What the end of a trainer process means. Pure: facts in, verdict out.
#pragma once

#include <optional>
#include <string>

#include "launcher/process.h"

namespace headsweep {

struct AttemptFacts {
  std::optional<ExitStatus> exit;  // nullopt: it could not be started
  bool result_sealed = false;      // trials/<id>/result.h5 exists
  // The trainer's last message, if it sent one.
  bool said_done = false;
  std::string done_outcome, done_cause, done_message, done_summary;
  bool asked_to_stop = false;
  std::string killed_because;  // why we killed it; empty = we did not
};

struct AttemptVerdict {
  std::string outcome;  // control_protocol.h: finished | diverged | stopped | failed
  std::string cause;    // of a failure
  std::string message;
  std::string summary;  // JSON StageSummary, or empty when it is not known
};

// Why the agent itself kills.
inline constexpr const char* kKilledByUser = "interrupted";
inline constexpr const char* kKilledLateStop = "did not stop when asked";
inline constexpr const char* kKilledPeerFailed = "another process of its trial failed";
inline constexpr const char* kKilledLeftBehind = "the other processes of its trial have ended";
inline constexpr const char* kKilledNoCoordinator = "the coordinator is lost";

// A cause that only the agent gives: the program could not be started. The others are in failure_policy.h.
inline constexpr const char* kCauseStart = "start";

// A sealed result wins over everything, also over how the process ended; a claim without a sealed result is a
// failure, and so is exit code 0 without a claim.
AttemptVerdict JudgeAttempt(const AttemptFacts& facts);

// Whether a trial's summary (JSON, or anything) says that it diverged, which is a result too.
bool SaysDiverged(const std::string& summary);

}  // namespace headsweep
