// Drives a Core through a test in few words: what happens goes in as calls, what was commanded comes out as
// text. The clock moves only by AdvanceTo. CheckInvariants runs after every event.
#pragma once

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/core.h"
#include "trainer/control_protocol.h"

namespace headsweep::testing {

inline StageSpec Root(const std::string& name, double flops = 1, int slots = 1, int retries = 2) {
  StageSpec spec;
  spec.id = StageId(name);
  spec.kind = "train";
  spec.slots = slots;
  spec.retries = retries;
  spec.flops = flops;
  return spec;
}

inline StageSpec Child(const std::string& name, const std::string& parent, double flops = 1) {
  StageSpec spec = Root(name, flops);
  spec.kind = "prune";
  spec.parent = StageId(parent);
  return spec;
}

// s0, s1, …
inline std::vector<StageSpec> Many(int count, int retries = 0) {
  std::vector<StageSpec> plan;
  for (int i = 0; i < count; ++i) plan.push_back(Root("s" + std::to_string(i), 1, 1, retries));
  return plan;
}

class CoreDriver {
 public:
  explicit CoreDriver(std::vector<StageSpec> plan, CorePolicy policy = {},
                      const std::vector<JournalEvent>& history = {},
                      const std::map<StageId, std::string>& done = {})
      : core_(std::move(plan), policy, history, done) {
    core_.CheckInvariants();
  }

  void Join(int node, int slots, std::vector<std::int64_t> device_bytes = {}) {
    Handle(NodeJoined{NodeId(node), fmt::format("host{}", node), slots, std::move(device_bytes)});
  }
  void Lose(int node) { Handle(NodeLost{NodeId(node), "silent for 30 s"}); }
  void Progress(const std::string& stage, int attempt, std::int64_t step, std::int64_t steps = 100) {
    Handle(AttemptProgressed{StageId(stage), Attempt(attempt), step, steps});
  }
  void Checkpoint(const std::string& stage, int attempt, std::int64_t step) {
    Handle(AttemptCheckpointed{StageId(stage), Attempt(attempt), step});
  }
  void Evaluate(const std::string& stage, int attempt, std::int64_t step, double value) {
    Handle(AttemptEvaluated{StageId(stage), Attempt(attempt), step, value});
  }
  void Finish(const std::string& stage, int attempt) {
    Handle(AttemptEnded{StageId(stage), Attempt(attempt), control::kFinished, "", "", "{}"});
  }
  void Measure(const std::string& stage, int attempt, std::int64_t memory) {
    Handle(AttemptEnded{StageId(stage), Attempt(attempt), control::kFinished, "", "", "{}", memory});
  }
  void Diverge(const std::string& stage, int attempt) {
    Handle(AttemptEnded{StageId(stage), Attempt(attempt), control::kDiverged, "", "loss is NaN", "{}"});
  }
  void Stopped(const std::string& stage, int attempt) {
    Handle(AttemptEnded{StageId(stage), Attempt(attempt), control::kStopped, "", "", ""});
  }
  void Fail(const std::string& stage, int attempt, const std::string& cause,
            const std::string& message = "broken") {
    Handle(AttemptEnded{StageId(stage), Attempt(attempt), control::kFailed, cause, message, ""});
  }
  void Pause(bool paused) { Handle(PauseRequested{paused, "anna"}); }
  void Retry(const std::vector<std::string>& stages) {
    RetryRequested request{{}, "anna"};
    for (const std::string& stage : stages) request.stages.push_back(StageId(stage));
    Handle(request);
  }
  // Of a shared sweep.
  void Grant(const std::string& stage, int attempt) { Handle(ClaimAnswered{StageId(stage), Attempt(attempt)}); }
  void Refuse(const std::string& stage) { Handle(ClaimAnswered{StageId(stage), std::nullopt}); }
  void Hear(const char* type, const std::string& stage, int attempt, std::map<std::string, std::string> fields = {}) {
    JournalEvent event;
    event.type = type;
    event.stage = stage;
    event.attempt = attempt;
    event.fields = std::move(fields);
    Handle(HeardOf{event});
  }
  void HearFailure(const std::string& stage, int attempt, const std::string& cause, bool charged = true) {
    Hear(journal::kAttemptEnded, stage, attempt,
         {{"outcome", control::kFailed}, {"cause", cause}, {"message", "there"}, {"charged", charged ? "yes" : "no"}});
  }
  void HearFinish(const std::string& stage, int attempt) {
    Hear(journal::kAttemptEnded, stage, attempt, {{"outcome", control::kFinished}, {"summary", "{}"}});
  }
  void LeaveBehind(const std::string& stage, int attempt) { Handle(LeftBehind{StageId(stage), Attempt(attempt)}); }
  void LoseLease(const std::string& stage, int attempt) { Handle(LeaseLost{StageId(stage), Attempt(attempt)}); }
  void Limit(double seconds_left) { Handle(TimeLimit{seconds_left}); }
  void RequestStop() { Handle(StopRequested{"interrupted"}); }
  void AdvanceTo(double time) {
    while (now_ < time) {
      now_ = std::min(time, now_ + 1);
      Handle(Tick{});
    }
  }
  void JumpTo(double time) {
    now_ = time;
    Handle(Tick{});
  }

  // Everything commanded so far, in order: "a.1@0:0" is stage a, attempt 1, on slot 0 of node 0.
  const std::string& started() const { return started_; }
  const std::string& stopped() const { return stopped_; }    // "a.1"
  const std::string& killed() const { return killed_; }      // "a.1"
  const std::string& claimed() const { return claimed_; }    // "a.1": at least attempt 1
  const std::string& released() const { return released_; }  // "a.1"
  const std::string& recorded() const { return recorded_; }  // types
  const std::string& notices() const { return notices_; }
  std::optional<int> exit_code() const { return exit_code_; }
  const std::string& exit_reason() const { return exit_reason_; }
  const std::vector<JournalEvent>& journal() const { return journal_; }
  int divisor() const { return divisor_; }  // of the last start
  Core& core() { return core_; }
  StageState state(const std::string& stage) const { return core_.status(StageId(stage)).state; }
  void Forget() { started_ = stopped_ = killed_ = recorded_ = notices_ = claimed_ = released_ = ""; }

 private:
  static void Add(std::string& list, const std::string& item) { list += (list.empty() ? "" : " ") + item; }
  static std::string Name(const StageId& stage, Attempt attempt) {
    return fmt::format("{}.{}", stage.value(), attempt.value());
  }
  void Handle(const Event& event) {
    for (const Command& command : core_.Handle(event, now_))
      std::visit([this](const auto& c) { On(c); }, command);
    core_.CheckInvariants();
  }
  void On(const Record& c) {
    Add(recorded_, c.event.type);
    journal_.push_back(c.event);
  }
  void On(const StartAttempt& c) {
    std::string slots;
    for (const SlotId& s : c.slots)
      slots += fmt::format("{}{}:{}", slots.empty() ? "@" : ",", s.node.value(), s.index);
    Add(started_, Name(c.stage, c.attempt) + slots);
    divisor_ = c.micro_batch_divisor;
  }
  void On(const StopAttempt& c) { Add(stopped_, Name(c.stage, c.attempt)); }
  void On(const KillAttempt& c) { Add(killed_, Name(c.stage, c.attempt)); }
  void On(const ClaimStage& c) { Add(claimed_, Name(c.stage, c.least)); }
  void On(const ReleaseStage& c) { Add(released_, Name(c.stage, c.attempt)); }
  void On(const Notice& c) { Add(notices_, c.text); }
  void On(const EndSweep& c) {
    exit_code_ = c.exit_code;
    exit_reason_ = c.reason;
  }

  Core core_;
  double now_ = 0;
  std::string started_, stopped_, killed_, recorded_, notices_, claimed_, released_, exit_reason_;
  std::vector<JournalEvent> journal_;
  std::optional<int> exit_code_;
  int divisor_ = 0;
};

}  // namespace headsweep::testing
