#include "launcher/attempt_outcome.h"

#include <signal.h>

#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "launcher/failure_policy.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

// The cause that an exit code stands for, when the trainer could not say it any more.
const char* CauseOfExit(int code) {
  switch (code) {
    case kExitUsage:
      return control::kCauseConfiguration;
    case control::kExitOutOfMemory:
      return control::kCauseOutOfMemory;
    case control::kExitInputOutput:
      return control::kCauseInputOutput;
    case control::kExitDevice:
      return control::kCauseDevice;
    case control::kExitPeer:
      return control::kCausePeer;
    default:
      return cause::kExit;
  }
}

AttemptVerdict Failed(std::string cause, std::string message) {
  return {
      .outcome = control::kFailed, .cause = std::move(cause), .message = std::move(message), .summary = ""};
}

AttemptVerdict Stopped(std::string message) {
  return {.outcome = control::kStopped, .cause = "", .message = std::move(message), .summary = ""};
}

}  // namespace

AttemptVerdict JudgeAttempt(const AttemptFacts& facts) {
  const bool claims_result = facts.said_done && (facts.done_outcome == control::kFinished ||
                                                 facts.done_outcome == control::kDiverged);
  if (facts.result_sealed)
    return {.outcome = claims_result ? facts.done_outcome : control::kFinished,
            .cause = "",
            .message = facts.done_message,
            .summary = claims_result ? facts.done_summary : ""};
  if (!facts.exit) return Failed(kCauseStart, facts.done_message);

  const std::string ended = "the trainer ended with " + ToString(*facts.exit);
  // Who notices himself that his peers are gone may be told so a moment before he leaves: his own word
  // counts.
  const bool lost_peers =
      facts.killed_because == kKilledPeerFailed || facts.killed_because == kKilledLeftBehind;
  if (!facts.killed_because.empty() && !(lost_peers && facts.said_done))
    return Stopped("killed: " + facts.killed_because);
  if (facts.said_done) {
    if (claims_result)
      return Failed(control::kCauseError,
                    "it said \"" + facts.done_outcome + "\" but there is no result.h5; " + ended);
    if (facts.done_outcome == control::kStopped) return Stopped(facts.done_message);
    const bool known = facts.done_outcome == control::kFailed;
    return Failed(
        known && !facts.done_cause.empty() ? facts.done_cause : control::kCauseError,
        known ? facts.done_message : "it said \"" + facts.done_outcome + "\", which means nothing; " + ended);
  }
  if (facts.exit->signal != 0) {
    const bool perhaps_memory = facts.exit->signal == SIGKILL;
    return Failed(
        cause::kSignal,
        ended + (perhaps_memory ? "; if nobody sent it, the kernel may have run out of memory" : ""));
  }
  if (facts.exit->code == kExitResumable && facts.asked_to_stop)
    return Stopped("it left without a word, with the exit code of a checkpointed stop");
  return Failed(CauseOfExit(facts.exit->code), ended + " and did not say why; see the end of its log");
}

bool SaysDiverged(const std::string& summary) {
  const auto json = ParseJson(summary);
  return json.is_object() && json.contains("outcome") && json["outcome"] == control::kDiverged;
}

}  // namespace headsweep
