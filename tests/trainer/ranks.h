// Ranks of a trial as real processes: forked before the test has any thread, each runs a function and hands
// back text.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace headsweep::testing {

class Ranks {
 public:
  static constexpr double kDeadline = 60;

  // body(rank) runs in a process of its own; what it returns (or "error: …" of what it throws) is text(rank).
  Ranks(int count, const std::function<std::string(int rank)>& body) {
    for (int rank = 0; rank < count; ++rank) {
      int pipe_ends[2];
      if (::pipe(pipe_ends) != 0) throw std::runtime_error("pipe");
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(pipe_ends[0]);
        std::string text;
        try {
          text = body(rank);
        } catch (const std::exception& error) {
          text = std::string("error: ") + error.what();
        }
        for (std::size_t sent = 0; sent < text.size();) {
          const ssize_t n = ::write(pipe_ends[1], text.data() + sent, text.size() - sent);
          if (n <= 0) ::_exit(2);
          sent += static_cast<std::size_t>(n);
        }
        ::_exit(0);
      }
      ::close(pipe_ends[1]);
      processes_.push_back({pid, pipe_ends[0]});
    }
  }
  ~Ranks() {
    for (const Process& process : processes_) {
      ::kill(process.pid, SIGKILL);
      ::waitpid(process.pid, nullptr, 0);
      ::close(process.out);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void Signal(int rank, int signal) { ::kill(processes_.at(static_cast<std::size_t>(rank)).pid, signal); }
  // Waits for the rank's end; what it wrote.
  std::string Text(int rank) {
    std::string text;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kDeadline);
    while (std::chrono::steady_clock::now() < deadline) {
      struct pollfd waiting = {processes_.at(static_cast<std::size_t>(rank)).out, POLLIN, 0};
      if (::poll(&waiting, 1, 100) <= 0) continue;
      char bytes[4096];
      const ssize_t n = ::read(waiting.fd, bytes, sizeof bytes);
      if (n <= 0) return text;
      text.append(bytes, static_cast<std::size_t>(n));
    }
    ADD_FAILURE() << "rank " << rank << " does not end";
    return text;
  }
  std::vector<std::string> Texts() {
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < processes_.size(); ++rank)
      texts.push_back(Text(static_cast<int>(rank)));
    return texts;
  }

 private:
  struct Process {
    pid_t pid;
    int out;
  };
  std::vector<Process> processes_;
};

}  // namespace headsweep::testing
