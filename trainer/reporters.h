// Reporters: to an agent (JSON lines), to a terminal (log lines), to nobody.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cluster/base/clock.h"
#include "trainer/agent_channel.h"
#include "trainer/reporter.h"

namespace headsweep {

class NullReporter final : public Reporter {
 public:
  void Progress(const std::string&, std::int64_t, std::int64_t, double, double) override {}
  void Evaluated(const EvaluationRow&) override {}
  void Checkpointed(std::int64_t, const std::string&) override {}
};

// Log lines, progress at most every two seconds.
class TerminalReporter final : public Reporter {
 public:
  explicit TerminalReporter(const Clock& clock) : clock_(clock) {}
  void Started(std::int64_t step, std::int64_t steps) override;
  void Progress(const std::string& phase, std::int64_t step, std::int64_t steps, double loss,
                double tokens_per_second) override;
  void Evaluated(const EvaluationRow& row) override;
  void Checkpointed(std::int64_t step, const std::string& path) override;

 private:
  const Clock& clock_;
  double last_ = 0;
};

// The messages of control_protocol.h; looks for requests at every call. A value that is not finite is sent as
// null.
class AgentReporter final : public Reporter {
 public:
  AgentReporter(AgentChannel& channel, const Clock& clock, std::string stage_id, int attempt)
      : channel_(channel), clock_(clock), stage_id_(std::move(stage_id)), attempt_(attempt) {}
  void Started(std::int64_t step, std::int64_t steps) override;
  void Progress(const std::string& phase, std::int64_t step, std::int64_t steps, double loss,
                double tokens_per_second) override;
  void Evaluated(const EvaluationRow& row) override;
  void Checkpointed(std::int64_t step, const std::string& path) override;

 private:
  AgentChannel& channel_;
  const Clock& clock_;
  std::string stage_id_;
  int attempt_;
  double last_progress_ = -1;
  std::string last_phase_;
  bool said_hello_ = false;
};

}  // namespace headsweep
