#include <boost/program_options/value_semantic.hpp>
#include <nlohmann/json.hpp>

#include <iostream>

#include "cluster/base/errors.h"
#include "launcher/commands/command.h"
#include "launcher/messages.h"
#include "launcher/sweep_state.h"

namespace headsweep {
namespace {

const char* const kStates[] = {"finished", "diverged", "running", "interrupted",
                               "ready",    "waiting",  "failed",  "skipped"};

std::map<std::string, int> CountStates(const SweepState& state) {
  std::map<std::string, int> counts;
  for (const char* name : kStates) counts[name] = 0;
  for (const auto& [stage, position] : state.planned.index) ++counts[state.StateOf(stage)];
  return counts;
}

// Of the whole sweep, in one word.
std::string SweepWord(const SweepState& state, std::map<std::string, int> counts) {
  if (state.launcher_may_live) return "running";
  const int total = static_cast<int>(state.planned.index.size());
  if (counts["finished"] + counts["diverged"] == total) return "done";
  if (counts["interrupted"] > 0 || !state.last_exit_code) return "interrupted";
  return *state.last_exit_code == kExitResumable ? "stopped" : "failed";
}

nlohmann::json StageJson(const SweepState& state, const PlanStage& stage) {
  const std::string& id = stage.config.id;
  const StageStatus& status = state.core.status(StageId(id));
  const AttemptHistory* attempt = state.LatestAttempt(id);
  const nlohmann::json summary = nlohmann::json::parse(status.summary, nullptr, /*allow_exceptions=*/false);
  nlohmann::json json = {{"id", id},
                         {"kind", stage.config.kind == StageKind::kTrain ? "train" : "prune"},
                         {"parent", stage.config.parent},
                         {"description", state.planned.Describe(id)},
                         {"state", state.StateOf(id)},
                         {"attempts", status.attempt.value()},
                         {"summary", summary.is_object() ? summary : nlohmann::json()}};
  if (attempt != nullptr) {
    json["latest_attempt"] = {{"attempt", attempt->attempt},   {"host", attempt->host},
                              {"slots", attempt->slots},       {"started_at", attempt->started_at},
                              {"ended_at", attempt->ended_at}, {"checkpoint_step", attempt->checkpoint_step},
                              {"outcome", attempt->outcome},   {"cause", attempt->cause},
                              {"message", attempt->message}};
  }
  return json;
}

void PrintJson(const SweepState& state, const Workspace& workspace) {
  const std::map<std::string, int> counts = CountStates(state);
  nlohmann::json json = {{"sweep", state.name},
                         {"workspace", workspace.root()},
                         {"state", SweepWord(state, counts)},
                         {"counts", counts},
                         {"launcher", nullptr},
                         {"results", workspace.Results(state.name)},
                         {"report", workspace.Report(state.name)},
                         {"stages", nlohmann::json::array()}};
  if (state.launcher && state.launcher_may_live)
    json["launcher"] = {{"host", state.launcher->host},
                        {"pid", state.launcher->pid},
                        {"job", state.launcher->job},
                        {"since", state.launcher->since}};
  for (const PlanStage& stage : state.planned.plan.stages) json["stages"].push_back(StageJson(state, stage));
  std::cout << message::Format(json) << "\n";
}

void PrintText(const SweepState& state, const Workspace& workspace, bool all) {
  const std::map<std::string, int> counts = CountStates(state);
  std::cout << fmt::format("{}: {}", state.name, SweepWord(state, counts));
  if (state.launcher && state.launcher_may_live)
    std::cout << fmt::format(" (process {} on {})", state.launcher->pid, state.launcher->host);
  std::cout << fmt::format(", {} stages:", state.planned.index.size());
  for (const char* name : kStates)
    if (counts.at(name) > 0) std::cout << fmt::format(" {} {}", counts.at(name), name);
  std::cout << "\n";
  for (const PlanStage& stage : state.planned.plan.stages) {
    const std::string& id = stage.config.id;
    const std::string word = state.StateOf(id);
    const bool quiet_state = word == "finished" || word == "ready" || word == "waiting";
    if (quiet_state && !all) continue;
    std::cout << fmt::format("  {} {:<11} {}", id, word, state.planned.Describe(id));
    const AttemptHistory* attempt = state.LatestAttempt(id);
    if (attempt != nullptr && attempt->checkpoint_step > 0 && word != "finished")
      std::cout << fmt::format(", checkpoint at step {}", attempt->checkpoint_step);
    if (word == "failed" && attempt != nullptr)
      std::cout << fmt::format(": {}: {}", attempt->cause,
                               attempt->message.substr(0, attempt->message.find('\n')));
    std::cout << "\n";
  }
  if (!state.launcher_may_live &&
      counts.at("finished") + counts.at("diverged") < static_cast<int>(state.planned.index.size()))
    std::cout << fmt::format("go on with: headsweep resume {} --workspace {}\n", state.name,
                             workspace.root());
}

int RunStatus(const Arguments& arguments) {
  const FileSystem& files = FileSystem::Real();
  const Workspace workspace(arguments.Text("workspace"));
  const std::string wanted = arguments.Positional(0);
  std::vector<std::string> names = {wanted};
  if (wanted.empty()) names = workspace.Sweeps(files);
  if (names.empty() || !wanted.empty()) names = {workspace.ChooseSweep(files, wanted)};
  for (const std::string& name : names) {
    const SweepState state = ReadSweepState(workspace, files, name);
    if (arguments.Has("json")) {
      PrintJson(state, workspace);
    } else {
      PrintText(state, workspace, arguments.Has("all"));
    }
  }
  return kExitDone;
}

}  // namespace

SubCommand MakeStatusCommand() {
  SubCommand command{
      .name = "status",
      .arguments = "[NAME]",
      .most = 1,
      .summary = "says where a sweep stands (every sweep of the workspace, when none is named)",
      .details =
          "Looks at the disk only, so it can be asked at any time and on any machine that sees the "
          "workspace.\n\n"
          "--json prints one object a line and sweep:\n"
          "  sweep, workspace, results, report    text; the last two are paths, whether or not the files are "
          "there yet\n"
          "  state       running | done | stopped (resumable) | failed | interrupted (its launcher died)\n"
          "  counts      {finished, diverged, running, interrupted, ready, waiting, failed, skipped: n}\n"
          "  launcher    null, or {host, pid, job, since}: job is Slurm's, since in unix seconds\n"
          "  stages      [{id, kind: train|prune, parent, description, state, attempts: n,\n"
          "                summary: null or what the trainer measured,\n"
          "                latest_attempt: {attempt, host, slots, started_at, ended_at, checkpoint_step, "
          "outcome, cause,\n"
          "                message}; missing if it was never started; times in unix seconds, 0 = not "
          "yet}]\n\n"
          "examples\n"
          "  headsweep status\n"
          "  headsweep status my-first-sweep --all\n"
          "  headsweep status my-first-sweep --json\n",
      .run = RunStatus};
  AddWorkspaceOption(command);
  command.options.add_options()("json", boost::program_options::bool_switch(), "for programs")(
      "all", boost::program_options::bool_switch(), "also list what is finished or has not begun");
  return command;
}

}  // namespace headsweep
