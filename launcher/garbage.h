// What of a workspace may be deleted without losing a result or work: for `headsweep gc`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/file_system.h"
#include "launcher/workspace.h"

namespace headsweep {

struct Garbage {
  std::string path;
  std::int64_t bytes = 0;
  std::string why;    // a clause: "superseded by step-300"
  std::string trial;  // whose it is; "" = no trial's
};

// Looks only. By kind:
//   a trial that no sweep of the workspace has           all of it
//   checkpoints older than the newest one                of a trial with a result; without one the newest two stay
//   live metrics (attempt-<n>/metrics.h5)                of a trial with a result, which holds them all; logs stay
//   a damaged result that was moved aside                when there is a good one
//   unfinished files, lost and left-over leases          of processes that are gone
//   prepared texts                                       that no sweep uses
// Throws ConfigError when a sweep's file cannot be read: then nobody knows what it uses.
std::vector<Garbage> FindGarbage(const Workspace& workspace, const FileSystem& files);

// Deletes. What is deleted is recorded in <workspace>/gc.jsonl (a journal, launcher/JOURNAL.md) before the first of it goes. The
// caller keeps launchers away; a trial that somebody works on by hand is left out. Returns what is gone. Throws IoError.
std::vector<Garbage> DeleteGarbage(const Workspace& workspace, FileSystem& files, const Clock& clock,
                                   const std::vector<Garbage>& garbage);

}  // namespace headsweep
