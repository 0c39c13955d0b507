// The real `headsweep` as a test runs it: to its end, or in the background to be signalled.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/process.h"
#include "launcher/tagged_processes.h"

namespace headsweep::testing {

inline constexpr double kProgramDeadline = 100;  // seconds; beyond it something hangs

inline std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Looks every few milliseconds whether `done` holds; false when the deadline passes. For things another
// process does.
inline bool WaitUntil(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kProgramDeadline);
  while (!done()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  return true;
}

struct Finished {
  int code = -1;  // 128 + signal when one ended it; -1: it had to be killed, it did not end
  std::string output;
};

class HeadsweepProgram {
 public:
  // under: words in front, as {"mpirun", …}.
  HeadsweepProgram(const std::vector<std::string>& arguments, const std::string& log,
                   const std::vector<std::pair<std::string, std::string>>& environment = {},
                   const std::vector<std::string>& under = {})
      : log_(log) {
    ProcessSpec spec;
    spec.command = under;
    spec.command.push_back(std::string(HEADSWEEP_BINARY_DIR) + "/headsweep");
    spec.command.insert(spec.command.end(), arguments.begin(), arguments.end());
    spec.environment = environment;
    spec.log_path = log;
    ::unlink(log.c_str());
    pid_ = Spawn(spec).pid;
  }
  ~HeadsweepProgram() {
    if (pid_ > 0) {
      SignalGroup(pid_, SIGKILL);
      WaitFor(pid_, 10);
    }
  }
  HeadsweepProgram(const HeadsweepProgram&) = delete;
  HeadsweepProgram& operator=(const HeadsweepProgram&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const { ::kill(pid_, signal); }
  bool Running() {
    if (pid_ > 0 && !status_) status_ = TryReap(pid_);
    return !status_;
  }
  std::string output() const { return Slurp(log_); }

  Finished Wait() {
    if (!status_) status_ = WaitFor(pid_, kProgramDeadline);
    Finished finished;
    finished.output = output();
    if (!status_) return finished;
    pid_ = -1;
    finished.code = status_->signal != 0 ? 128 + status_->signal : status_->code;
    return finished;
  }

 private:
  std::string log_;
  pid_t pid_ = -1;
  std::optional<ExitStatus> status_;
};

// Trial processes of a workspace that are alive.
inline int CountTrialProcesses(const std::string& workspace) {
  int count = 0;
  for (const TaggedProcess& process : FindTaggedProcesses())
    count += process.sweep.starts_with(workspace + "/");
  return count;
}

// A text that a tokenizer can be trained on; the same each time.
inline void WriteSmallCorpus(const std::string& path, int sentences) {
  std::ofstream file(path);
  unsigned state = 12345;
  const auto next = [&](unsigned below) { return (state = state * 1664525u + 1013904223u) / 65536u % below; };
  const char* syllables[] = {"ba", "ke", "lo", "mi", "nu", "ra", "si", "to", "ve", "zu"};
  for (int i = 0; i < sentences; ++i) {
    const unsigned words = 4 + next(8);
    for (unsigned w = 0; w < words; ++w) {
      file << (w > 0 ? " " : "");
      for (unsigned s = 0, n = 1 + next(3); s < n; ++s) file << syllables[next(10)];
    }
    file << "\n";
  }
}

}  // namespace headsweep::testing
