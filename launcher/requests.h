// Requests: what people ask of a launcher that runs, from any machine that sees the workspace. A request is a
// file in the launcher's directory of requests, <workspace>/sweeps/<name>/requests (of a launcher that shares its sweep:
// launchers/<id>/requests), written durably by `headsweep cancel`, `pause`, `continue` or
// `retry`, read by the coordinator about once a second, and removed once its consequences are in the journal.
// Names order them by time. A request is addressed to one launcher: the next one does not obey what was asked
// of its predecessor. Delivery is at least once: a launcher that dies between acting and removing leaves a
// request that nobody obeys any more.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/file_system.h"
#include "launcher/sweep_lock.h"
#include "launcher/workspace.h"

namespace headsweep {

namespace request {
inline constexpr const char* kCancel = "cancel";      // checkpoint everything and end (exit 75)
inline constexpr const char* kKill = "kill";          // end at once: what is not checkpointed is lost
inline constexpr const char* kPause = "pause";        // start nothing more; what runs goes on
inline constexpr const char* kContinue = "continue";  // the end of a pause
inline constexpr const char* kRetry = "retry";        // try failed stages again, with a fresh budget
}  // namespace request

struct Request {
  std::string type;                 // one of the above
  std::vector<std::string> stages;  // of kRetry; empty: every failed one
  std::string by;                   // "anna on login1", for the journal and the log
  LockOwner launcher;               // to whom it is addressed
};

// directory: of requests; made if it is not there. Returns the file's path, for AwaitAnswer. Throws IoError.
std::string WriteRequest(FileSystem& files, const std::string& directory, const Request& request);

// Requests to `launcher`, oldest first, each with its path; what is addressed to another launcher, or is no
// request, is removed. Does nothing but one failed look-up when there never was a request. The caller removes
// what it has acted on.
std::vector<std::pair<std::string, Request>> ReadRequests(FileSystem& files, const std::string& directory,
                                                          const LockOwner& launcher);

// kGone: the launcher has ended without looking at it.
enum class Answer { kObeyed, kGone, kNone };
// Waits until the launcher has removed the request, or is known to be dead; at most timeout_seconds.
Answer AwaitAnswer(const FileSystem& files, const LockOwner& launcher, const std::string& path, double timeout_seconds);

// "anna on login1".
std::string ThisUser();

}  // namespace headsweep
