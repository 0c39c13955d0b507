// What the launcher's tests share: a workspace in a temporary folder, fake trials, and an event loop that
// runs until something has happened (never for a time chosen by luck).
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/workspace.h"
#include "tests/support/temp_dir.h"

namespace headsweep::testing {

inline constexpr double kDeadline = 60;  // seconds; a wait that lasts longer is a failure

inline std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Environment variables for one test; gone at its end.
class TestEnvironment {
 public:
  ~TestEnvironment() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }
  void Set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    names_.insert(name);
  }

 private:
  std::set<std::string> names_;
};

// Runs the loop until done() holds; false when the deadline passes.
inline bool RunUntil(boost::asio::io_context& loop, const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kDeadline);
  while (!done()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    loop.restart();
    loop.run_one_for(std::chrono::milliseconds(20));
  }
  return true;
}

inline std::string FakeTrainerPath() { return std::string(HEADSWEEP_BINARY_DIR) + "/tests/fake-trainer"; }

// Lines of the file that fake trainers append their events to: "<stage> <attempt> <what>".
struct FakeEvent {
  std::string stage;
  int attempt = 0;
  std::string what;
};
inline std::vector<FakeEvent> ReadFakeEvents(const std::string& path) {
  std::vector<FakeEvent> events;
  std::ifstream file(path);
  for (FakeEvent event; file >> event.stage >> event.attempt >> event.what;) events.push_back(event);
  return events;
}
inline int CountFakeEvents(const std::string& path, const std::string& what, const std::string& stage = "") {
  int count = 0;
  for (const FakeEvent& event : ReadFakeEvents(path))
    count += event.what == what && (stage.empty() || event.stage == stage);
  return count;
}

}  // namespace headsweep::testing
