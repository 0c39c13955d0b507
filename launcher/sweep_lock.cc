#include "launcher/sweep_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "cluster/base/json.h"
#include "cluster/base/log.h"
#include "cluster/slurm/slurm.h"
#include "cluster/slurm/this_job.h"

namespace headsweep {
namespace {

// The guard is held for a few file operations; longer means a file server that does not answer.
constexpr double kGuardDeadlineSeconds = 30;
constexpr double kSlurmAnswerSeconds = 10;

std::string FirstLine(const std::string& path) {
  try {
    const std::string text = FileSystem::Real().ReadFile(path);
    return text.substr(0, text.find('\n'));
  } catch (const IoError&) {
    return "";  // no such process, or no /proc
  }
}

// Field 22 of /proc/<pid>/stat; 0 if there is no such process, or only its zombie. The name in field 2 may
// hold blanks and brackets, so fields are counted from the last bracket.
std::uint64_t StartTicks(int pid) {
  const std::string stat = FirstLine(fmt::format("/proc/{}/stat", pid));
  const std::size_t bracket = stat.rfind(')');
  if (bracket == std::string::npos || bracket + 2 >= stat.size()) return 0;
  const char process_state = stat[bracket + 2];
  if (process_state == 'Z' || process_state == 'X') return 0;
  std::size_t at = bracket + 1;
  for (int field = 3; field <= 22; ++field) {
    at = stat.find(' ', at);
    if (at == std::string::npos) return 0;
    ++at;
  }
  return std::strtoull(stat.c_str() + at, nullptr, 10);
}

std::optional<FileStamp> StampOf(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  struct stat info {};
  const bool known = ::fstat(descriptor, &info) == 0;
  ::close(descriptor);
  if (!known) return std::nullopt;
  return FileStamp{.device = info.st_dev, .inode = info.st_ino, .changed_seconds = info.st_ctim.tv_sec,
                   .changed_nanoseconds = info.st_ctim.tv_nsec};
}

std::string ReadLink(const char* path) {
  char target[PATH_MAX];
  const ssize_t n = ::readlink(path, target, sizeof target);
  return n < 0 ? "" : std::string(target, static_cast<std::size_t>(n));
}

// Holds the flock on <path>.guard while it lives. The guard file stays: removing it would let two processes
// lock two files of the same name.
class Guard {
 public:
  explicit Guard(const std::string& path) : path_(path + ".guard") {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) throw IoError("open", path_, errno);
    const SystemClock clock;
    const double begin = clock.Monotonic();
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      if (error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS) {  // a file system without locks
        excludes_ = false;
        return;
      }
      if ((error != EWOULDBLOCK && error != EINTR) || clock.Monotonic() - begin > kGuardDeadlineSeconds) {
        ::close(fd_);
        throw IoError("flock", path_, error,
                      fmt::format("gave up after {:.0f} s; is a launcher stopped in the middle of its start?",
                                  clock.Monotonic() - begin));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  ~Guard() { ::close(fd_); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  bool excludes() const { return excludes_; }

 private:
  std::string path_;
  int fd_ = -1;
  bool excludes_ = true;
};

std::string Describe(const LockOwner& owner) {
  const std::time_t since = static_cast<std::time_t>(owner.since);
  std::tm parts{};
  ::gmtime_r(&since, &parts);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return fmt::format("process {} on {}{}, since {}", owner.pid, owner.host,
                     owner.job.empty() ? "" : ", job " + owner.job, date);
}

[[noreturn]] void ThrowHeld(const std::string& path, const std::optional<LockOwner>& owner,
                            OwnerState state) {
  if (!owner) {
    throw ConfigError(fmt::format(
        "{}: not a lock file of headsweep. If no launcher runs this sweep, give --take-over", path));
  }
  if (state == OwnerState::kAlive) {
    throw ConfigError(
        fmt::format("{}: the sweep is being run by {}. Wait for it, or stop it with `kill {}` on that host: "
                    "it saves everything and leaves",
                    path, Describe(*owner), owner->pid));
  }
  throw ConfigError(fmt::format(
      "{}: the sweep belongs to {}, and from here nobody can tell whether that still runs{}. If you "
      "are sure that it does not, give --take-over",
      path, Describe(*owner), owner->job.empty() ? "" : fmt::format(" (`squeue --job {}` can)", owner->job)));
}

}  // namespace

LockOwner ThisProcess() {
  LockOwner owner;
  char host[HOST_NAME_MAX + 1] = {};
  if (::gethostname(host, sizeof host - 1) != 0) throw IoError("gethostname", "", errno);
  owner.host = host;
  owner.boot = FirstLine("/proc/sys/kernel/random/boot_id");
  owner.pid_space = ReadLink("/proc/self/ns/pid");
  owner.pid = static_cast<int>(::getpid());
  owner.start_ticks = StartTicks(owner.pid);
  owner.job = ThisJob();
  owner.restart = ThisJobsRestarts();
  owner.since = SystemClock().Wall();
  return owner;
}

std::string FormatLockOwner(const LockOwner& owner) {
  return nlohmann::json{{"host", owner.host},
                        {"boot", owner.boot},
                        {"pid_space", owner.pid_space},
                        {"pid", owner.pid},
                        {"start_ticks", owner.start_ticks},
                        {"job", owner.job},
                        {"restart", owner.restart},
                        {"since", owner.since}}
             .dump() +
         "\n";
}

std::optional<LockOwner> ParseLockOwner(const std::string& content) {
  const auto json = ParseJson(content);
  try {
    LockOwner owner;
    json.at("host").get_to(owner.host);
    json.at("boot").get_to(owner.boot);
    json.at("pid_space").get_to(owner.pid_space);
    json.at("pid").get_to(owner.pid);
    json.at("start_ticks").get_to(owner.start_ticks);
    json.at("job").get_to(owner.job);
    owner.restart = json.value("restart", 0);  // not in locks of earlier versions
    json.at("since").get_to(owner.since);
    return owner;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

OwnerState StateOf(const LockOwner& owner, const LockOwner& here) {
  // Slurm starts a job again only when it takes its earlier run for ended.
  if (!owner.job.empty() && owner.job == here.job && owner.restart < here.restart) return OwnerState::kDead;
  if (owner.host != here.host) return OwnerState::kUnknown;
  if (owner.boot != here.boot) return OwnerState::kDead;  // the machine was started again since
  if (owner.pid_space != here.pid_space) return OwnerState::kUnknown;
  const std::uint64_t start = StartTicks(owner.pid);
  return start != 0 && start == owner.start_ticks ? OwnerState::kAlive : OwnerState::kDead;
}

namespace {

// Whether the job is certainly not running; false also when nobody answers.
bool SlurmHasEnded(const std::string& job) {
  static std::map<std::string, std::pair<double, bool>> answers;  // one thread asks
  const double now = SystemClock().Monotonic();
  const auto known = answers.find(job);
  if (known != answers.end() && now < known->second.first + kSlurmAnswerSeconds) return known->second.second;
  bool ended = false;
  if (Slurm::IsHere()) {
    const JobsAnswer answer = Slurm().Jobs({job});
    ended = answer.known && std::all_of(answer.jobs.begin(), answer.jobs.end(), [](const SlurmJob& one) {
              return one.phase == JobPhase::kOver || one.phase == JobPhase::kPending;
            });
  }
  answers[job] = {SystemClock().Monotonic(), ended};
  return ended;
}

}  // namespace

OwnerState FindStateOf(const LockOwner& owner) {
  const LockOwner here = ThisProcess();
  const OwnerState state = StateOf(owner, here);
  if (state != OwnerState::kUnknown || owner.job.empty() || owner.job == here.job) return state;
  return SlurmHasEnded(owner.job) ? OwnerState::kDead : OwnerState::kUnknown;
}

std::optional<LockOwner> ReadSweepLock(const std::string& path) {
  if (!FileSystem::Real().Exists(path)) return std::nullopt;
  return ParseLockOwner(FileSystem::Real().ReadFile(path));
}

SweepLock::SweepLock(const std::string& path, bool take_over) : path_(path), owner_(ThisProcess()) {
  FileSystem& files = FileSystem::Real();
  const Guard guard(path);
  const std::string temporary = fmt::format("{}.new-{}-{}", path, owner_.host, owner_.pid);
  files.WriteFile(temporary, FormatLockOwner(owner_));
  try {
    const int error = ::link(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
    const bool no_links = error == EPERM || error == EOPNOTSUPP || error == ENOSYS;  // of the file system
    if (no_links && guard.excludes() && !files.Exists(path)) {
      files.Rename(temporary, path);
    } else if (error != 0) {
      if (error != EEXIST && !no_links) throw IoError("link", path, error);
      predecessor_ = ParseLockOwner(files.ReadFile(path));
      const OwnerState state = predecessor_ ? FindStateOf(*predecessor_) : OwnerState::kUnknown;
      const bool may = state == OwnerState::kDead ? (guard.excludes() || take_over)
                                                  : (state == OwnerState::kUnknown && take_over);
      if (!may) ThrowHeld(path, predecessor_, state == OwnerState::kDead ? OwnerState::kUnknown : state);
      files.Rename(temporary, path);
      LogWarning("{}: taken over from {}, which {}", path,
                 predecessor_ ? Describe(*predecessor_) : "an unknown owner",
                 state == OwnerState::kDead ? "is gone" : "was given up on with --take-over");
    }
    files.Remove(temporary);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

// Looked at before every append to the journal, so without reading. The file is opened all the same: over NFS that asks the
// server, where stat() alone answers from what this host remembers.
bool SweepLock::Holds() const {
  const std::optional<FileStamp> now = StampOf(path_);
  if (now && now == seen_) return true;
  const bool holds = ReadSweepLock(path_) == owner_;
  seen_ = holds ? now : std::nullopt;  // of before the reading: a change after it is seen next time
  return holds;
}

SweepLock::~SweepLock() {
  try {
    const Guard guard(path_);
    if (ReadSweepLock(path_) == owner_) FileSystem::Real().Remove(path_);
  } catch (const std::exception& error) {
    LogWarning("the lock is left behind, which does no harm: {}", error.what());
  }
}

}  // namespace headsweep
