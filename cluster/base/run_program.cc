#include "cluster/base/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"

extern char** environ;

namespace headsweep {
namespace {

using SteadyClock = std::chrono::steady_clock;

bool IsExecutable(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

// This process's variables with some left out, added or replaced, as "name=value".
std::vector<std::string> Environment(const std::vector<std::pair<std::string, std::string>>& changes,
                                     const std::vector<std::string>& without) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::any_of(without.begin(), without.end(),
                    [&](const std::string& prefix) { return name.starts_with(prefix); }))
      continue;
    if (std::none_of(changes.begin(), changes.end(),
                     [&](const auto& change) { return change.first == name; }))
      variables.emplace_back(text);
  }
  for (const auto& [name, value] : changes) variables.push_back(name + "=" + value);
  return variables;
}

// The reading end of the child's output, and the child; both are gone when this is.
class Child {
 public:
  Child(const std::string& path, const std::vector<std::string>& arguments, bool merge_errors,
        std::vector<std::string> environment) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw IoError("open a pipe to", path, errno);
    output_ = ends[0];
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    if (merge_errors) {
      ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    } else {
      ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    }
    std::vector<char*> argv, envp;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    for (std::string& variable : environment) envp.push_back(variable.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    const int error_number = ::posix_spawn(&pid_, path.c_str(), &actions, nullptr, argv.data(), envp.data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (error_number != 0) {
      pid_ = -1;
      ::close(output_);
      throw IoError("start", path, error_number);
    }
  }
  ~Child() {
    ::close(output_);
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int output() const { return output_; }
  // True when it has ended; then status is set and the child is reaped.
  bool Ended(int& status) {
    const pid_t result = ::waitpid(pid_, &status, WNOHANG);
    if (result == 0 || (result < 0 && errno == EINTR)) return false;
    pid_ = -1;
    return true;
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

}  // namespace

std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return IsExecutable(name) ? name : "";
  const char* variable = std::getenv("PATH");
  const std::string path = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string directory = end == begin ? "." : path.substr(begin, end - begin);
    const std::string candidate = JoinPath(directory, name);
    if (IsExecutable(candidate)) return candidate;
    begin = end + 1;
  }
  return "";
}

ProgramResult RunProgram(const std::vector<std::string>& arguments, double timeout_seconds, bool merge_errors,
                         const std::vector<std::pair<std::string, std::string>>& environment,
                         const std::vector<std::string>& without) {
  HEADSWEEP_CHECK(!arguments.empty(), "a program without a name");
  const std::string path = FindProgram(arguments[0]);
  if (path.empty()) throw IoError("find program", arguments[0], ENOENT);
  const auto start = SteadyClock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(SteadyClock::now() - start).count(); };
  Child child(path, arguments, merge_errors, Environment(environment, without));

  ProgramResult result;
  int status = 0;
  bool open = true;  // the output may end before the program does, and after it (held by a grandchild)
  while (true) {
    const double left = timeout_seconds - elapsed();
    if (left <= 0) throw CommError(path, "wait for its end", elapsed(), "killed after its time limit");
    if (!open) {
      if (child.Ended(status)) break;
      ::poll(nullptr, 0, 2);
      continue;
    }
    struct pollfd ready {
      child.output(), POLLIN, 0
    };
    const int wait_ms = static_cast<int>(std::min(left * 1000 + 1, 1000.0));
    if (::poll(&ready, 1, wait_ms) <= 0) continue;
    char block[1 << 16];
    const ssize_t n = ::read(child.output(), block, sizeof block);
    if (n > 0) {
      result.output.append(block, static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      open = false;
    }
  }
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace headsweep
