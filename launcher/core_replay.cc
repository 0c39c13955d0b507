// How Core begins: the plan's graph, the journal's history, and the results that are there already.
#include "cluster/base/errors.h"
#include "launcher/attempt_outcome.h"
#include "launcher/core.h"
#include "launcher/failure_policy.h"
#include "trainer/control_protocol.h"

namespace headsweep {

Core::Core(std::vector<StageSpec> plan, CorePolicy policy, const std::vector<JournalEvent>& history,
           const std::map<StageId, std::string>& done_summaries)
    : Core(std::move(plan), policy, HistoryStream([&](const HistoryStream::Visit& visit) {
             for (const JournalEvent& event : history) visit(event);
           }), done_summaries) {}

Core::Core(std::vector<StageSpec> plan, CorePolicy policy, const HistoryStream& history,
           const std::map<StageId, std::string>& done_summaries)
    : plan_(std::move(plan)),
      policy_(policy),
      entries_(plan_.size()),
      early_stopping_(policy_.early_stopping) {
  HEADSWEEP_CHECK(policy_.stop_grace_seconds > 0, "stop_grace_seconds is {}", policy_.stop_grace_seconds);
  counts_.waiting = static_cast<int>(plan_.size());
  const std::vector<int> parents_first = LinkPlan();
  Settle(parents_first, Replay(history), done_summaries);
}

std::vector<int> Core::LinkPlan() {
  const int n = static_cast<int>(plan_.size());
  index_.reserve(plan_.size());
  for (int i = 0; i < n; ++i) {
    const StageSpec& spec = plan_[static_cast<std::size_t>(i)];
    HEADSWEEP_CHECK(index_.emplace(spec.id, i).second, "stage {} is twice in the plan", spec.id.value());
    HEADSWEEP_CHECK(spec.slots >= 1 && spec.flops >= 0, "stage {} needs {} slots and {} FLOPs",
                    spec.id.value(), spec.slots, spec.flops);
    total_flops_ += spec.flops;
  }
  std::vector<int> order;
  for (int i = 0; i < n; ++i) {
    const StageSpec& spec = plan_[static_cast<std::size_t>(i)];
    if (!spec.parent) {
      order.push_back(i);
      continue;
    }
    const auto it = index_.find(*spec.parent);
    HEADSWEEP_CHECK(it != index_.end(), "stage {} has the parent {}, which is not in the plan",
                    spec.id.value(), spec.parent->value());
    At(i).parent = it->second;
    At(it->second).children.push_back(i);
  }
  for (std::size_t next = 0; next < order.size(); ++next) {
    const std::vector<int>& children = At(order[next]).children;
    order.insert(order.end(), children.begin(), children.end());
  }
  HEADSWEEP_CHECK(order.size() == plan_.size(), "{} stages of the plan are parents of each other in a circle",
                  plan_.size() - order.size());
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    Entry& entry = At(*it);
    const StageSpec& spec = plan_[static_cast<std::size_t>(*it)];
    entry.chain += spec.flops / spec.slots;  // so far: the longest of the children
    if (entry.parent >= 0) At(entry.parent).chain = std::max(At(entry.parent).chain, entry.chain);
  }
  return order;
}

std::vector<Core::Past> Core::Replay(const HistoryStream& history) {
  std::vector<Past> past(entries_.size());
  int launch = 0;  // counts starts by a person; failures of earlier ones are forgiven
  history.for_each([&](const JournalEvent& event) {
    if (event.type == journal::kSweepStarted && journal::Field(event, "automatic") != "yes") ++launch;
    const auto it = index_.find(StageId(event.stage));
    if (it == index_.end()) return;  // not about a stage, or of one that the sweep file no longer has
    Entry& entry = At(it->second);
    Past& stage = past[static_cast<std::size_t>(it->second)];
    StageStatus& status = entry.status;
    status.attempt = std::max(status.attempt, Attempt(event.attempt));
    if (event.type == journal::kCheckpointed) {
      entry.checkpoint_step = std::max(entry.checkpoint_step, journal::NumberField(event, "step"));
    } else if (event.type == journal::kEvaluated) {
      const std::string& group = plan_[static_cast<std::size_t>(it->second)].group;
      const std::string value = journal::Field(event, "value");
      if (!group.empty())
        early_stopping_.Observe(group, it->first, journal::NumberField(event, "step"), std::strtod(value.c_str(), nullptr));
    } else if (event.type == journal::kEarlyStopped) {
      stage.given_up = journal::Field(event, "reason");
    } else if (event.type == journal::kRetried) {
      stage.failures = 0;
      stage.hopeless = false;
      entry.spared |= !stage.given_up.empty();
      stage.given_up.clear();
    } else if (event.type == journal::kStageAdopted) {
      stage.result = SaysDiverged(journal::Field(event, "summary")) ? StageState::kDiverged : StageState::kFinished;
      status.summary = journal::Field(event, "summary");
    } else if (event.type == journal::kAttemptEnded) {
      const std::string outcome = journal::Field(event, "outcome");
      status.message = journal::Field(event, "message");
      status.cause = journal::Field(event, "cause");
      if (outcome == control::kFinished || outcome == control::kDiverged) {
        stage.result = outcome == control::kFinished ? StageState::kFinished : StageState::kDiverged;
        status.summary = journal::Field(event, "summary");
        LearnMemory(plan_[static_cast<std::size_t>(it->second)], journal::NumberField(event, "memory"));
        stage.given_up.clear();
        return;
      }
      if (status.cause == control::kCauseOutOfMemory)  // kept for ever: the stage has not grown smaller
        LearnOutOfMemory(entry, journal::Field(event, "in_company") == "yes");
      if (stage.launch != launch) stage.failures = 0;
      stage.launch = launch;
      if (journal::Field(event, "charged") == "yes") ++stage.failures;
      stage.hopeless = VerdictOn(status.cause) == Verdict::kGiveUp;
    }
  });
  for (Past& stage : past) {
    if (policy_.automatic_restart && stage.launch == launch) continue;
    stage.failures = 0;
    stage.hopeless = false;
  }
  return past;
}

void Core::Settle(const std::vector<int>& parents_first, const std::vector<Past>& past,
                  const std::map<StageId, std::string>& done_summaries) {
  for (const int stage : parents_first) {
    const StageSpec& spec = plan_[static_cast<std::size_t>(stage)];
    const Past& before = past[static_cast<std::size_t>(stage)];
    Entry& entry = At(stage);
    const auto done = done_summaries.find(spec.id);
    if (done != done_summaries.end()) {
      any_finished_ = true;
      if (!before.result) {
        entry.status.summary = done->second;
        RecordEvent(journal::kStageAdopted, stage, {{"summary", done->second}});
      }
      Enter(stage, before.result
                       ? *before.result
                       : (SaysDiverged(done->second) ? StageState::kDiverged : StageState::kFinished));
      continue;
    }
    if (before.result) {  // the result was removed, and with it perhaps the checkpoints
      entry.status.summary.clear();
      entry.checkpoint_step = 0;
    }
    entry.status.step = entry.checkpoint_step;
    entry.status.failures = before.failures;
    const StageState parent = entry.parent < 0 ? StageState::kFinished : At(entry.parent).status.state;
    // A sweep file without the rule any more takes up what it had stopped.
    if (early_stopping_.on() && !before.given_up.empty()) {
      entry.given_up = entry.status.message = before.given_up;
      entry.status.cause = cause::kEarlyStopped;
      Enter(stage, StageState::kEarlyStopped);
    } else if (parent == StageState::kEarlyStopped) {
      Enter(stage, StageState::kEarlyStopped);
    } else if (before.hopeless || before.failures > spec.retries) {
      Enter(stage, StageState::kFailed);
    } else if (parent == StageState::kFinished) {
      MakeReady(stage, 0);
      ++stages_to_start_;
    } else if (parent == StageState::kDiverged || parent == StageState::kFailed ||
               parent == StageState::kSkipped) {
      Enter(stage, StageState::kSkipped);
    }
  }
  pending_ = std::exchange(commands_, {});
}

}  // namespace headsweep
