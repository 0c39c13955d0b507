// The control channel between an agent and one trainer process: one JSON object a line, UTF-8, over a socket pair whose
// descriptor number is given by --control-fd. Header-only truth for both sides; documented here.
//
// trainer -> agent, "type":
//   hello       {pid, stage, attempt, step, steps}         after configuration and data are loaded; step: resumed from
//   progress    {phase, step, steps, loss, tokens_per_second}   at most every 0.2 s; also the heartbeat
//   evaluation  {step, split, nll, perplexity_per_word}
//   checkpoint  {step, path}                               sealed
//   rendezvous  {key, value}                               for the other processes of the trial (trainer/collective.h)
//   done        {outcome, cause, message, summary}         last message; the exit status follows
// agent -> trainer:
//   stop        {}                                         checkpoint at the next step, then exit kExitResumable
//   rendezvous  {key, value}                               what another process of the trial has set
// End of file on the trainer's side means that the agent is gone: the trainer checkpoints and exits kExitResumable.
#pragma once

namespace headsweep::control {

inline constexpr const char* kType = "type";
inline constexpr const char* kHello = "hello";
inline constexpr const char* kProgress = "progress";
inline constexpr const char* kEvaluation = "evaluation";
inline constexpr const char* kCheckpoint = "checkpoint";
inline constexpr const char* kRendezvous = "rendezvous";
inline constexpr const char* kDone = "done";
inline constexpr const char* kStop = "stop";

// done.outcome
inline constexpr const char* kFinished = "finished";  // result.h5 is sealed
inline constexpr const char* kDiverged = "diverged";  // a result, not a failure; result.h5 is sealed
inline constexpr const char* kStopped = "stopped";    // asked to stop; checkpoint sealed
inline constexpr const char* kFailed = "failed";

// done.cause of a failure; each has its own retry policy in launcher/
inline constexpr const char* kCauseConfiguration = "configuration";  // also wrong data; never retried. Exit 2
inline constexpr const char* kCauseOutOfMemory = "out-of-memory";    // retried with smaller micro-batches. Exit 12
inline constexpr const char* kCauseInputOutput = "input-output";     // disk full and the like. Exit 74 (EX_IOERR)
inline constexpr const char* kCauseDevice = "device";                // Exit 71 (EX_OSERR)
inline constexpr const char* kCausePeer = "peer";                    // another process of the trial is gone or silent. Exit 69
inline constexpr const char* kCauseError = "error";                  // anything else. Exit 1

inline constexpr int kExitOutOfMemory = 12;
inline constexpr int kExitInputOutput = 74;
inline constexpr int kExitDevice = 71;
inline constexpr int kExitPeer = 69;  // EX_UNAVAILABLE

}  // namespace headsweep::control
