// Child processes: started with posix_spawn (cheap whatever this process's size, and safe in an MPI rank),
// each the leader of a process group of its own so that a terminal's Ctrl-C reaches the launcher alone. Not
// here: what a child says (agent.cc) and what its end means (attempt_outcome.cc).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace headsweep {

// Variables that tie a process to the MPI job around it; a child that kept them would take itself for a rank.
bool IsMpiVariable(std::string_view name);  // OMPI_*, PMIX_*, ORTE_*, PMI_*

struct ProcessSpec {
  std::vector<std::string> command;  // [0] is the path of the program, the rest its arguments
  std::vector<std::pair<std::string, std::string>> environment;  // added to, or replacing, this process's
  std::string log_path;          // standard output and error, appended; "" = those of this process
  std::vector<int> cpus;         // affinity; empty = as this process
  bool control_channel = false;  // a socket pair; the child's end is kControlDescriptor
  int kept_descriptor = -1;      // an open descriptor that the child inherits as kKeptDescriptor; -1 = none
  bool own_group = true;
};

inline constexpr int kControlDescriptor = 3;
inline constexpr int kKeptDescriptor = 4;

struct SpawnedProcess {
  pid_t pid = -1;
  int control = -1;  // this side of the control channel, non-blocking, close-on-exec; the caller closes it
};

// Standard input is /dev/null, signals are at their defaults and unblocked, every descriptor beyond those
// named above is closed, and MPI's variables are removed. Throws IoError (operation "start") when the program
// cannot be started.
SpawnedProcess Spawn(const ProcessSpec& spec);

// How a process ended.
struct ExitStatus {
  int code = 0;  // when signal == 0
  int signal = 0;
  bool operator==(const ExitStatus&) const = default;
};
std::string ToString(const ExitStatus& status);  // "exit code 3" | "signal 11 (Segmentation fault)"

// nullopt while pid (a child of this process) runs. Once it has ended: kills what is left of its process
// group while the number is still its own, then reaps it.
std::optional<ExitStatus> TryReap(pid_t pid, bool own_group = true);

// Waits for a child. Returns nullopt when it still runs after timeout_seconds.
std::optional<ExitStatus> WaitFor(pid_t pid, double timeout_seconds, bool own_group = true);

// Sends a signal to every process of the group; nothing happens when it is gone.
void SignalGroup(pid_t group, int signal);

// Directory of the running program, so that headsweep-trainer is found beside headsweep.
std::string ProgramDirectory();
std::string ProgramPath();
std::string
TrainerPath();  // $HEADSWEEP_TRAINER, or headsweep-trainer beside this program; it need not be there

}  // namespace headsweep
