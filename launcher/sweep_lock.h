// SweepLock: one launcher per sweep. A file that names its owner, so that people see who has the sweep and a
// lock left behind by a crash can be told from a held one. Owners: processes, not threads.
//
//   held       the owner's process lives                                           -> ConfigError, names the
//   owner left over  same host, and no process has that pid, start time and boot; or an earlier run of this very
//              Slurm job; or a job that Slurm knows to be over or to wait again     -> taken over
//   unknown    another host, or another container of this one, and Slurm has no (clear) answer: "unknown" is not
//              "dead"  -> ConfigError with a
//   hint,
//              unless take_over is set
//
// The file appears by link(2) with its full content, so there is never a lock without an owner. Whoever
// creates, replaces or removes it holds an flock(2) on <path>.guard for that moment: two processes that find
// the same left-over lock cannot both take it. Hosts that share a file system without working flock are kept
// apart by link(2) alone, which suffices as long as nobody uses take_over on both at once.
//
// A launcher that was taken for dead may still live, on a node that its batch system has lost: so the owner looks at the
// file before it writes into the journal (Holds), and ends when the lock has become somebody else's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headsweep {

struct LockOwner {
  std::string host;
  std::string boot;       // /proc/sys/kernel/random/boot_id
  std::string pid_space;  // /proc/self/ns/pid: pids of another space mean nothing here
  int pid = 0;
  std::uint64_t start_ticks = 0;  // /proc/<pid>/stat, field 22: tells a process from a later one with its pid
  std::string job;                // of Slurm, as scontrol takes it; or empty
  int restart = 0;                // of that job: SLURM_RESTART_COUNT
  double since = 0;               // unix seconds
  bool operator==(const LockOwner&) const = default;
};

// Tells whether a path still leads to the very file that it led to: whoever takes a lock over puts another in its place.
struct FileStamp {
  std::uint64_t device = 0, inode = 0;
  std::int64_t changed_seconds = 0, changed_nanoseconds = 0;
  bool operator==(const FileStamp&) const = default;
};

class SweepLock {
 public:
  // Takes the lock at path, whose directory exists. take_over: also from an owner of whom nothing is known
  // (never from one that is known to live). Throws ConfigError when it is held; IoError.
  explicit SweepLock(const std::string& path, bool take_over = false);
  ~SweepLock();  // gives it back, unless somebody took it over; never throws
  SweepLock(const SweepLock&) = delete;
  SweepLock& operator=(const SweepLock&) = delete;

  const LockOwner& owner() const { return owner_; }
  // Whether the file still names this owner. Throws IoError when it cannot be read.
  bool Holds() const;
  // Whose lock was taken over, if it was left behind.
  const std::optional<LockOwner>& predecessor() const { return predecessor_; }

 private:
  std::string path_;
  LockOwner owner_;
  std::optional<LockOwner> predecessor_;
  mutable std::optional<FileStamp> seen_;  // of the file, when its content was last found to name the owner
};

LockOwner ThisProcess();
std::string FormatLockOwner(const LockOwner& owner);                  // the file's content: one line of JSON
std::optional<LockOwner> ParseLockOwner(const std::string& content);  // nullopt: not a lock file

enum class OwnerState { kAlive, kDead, kUnknown };
// What can be told without asking anybody.
OwnerState StateOf(const LockOwner& owner, const LockOwner& here);
// Also asks Slurm, if only Slurm can tell (its answer holds for ten seconds). here: this process.
OwnerState FindStateOf(const LockOwner& owner);

// Who holds the lock, whether alive or not; nullopt: nobody. For `headsweep status`.
std::optional<LockOwner> ReadSweepLock(const std::string& path);

}  // namespace headsweep
