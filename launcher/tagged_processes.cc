#include "launcher/tagged_processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// A file of /proc; nullopt when the process is gone or belongs to somebody else.
std::optional<std::string> ReadProcFile(pid_t pid, const char* name) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  std::array<char, 4096> buffer;
  ssize_t got;
  while ((got = ::read(fd, buffer.data(), buffer.size())) > 0)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  ::close(fd);
  if (got < 0) return std::nullopt;
  return text;
}

std::string Variable(std::string_view environment, std::string_view name) {
  std::size_t start = 0;
  while (start < environment.size()) {
    std::size_t end = environment.find('\0', start);
    if (end == std::string_view::npos) end = environment.size();
    const std::string_view entry = environment.substr(start, end - start);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return std::string(entry.substr(name.size() + 1));
    start = end + 1;
  }
  return "";
}

std::vector<pid_t> AllProcesses() {
  std::vector<pid_t> pids;
  DIR* directory = ::opendir("/proc");
  if (directory == nullptr) throw IoError("list", "/proc", errno);
  while (const dirent* entry = ::readdir(directory)) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec == std::errc() && parsed.ptr == name.data() + name.size()) pids.push_back(pid);
  }
  ::closedir(directory);
  return pids;
}

int KillTagged(const std::function<bool(const TaggedProcess&)>& unwanted, double timeout_seconds) {
  const auto start = std::chrono::steady_clock::now();
  int killed = 0;
  std::string last;
  while (true) {
    int left = 0;
    for (const TaggedProcess& process : FindTaggedProcesses()) {
      if (!unwanted(process)) continue;
      ++left;
      if (ProcessIdentity(process.pid) != process.identity)
        continue;  // gone, and its number perhaps another's by now
      if (::kill(process.pid, SIGKILL) == 0 && last.find(process.identity + " ") == std::string::npos) {
        last += process.identity + " ";
        ++killed;
      }
    }
    if (left == 0) return killed;
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (elapsed > timeout_seconds)
      throw CommError("processes " + last, "kill leftovers", elapsed, "they are still there after SIGKILL");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

std::string ProcessIdentity(pid_t pid) {
  const auto stat = ReadProcFile(pid, "stat");
  if (!stat) return "";
  // The second field is the program's name in parentheses and may hold anything; the fields after it are
  // plain.
  const std::size_t close = stat->rfind(')');
  if (close == std::string::npos) return "";
  std::size_t position = close + 1;
  std::string_view field;
  for (int index = 3; index <= 22; ++index) {  // proc(5): 3 is the state, 22 the start time
    position = stat->find_first_not_of(' ', position);
    if (position == std::string::npos) return "";
    const std::size_t end = std::min(stat->find_first_of(" \n", position), stat->size());
    field = std::string_view(*stat).substr(position, end - position);
    if (index == 3 && (field == "Z" || field == "X")) return "";  // dead, not yet reaped
    position = end;
  }
  return std::to_string(pid) + ":" + std::string(field);
}

bool IsAlive(const std::string& identity) {
  pid_t pid = 0;
  const auto parsed = std::from_chars(identity.data(), identity.data() + identity.size(), pid);
  return parsed.ec == std::errc() && pid > 0 && ProcessIdentity(pid) == identity;
}

std::vector<TaggedProcess> FindTaggedProcesses() {
  std::vector<TaggedProcess> found;
  for (const pid_t pid : AllProcesses()) {
    if (pid == ::getpid()) continue;
    const auto environment = ReadProcFile(pid, "environ");
    if (!environment) continue;
    TaggedProcess process{.pid = pid,
                          .identity = ProcessIdentity(pid),
                          .sweep = Variable(*environment, kTagSweep),
                          .stage = Variable(*environment, kTagStage),
                          .launcher = Variable(*environment, kTagLauncher)};
    if (!process.sweep.empty() && !process.identity.empty()) found.push_back(std::move(process));
  }
  return found;
}

int KillLeftovers(const std::string& workspace_root, double timeout_seconds) {
  return KillTagged(
      [&](const TaggedProcess& process) {
        return process.sweep.starts_with(workspace_root + "/") && !IsAlive(process.launcher);
      },
      timeout_seconds);
}

int KillStage(const std::string& launcher_directory, const std::string& stage, double timeout_seconds) {
  const std::string self = ProcessIdentity(::getpid());
  return KillTagged(
      [&](const TaggedProcess& process) {
        return launcher_directory.starts_with(process.sweep + "/") && process.stage.starts_with(stage + "/") &&
               process.launcher != self;
      },
      timeout_seconds);
}

int KillAttemptLeftovers(const std::string& stage_tag, double timeout_seconds) {
  const std::string self = ProcessIdentity(::getpid());
  return KillTagged(
      [&](const TaggedProcess& process) { return process.launcher == self && (stage_tag.empty() || process.stage == stage_tag); },
      timeout_seconds);
}

}  // namespace headsweep
