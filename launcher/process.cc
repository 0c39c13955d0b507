#include "launcher/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"

extern char** environ;

namespace headsweep {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// A close-on-exec copy with a number that no descriptor handed to a child has, so that one dup2 cannot
// overwrite the source of the next.
Descriptor CopyAbove(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 16);
  if (copy < 0) throw IoError("copy descriptor", std::to_string(fd), errno);
  return Descriptor(copy);
}

class SpawnSetup {
 public:
  SpawnSetup() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

void Require(int error, const char* what, const std::string& program) {
  if (error != 0) throw IoError(what, program, error);
}

std::vector<std::string> ChildEnvironment(const std::vector<std::pair<std::string, std::string>>& added) {
  std::map<std::string, std::string, std::less<>> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || IsMpiVariable(text.substr(0, equals))) continue;
    variables[std::string(text.substr(0, equals))] = std::string(text.substr(equals + 1));
  }
  for (const auto& [name, value] : added) variables[name] = value;
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void SetAttributes(SpawnSetup& setup, bool own_group, const std::string& program) {
  short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
  if (own_group) {
    flags |= POSIX_SPAWN_SETPGROUP;
    Require(::posix_spawnattr_setpgroup(&setup.attributes, 0), "start", program);
  }
  sigset_t none, reset;
  ::sigemptyset(&none);
  ::sigemptyset(&reset);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGCHLD})
    ::sigaddset(&reset, signal);
  Require(::posix_spawnattr_setsigdefault(&setup.attributes, &reset), "start", program);
  Require(::posix_spawnattr_setsigmask(&setup.attributes, &none), "start", program);
  Require(::posix_spawnattr_setflags(&setup.attributes, flags), "start", program);
}

// The calling thread's affinity is set for the moment of the spawn: a child that reads it at its start
// (OpenMP does) must already see its own.
class AffinityForChild {
 public:
  explicit AffinityForChild(const std::vector<int>& cpus) {
    if (cpus.empty() || ::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    for (const int cpu : cpus)
      if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &wanted);
    changed_ = ::sched_setaffinity(0, sizeof wanted, &wanted) == 0;
  }
  ~AffinityForChild() {
    if (changed_) ::sched_setaffinity(0, sizeof before_, &before_);
  }
  AffinityForChild(const AffinityForChild&) = delete;
  AffinityForChild& operator=(const AffinityForChild&) = delete;

 private:
  cpu_set_t before_;
  bool changed_ = false;
};

}  // namespace

bool IsMpiVariable(std::string_view name) {
  for (const std::string_view prefix : {"OMPI_", "PMIX_", "ORTE_", "PMI_"})
    if (name.starts_with(prefix)) return true;
  return false;
}

SpawnedProcess Spawn(const ProcessSpec& spec) {
  HEADSWEEP_CHECK(!spec.command.empty(), "a process needs a program");
  const std::string& program = spec.command.front();
  SpawnSetup setup;
  SetAttributes(setup, spec.own_group, program);

  Descriptor log;
  Require(::posix_spawn_file_actions_addopen(&setup.actions, 0, "/dev/null", O_RDONLY, 0), "start", program);
  if (!spec.log_path.empty()) {
    Descriptor file(::open(spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (file.get() < 0) throw IoError("open log", spec.log_path, errno);
    log = CopyAbove(file.get());
    Require(::posix_spawn_file_actions_adddup2(&setup.actions, log.get(), 1), "start", program);
    Require(::posix_spawn_file_actions_adddup2(&setup.actions, log.get(), 2), "start", program);
  }

  Descriptor ours, theirs;
  if (spec.control_channel) {
    std::array<int, 2> pair;
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
      throw IoError("socketpair", program, errno);
    ours = Descriptor(pair[0]);
    const Descriptor second(pair[1]);
    if (::fcntl(ours.get(), F_SETFL, O_NONBLOCK) != 0) throw IoError("socketpair", program, errno);
    theirs = CopyAbove(second.get());
    Require(::posix_spawn_file_actions_adddup2(&setup.actions, theirs.get(), kControlDescriptor), "start",
            program);
  }
  Descriptor kept;
  if (spec.kept_descriptor >= 0) {
    kept = CopyAbove(spec.kept_descriptor);
    Require(::posix_spawn_file_actions_adddup2(&setup.actions, kept.get(), kKeptDescriptor), "start",
            program);
  }
  // Not every library opens its files close-on-exec.
  if (!spec.control_channel) ::posix_spawn_file_actions_addclose(&setup.actions, kControlDescriptor);
  if (spec.kept_descriptor < 0) ::posix_spawn_file_actions_addclose(&setup.actions, kKeptDescriptor);
  Require(::posix_spawn_file_actions_addclosefrom_np(&setup.actions, kKeptDescriptor + 1), "start", program);

  std::vector<std::string> arguments = spec.command;
  std::vector<std::string> environment = ChildEnvironment(spec.environment);
  SpawnedProcess child;
  const AffinityForChild affinity(spec.cpus);
  const int error = ::posix_spawn(&child.pid, program.c_str(), &setup.actions, &setup.attributes,
                                  Pointers(arguments).data(), Pointers(environment).data());
  if (error != 0) throw IoError("start", program, error);
  child.control = ours.Release();
  return child;
}

std::string ToString(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exit code {}", status.code);
  const char* name = ::sigdescr_np(status.signal);
  return fmt::format("signal {} ({})", status.signal, name != nullptr ? name : "unknown");
}

std::optional<ExitStatus> TryReap(pid_t pid, bool own_group) {
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    throw IoError("wait for process", std::to_string(pid), errno);
  if (info.si_pid == 0) return std::nullopt;
  if (own_group) SignalGroup(pid, SIGKILL);  // not yet reaped: the number still names this group
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) throw IoError("wait for process", std::to_string(pid), errno);
  if (WIFSIGNALED(status)) return ExitStatus{.code = 0, .signal = WTERMSIG(status)};
  return ExitStatus{.code = WEXITSTATUS(status), .signal = 0};
}

std::optional<ExitStatus> WaitFor(pid_t pid, double timeout_seconds, bool own_group) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
  while (true) {
    if (auto status = TryReap(pid, own_group)) return status;
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void SignalGroup(pid_t group, int signal) {
  if (group > 1) ::kill(-group, signal);  // ESRCH: nobody is left, which is what a caller wants
}

std::string ProgramPath() {
  std::array<char, PATH_MAX> buffer;
  const ssize_t length = ::readlink("/proc/self/exe", buffer.data(), buffer.size());
  if (length <= 0) throw IoError("readlink", "/proc/self/exe", errno);
  return std::string(buffer.data(), static_cast<std::size_t>(length));
}

std::string ProgramDirectory() { return ParentPath(ProgramPath()); }

std::string TrainerPath() {
  const char* set = std::getenv("HEADSWEEP_TRAINER");
  return set != nullptr && *set != '\0' ? set : ProgramDirectory() + "/headsweep-trainer";
}

}  // namespace headsweep
