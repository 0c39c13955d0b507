// How a launcher comes to a sweep: to share it with others (`--join`), or to have it for itself.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/file_system.h"
#include "launcher/history.h"
#include "launcher/roster.h"
#include "launcher/workspace.h"

namespace headsweep {

struct JoinOptions {
  double lease_seconds = 60;
  bool take_over = false;  // also a sweep whose exclusive launcher cannot be looked at
  std::function<void(const std::string&)> say;  // why it waits
};

// Joins, and keeps the sweep file `text` as the workspace's own copy. Throws ConfigError when a launcher has the sweep for
// itself, or when others share a sweep of that name with another file; IoError.
std::unique_ptr<Membership> JoinSweep(FileSystem& files, const Workspace& workspace, const std::string& sweep,
                                      const std::string& text, const JoinOptions& options);

// The launch that a submission's jobs are part of, all of them, whether they are tasks of an array or go on for each other:
// HEADSWEEP_LAUNCH, which `headsweep batch` sets; "" elsewhere. One launch has one budget of failures (`launch` in JOURNAL.md).
inline constexpr const char* kLaunchVariable = "HEADSWEEP_LAUNCH";
std::string GivenLaunch();

// For a launcher that holds the sweep's lock: that nobody shares the sweep any more. Waits for at most a lease until those
// who are silent are known to be gone. Throws ConfigError that names who is there.
void RefuseBesideOthers(const FileSystem& files, const Workspace& workspace, const std::string& sweep,
                        const JoinOptions& options);

// Takes the leases that a launcher which is gone left on its trials, so that nothing it may have left elsewhere seals any more.
void FenceOff(const Workspace& workspace, const LauncherJournal& gone);

}  // namespace headsweep
