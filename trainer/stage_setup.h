// From a configuration file to a stage that can run: identity, data, directories. Used by headsweep-trainer.
#pragma once

#include <memory>
#include <string>

#include "cluster/base/file_system.h"
#include "data/corpus.h"
#include "data/file_lock.h"
#include "kernels/backend.h"
#include "sweeps/stage_config.h"
#include "trainer/agent_channel.h"
#include "trainer/rendezvous.h"
#include "trainer/reporter.h"

namespace headsweep {

// Reads the configuration and settles what its identity needs: the data's fingerprint (from the source text
// when the file has none) and the id. Throws ConfigError when the file's own id is another one.
StageConfig LoadStageConfig(const std::string& path, const FileSystem& files);

struct TrialDirectories {
  std::string trials_root;        // <workspace>/trials
  std::string directory;          // <workspace>/trials/<id>
  std::string attempt_directory;  // <workspace>/trials/<id>/attempt-<n>, exists
  int attempt = 0;
};

// attempt: 0 takes the next number without a directory. Also writes config.toml when there is none.
TrialDirectories MakeTrialDirectories(const std::string& workspace, const StageConfig& config, int attempt,
                                      FileSystem& files);

// <workspace>/data/<fingerprint>, prepared when it is absent. Throws ConfigError when the text on this
// machine is another one.
PreparedCorpus OpenOrPrepareCorpus(const std::string& workspace, const TaskConfig& task, FileSystem& files,
                                   Reporter& reporter);

// The processes of one trial, met. The rendezvous serves the others as long as it lives.
struct Meeting {
  std::unique_ptr<Rendezvous> rendezvous;  // nullptr in a world of one
  std::unique_ptr<Collective> collective;
};
// channel: of the launcher, which carries the rendezvous then; nullptr: started by hand (rendezvous.h).
// Throws CommError when a process does not come, Unsupported when this build has no carrier for the backend's memory.
Meeting MeetPeers(const World& world, const RunConfig& run, Backend& backend, AgentChannel* channel);

// Keeps a launcher and a person from working on one trial at the same time. A launcher holds this lock for
// its trainers. Throws CommError naming the holder when it is not free at once.
std::unique_ptr<FileLock> LockTrial(const TrialDirectories& trial);

}  // namespace headsweep
