// explain: why a stage is where it is.
#include <boost/program_options/value_semantic.hpp>

#include <ctime>
#include <iostream>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "launcher/commands/command.h"
#include "launcher/commands/status_json.h"
#include "launcher/failure_policy.h"
#include "launcher/messages.h"
#include "launcher/progress_model.h"
#include "launcher/sweep_state.h"

namespace headsweep {
namespace {

std::string TimeOfDay(double unix_seconds) {
  const std::time_t time = static_cast<std::time_t>(unix_seconds);
  std::tm local = {};
  ::localtime_r(&time, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

// The last sentence of the explanation: why, and what to do.
std::string Why(const SweepState& state, const std::optional<LiveView>& live, const std::string& id) {
  const std::string word = state.StateOf(id);
  const AttemptHistory* latest = state.LatestAttempt(id);
  const std::string resume = fmt::format("go on with: headsweep resume {}", state.name);
  const auto parent = [&] {
    const std::string stage = state.planned.config(id).parent;
    return fmt::format("{} ({}), which is {}", stage, state.planned.Describe(stage), state.StateOf(stage));
  };
  if (word == "waiting")
    return "It needs the result of " + parent() + (state.launcher_may_live ? "." : "; " + resume + ".");
  if (word == "skipped")
    return "It needs the result of " + parent() + ". Try that one again: headsweep resume or retry.";
  if (word == "ready") {
    if (!state.launcher_may_live) return "No launcher runs; " + resume + ".";
    if (live && live->paused) return fmt::format("The sweep is paused; headsweep continue {}.", state.name);
    if (live && live->stopping) return "The sweep is stopping; " + resume + ".";
    if (latest != nullptr && latest->outcome == "failed")
      return fmt::format(
          "Its last attempt failed, and it is tried again after {:.0f} s, or when a slot is free.",
          BackoffSeconds(state.core.status(StageId(id)).failures));
    if (live && live->short_of_memory)
      return fmt::format(
          "It waits for memory: {} of {} slots are busy, and their trials leave too little of it for one more. Smaller "
          "micro-batches need less (train.micro_batch), and `headsweep expand` shows how much.",
          live->busy_slots, live->slots);
    return fmt::format(
        "It waits for a free slot: {} of {} are busy. Longer stages, and stages whose parent has just "
        "finished, go first; {} are ready.",
        live ? live->busy_slots : 0, live ? live->slots : 0, state.Counts().at("ready"));
  }
  if (word == "running") {
    const LiveTrial* now = live && latest != nullptr ? live->Find(id, latest->attempt) : nullptr;
    if (now == nullptr) return "It has been started and has not reported a step yet.";
    return fmt::format("It is in phase {} at step {} of {}, {:.0f} tokens/s.", now->phase, now->step,
                       now->steps, now->tokens_per_second);
  }
  if (word == "interrupted")
    return fmt::format("Its launcher died. It goes on from step {}; {}.", latest->checkpoint_step, resume);
  if (word == "failed") {
    const int retries = state.core.plan()[state.planned.At(id)].retries;
    const bool hopeless = latest != nullptr && VerdictOn(latest->cause) == Verdict::kGiveUp;
    return fmt::format(
        "{} Its log: headsweep logs {}. Try again with: headsweep {} {}.",
        hopeless
            ? fmt::format("A failure by {} is never retried by itself: it would fail again.", latest->cause)
            : fmt::format("Its {} retries are used up.", retries),
        id, state.launcher_may_live ? "retry" : "resume", state.name);
  }
  if (word == "early-stopped") {
    const std::string& why = state.core.status(StageId(id)).message;
    if (why.empty()) return "It needs the result of " + parent() + ".";
    return fmt::format(
        "The sweep's rule for early stopping gave it up: {}. It keeps its checkpoint; to finish it all the same: headsweep {}.",
        why,
        state.launcher_may_live ? fmt::format("retry {} {}", state.name, id)
                                : fmt::format("resume {} --finish-early-stopped", state.name));
  }
  if (word == "diverged")
    return "Its loss was not a number any more. That is a result, not a failure: it is not tried again.";
  return "It has a sealed result and is never run again.";
}

int RunExplain(const Arguments& arguments) {
  const FileSystem& files = FileSystem::Real();
  const Workspace workspace(arguments.Text("workspace"));
  const bool named = arguments.positional.size() == 2;
  const std::string name = workspace.ChooseSweep(files, named ? arguments.Positional(0) : "");
  const SweepState state = ReadSweepState(workspace, files, name);
  const std::string prefix = arguments.Positional(named ? 1 : 0);
  std::vector<std::string> found;
  for (const PlanStage& stage : state.planned.plan.stages) {
    if (std::string stage_id = state.planned.plan.Id(stage); stage_id.starts_with(prefix)) found.push_back(std::move(stage_id));
  }
  if (found.size() != 1)
    throw ConfigError(
        fmt::format("{} stages of the sweep {} begin with \"{}\"; see headsweep status {} --all",
                    found.size(), name, prefix, name));
  const std::string& id = found[0];
  const std::size_t position = state.planned.At(id);
  const std::optional<LiveView> live = ReadLive(files, state);
  if (arguments.Has("json")) {
    nlohmann::json json = {{"sweep", name},
                           {"id", id},
                           {"description", state.planned.Describe(id)},
                           {"state", state.StateOf(id)},
                           {"attempts", nlohmann::json::array()},
                           {"why", Why(state, live, id)}};
    for (const AttemptHistory& attempt : state.attempts)
      if (attempt.stage == position && attempt.started_at != 0) json["attempts"].push_back(AttemptJson(attempt));
    std::cout << DumpJson(json) << "\n";
    return kExitDone;
  }
  std::cout << fmt::format("{} {}: {}\n", id, state.planned.Describe(id), state.StateOf(id));
  for (const AttemptHistory& attempt : state.attempts) {
    if (attempt.stage != position || attempt.started_at == 0) continue;
    std::cout << fmt::format("  attempt {}: {} on {} (slots {}{})", attempt.attempt,
                             TimeOfDay(attempt.started_at), attempt.host, attempt.slots,
                             attempt.job.empty() ? "" : fmt::format("; job {}", attempt.job));
    if (attempt.checkpoint_step > 0)
      std::cout << fmt::format(", checkpoint at step {}", attempt.checkpoint_step);
    if (attempt.ended_at > 0) {
      std::cout << fmt::format(", {} after {}", attempt.outcome,
                               FormatDuration(attempt.ended_at - attempt.started_at));
      if (!attempt.cause.empty())
        std::cout << fmt::format(": {}, {}", attempt.cause,
                                 attempt.charged ? "counts against its retries" : "costs no retry");
      if (attempt.outcome == "failed" && !attempt.message.empty())
        std::cout << "\n             " << attempt.message.substr(0, attempt.message.find('\n'));
    }
    std::cout << "\n";
  }
  std::cout << Why(state, live, id) << "\n";
  return kExitDone;
}

}  // namespace

SubCommand MakeExplainCommand() {
  SubCommand command{
      .name = "explain",
      .arguments = "[NAME] STAGE",
      .least = 1,
      .most = 2,
      .summary = "says why a stage waits, was retried, or failed; STAGE is its id or the first digits of it",
      .details = "examples\n  headsweep explain 3fa0\n  headsweep explain my-first-sweep 3fa0\n",
      .run = RunExplain};
  AddWorkspaceOption(command);
  command.options.add_options()("json", boost::program_options::bool_switch(),
                                "for programs: {sweep, id, description, state, why, attempts: as latest_attempt of status}");
  return command;
}

}  // namespace headsweep
