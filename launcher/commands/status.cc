#include <boost/program_options/value_semantic.hpp>
#include <nlohmann/json.hpp>

#include <iostream>

#include "cluster/base/errors.h"
#include "launcher/commands/command.h"
#include "launcher/messages.h"
#include "launcher/sweep_state.h"

namespace headsweep {
namespace {

constexpr double kLongSilence = 10;  // seconds without a beat that are worth a word

const char* const kStates[] = {"finished", "diverged", "early-stopped", "running", "interrupted",
                               "ready",    "waiting",  "failed",        "skipped"};

nlohmann::json StageJson(const SweepState& state, const std::optional<LiveView>& live,
                         const PlanStage& stage) {
  const std::string& id = stage.config.id;
  const StageStatus& status = state.core.status(StageId(id));
  const AttemptHistory* attempt = state.LatestAttempt(id);
  const LiveTrial* now = live && state.IsRunning(id) ? live->Find(id, attempt->attempt) : nullptr;
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
  if (now != nullptr) {
    json["progress"] = {{"phase", now->phase},
                        {"step", now->step},
                        {"steps", now->steps},
                        {"loss", now->loss},
                        {"tokens_per_second", now->tokens_per_second}};
  }
  return json;
}

nlohmann::json LauncherJson(const KnownLauncher& launcher) {
  return {{"host", launcher.process.host},
          {"pid", launcher.process.pid},
          {"job", launcher.process.job},
          {"since", launcher.process.since},
          {"joined", launcher.joined},
          {"silent_for", launcher.silent_for ? nlohmann::json(*launcher.silent_for) : nlohmann::json()}};
}

void PrintJson(const SweepState& state, const Workspace& workspace) {
  const std::map<std::string, int> counts = state.Counts();
  const std::optional<LiveView> live = ReadLive(FileSystem::Real(), state);
  nlohmann::json json = {{"sweep", state.name},
                         {"workspace", workspace.root()},
                         {"state", state.Word()},
                         {"counts", counts},
                         {"launcher", nullptr},
                         {"launchers", nlohmann::json::array()},
                         {"results", workspace.Results(state.name)},
                         {"report", workspace.Report(state.name)},
                         {"stages", nlohmann::json::array()}};
  for (const KnownLauncher* launcher : state.Living()) json["launchers"].push_back(LauncherJson(*launcher));
  if (!json["launchers"].empty()) json["launcher"] = json["launchers"].front();
  if (live) {
    json["live"] = {
        {"time", live->time},
        {"fraction", live->fraction},
        {"seconds_left", live->seconds_left ? nlohmann::json(*live->seconds_left) : nlohmann::json()},
        {"slots", live->slots},
        {"busy_slots", live->busy_slots},
        {"paused", live->paused}};
  }
  for (const PlanStage& stage : state.planned.plan.stages)
    json["stages"].push_back(StageJson(state, live, stage));
  std::cout << message::Format(json) << "\n";
}

void PrintText(const SweepState& state, const Workspace& workspace, bool all) {
  const std::map<std::string, int> counts = state.Counts();
  std::cout << fmt::format("{}: {}", state.name, state.Word());
  const std::vector<const KnownLauncher*> living = state.Living();
  if (living.size() == 1)
    std::cout << fmt::format(" (process {} on {})", living.front()->process.pid, living.front()->process.host);
  if (living.size() > 1) std::cout << fmt::format(" ({} launchers)", living.size());
  std::cout << fmt::format(", {} stages:", state.planned.index.size());
  for (const char* name : kStates)
    if (counts.at(name) > 0) std::cout << fmt::format(" {} {}", counts.at(name), name);
  std::cout << "\n";
  const std::optional<LiveView> live = ReadLive(FileSystem::Real(), state);
  if (living.size() > 1) {
    for (const KnownLauncher* launcher : living)
      std::cout << fmt::format("  process {} on {}{}{}\n", launcher->process.pid, launcher->process.host,
                               launcher->process.job.empty() ? "" : ", job " + launcher->process.job,
                               launcher->silent_for && *launcher->silent_for > kLongSilence
                                   ? fmt::format(", silent for {:.0f} s", *launcher->silent_for)
                                   : "");
  }
  if (live) std::cout << "  " << live->line << (live->paused ? "; paused" : "") << "\n";
  for (const PlanStage& stage : state.planned.plan.stages) {
    const std::string& id = stage.config.id;
    const std::string word = state.StateOf(id);
    const bool quiet_state = word == "finished" || word == "ready" || word == "waiting";
    if (quiet_state && !all) continue;
    std::cout << fmt::format("  {} {:<13} {}", id, word, state.planned.Describe(id));
    const AttemptHistory* attempt = state.LatestAttempt(id);
    const LiveTrial* now = live && state.IsRunning(id) ? live->Find(id, attempt->attempt) : nullptr;
    if (now != nullptr && now->steps > 0) {
      std::cout << fmt::format(", {} {} of {}", now->phase, now->step, now->steps);
    } else if (attempt != nullptr && attempt->checkpoint_step > 0 && word != "finished") {
      std::cout << fmt::format(", checkpoint at step {}", attempt->checkpoint_step);
    }
    if (word == "early-stopped" && !state.core.status(StageId(id)).message.empty())
      std::cout << ": " << state.core.status(StageId(id)).message;
    if (word == "failed" && attempt != nullptr)
      std::cout << fmt::format(": {}: {}", attempt->cause,
                               attempt->message.substr(0, attempt->message.find('\n')));
    std::cout << "\n";
  }
  if (!state.launcher_may_live &&
      counts.at("finished") + counts.at("diverged") + counts.at("early-stopped") <
          static_cast<int>(state.planned.index.size()))
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
          "  counts      {finished, diverged, early-stopped, running, interrupted, ready, waiting, failed, skipped: n}\n"
          "  launchers   those that may live: [{host, pid, job, since, joined, silent_for}]: job is Slurm's, since in\n"
          "              unix seconds, joined: it shares the sweep, silent_for: seconds since it was last heard of, or null\n"
          "  launcher    the first of them, or null\n"
          "  stages      [{id, kind: train|prune, parent, description, state, attempts: n,\n"
          "                summary: null or what the trainer measured,\n"
          "                latest_attempt: {attempt, host, slots, started_at, ended_at, checkpoint_step, "
          "outcome, cause,\n"
          "                message}; missing if it was never started; times in unix seconds, 0 = not yet,\n"
          "                progress: {phase, step, steps, loss, tokens_per_second}; while it runs}]\n"
          "  live        {time, fraction, seconds_left, slots, busy_slots, paused}; while a launcher runs\n\n"
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
