// Every process of a trial carries tags in its environment, which its own children inherit whatever session
// or group they move to. So what a dead launcher left behind can be found, and told from what a living one
// runs.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace headsweep {

inline constexpr const char* kTagSweep = "HEADSWEEP_SWEEP";  // absolute path of the sweep's folder
inline constexpr const char* kTagStage = "HEADSWEEP_STAGE";  // "<id>/<attempt>"
inline constexpr const char* kTagLauncher =
    "HEADSWEEP_LAUNCHER";  // ProcessIdentity of the agent that started it

struct TaggedProcess {
  pid_t pid = -1;
  std::string identity;  // ProcessIdentity(pid), so that a reused number is not mistaken
  std::string sweep, stage, launcher;
};

// "<pid>:<start time in ticks since boot>": never the same for two processes of one boot. "" when pid is
// gone.
std::string ProcessIdentity(pid_t pid);
bool IsAlive(const std::string& identity);

// All living processes of this machine that carry a sweep tag and may be looked at; not this process.
std::vector<TaggedProcess> FindTaggedProcesses();

// Both kill with SIGKILL until none is left, and return how many there were. Throw CommError when some
// survive timeout_seconds.
//
// The processes of trials in this workspace whose launcher is dead. Called before anything is started.
// Returns their number.
int KillLeftovers(const std::string& workspace_root, double timeout_seconds);
// The processes of a stage, in the sweep of a launcher that has lost it (its directory, <sweep>/launchers/<id>), but those of
// this process.
int KillStage(const std::string& launcher_directory, const std::string& stage, double timeout_seconds);
// Whatever is left of one attempt ("": of all) started by this process: a child that moved to a session of its own.
int KillAttemptLeftovers(const std::string& stage_tag, double timeout_seconds);

}  // namespace headsweep
