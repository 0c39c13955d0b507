// What is done about an attempt that did not finish, by cause. Part of the scheduler core, so it is pure.
#pragma once

#include <string>
#include <string_view>

namespace headsweep {

// Causes that the launcher itself gives; the trainer's are in trainer/control_protocol.h.
namespace cause {
inline constexpr const char* kSignal = "signal";  // killed, or crashed
inline constexpr const char* kExit = "exit";      // ended without a word
inline constexpr const char* kHang = "hang";      // no progress for too long; killed by the core
inline constexpr const char* kLostNode = "lost-node";
inline constexpr const char* kLostLease = "lost-lease";  // another launcher of the sweep took the stage over
inline constexpr const char* kStopped = "stopped";  // ended because it was asked to, or pre-empted
inline constexpr const char* kEarlyStopped = "early-stopped";  // others do better (early_stopping.h)
}  // namespace cause

enum class Verdict {
  kRetryCharged,  // try again; counts against the stage's retries
  kRetryFree,     // try again; not the stage's fault
  kGiveUp,        // trying again cannot help
  kPauseSweep,    // not the stage's fault, and every other stage would fare the same: leave, resumable
};

//   cause                              verdict         because
//   configuration                      kGiveUp         the same configuration fails the same way
//   input-output                       kPauseSweep     the disk is full for everybody
//   stopped, lost-node, lost-lease,
//   early-stopped                      kRetryFree      the machine's doing, or ours
//   out-of-memory                      kRetryCharged   with micro-batches of half the size
//   signal, exit, error, device, hang,
//   peer                               kRetryCharged
//   anything else                      kRetryCharged
Verdict VerdictOn(std::string_view cause);

// Seconds to wait before the next attempt after `failures` in a row: 1, 4, 16, 64, then 256.
double BackoffSeconds(int failures);

// Two failures with the same signature have the same reason: cause and first line of the message, with digits
// and the stage's own name blotted out, since they differ from stage to stage.
std::string FailureSignature(std::string_view cause, std::string_view message, std::string_view stage);

}  // namespace headsweep
