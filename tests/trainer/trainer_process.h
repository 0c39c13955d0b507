// A real headsweep-trainer as a child process, with a control channel and deadlines for everything.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

extern char** environ;

namespace headsweep::testing {

class TrainerProcess {
 public:
  static constexpr double kDeadline = 60;  // seconds; a run here takes a fraction of one

  // channel: with a control channel (else by hand). Its log goes to log_path.
  TrainerProcess(const std::string& config, const std::string& workspace, const std::string& log_path,
                 bool channel, const std::map<std::string, std::string>& environment = {}) {
    int sockets[2] = {-1, -1};
    if (channel && ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
      throw std::runtime_error("socketpair");
    }
    std::vector<std::string> command = {std::string(HEADSWEEP_BINARY_DIR) + "/headsweep-trainer", config,
                                        "--workspace", workspace};
    if (channel) command.insert(command.end(), {"--control-fd", "3"});
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
    for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);

    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, 1, log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (channel) ::posix_spawn_file_actions_adddup2(&actions, sockets[1], 3);
    const int error = ::posix_spawn(&pid_, command[0].c_str(), &actions, nullptr, Pointers(command).data(),
                                    Pointers(variables).data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (channel) ::close(sockets[1]);
    channel_ = sockets[0];
    if (error != 0) throw std::runtime_error("cannot start " + command[0]);
  }
  ~TrainerProcess() {
    if (channel_ >= 0) ::close(channel_);
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  TrainerProcess(const TrainerProcess&) = delete;
  TrainerProcess& operator=(const TrainerProcess&) = delete;

  // The next message; nothing at the end of the channel. Throws when none comes in time.
  std::optional<nlohmann::json> Next() {
    while (true) {
      if (const auto end = received_.find('\n'); end != std::string::npos) {
        const std::string line = received_.substr(0, end);
        received_.erase(0, end + 1);
        messages.push_back(nlohmann::json::parse(line));
        return messages.back();
      }
      struct pollfd waiting = {channel_, POLLIN, 0};
      if (::poll(&waiting, 1, static_cast<int>(kDeadline * 1000)) <= 0)
        throw std::runtime_error("no message in time");
      char bytes[4096];
      const ssize_t n = ::read(channel_, bytes, sizeof bytes);
      if (n <= 0) return std::nullopt;
      received_.append(bytes, static_cast<std::size_t>(n));
    }
  }
  // Reads on until a message of this type whose step (if it has one) is at least so much.
  nlohmann::json Await(const std::string& type, std::int64_t step = 0) {
    while (const auto message = Next()) {
      if (message->at("type") == type && message->value("step", step) >= step) return *message;
    }
    throw std::runtime_error("the channel ended before a message of type " + type);
  }
  void Say(const std::string& line) {
    const std::string bytes = line + "\n";
    if (::send(channel_, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) throw std::runtime_error("send");
  }
  void CloseChannel() {
    ::close(channel_);
    channel_ = -1;
  }
  void Signal(int signal) { ::kill(pid_, signal); }
  // Exit code, or 128 + signal. Reads the channel to its end first.
  int Wait() {
    if (channel_ >= 0) {
      while (Next()) {
      }
    }
    int status = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kDeadline);
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("the trainer does not end");
      ::usleep(2000);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::vector<nlohmann::json> messages;  // all that were read

 private:
  static std::vector<char*> Pointers(std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (std::string& string : strings) pointers.push_back(string.data());
    pointers.push_back(nullptr);
    return pointers;
  }
  pid_t pid_ = -1;
  int channel_ = -1;
  std::string received_;
};

}  // namespace headsweep::testing
