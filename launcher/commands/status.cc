#include <boost/program_options/value_semantic.hpp>

#include <iostream>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "launcher/commands/command.h"
#include "launcher/commands/status_json.h"
#include "launcher/messages.h"
#include "launcher/submission_state.h"
#include "launcher/sweep_state.h"

namespace headsweep {
namespace {

constexpr double kLongSilence = 10;  // seconds without a beat that are worth a word

const char* const kStates[] = {"finished", "diverged", "early-stopped", "running", "interrupted",
                               "ready",    "waiting",  "failed",        "skipped"};

void PrintText(const SweepState& state, const Workspace& workspace, const std::vector<SubmissionView>& submissions,
               bool all) {
  const std::map<std::string, int> counts = state.Counts();
  std::cout << fmt::format("{}: {}", state.name, WordOf(state, submissions));
  const std::vector<const KnownLauncher*> living = state.Living();
  if (living.size() == 1)
    std::cout << fmt::format(" (process {} on {})", living.front()->process.pid, living.front()->process.host);
  if (living.size() > 1) std::cout << fmt::format(" ({} launchers)", living.size());
  std::cout << fmt::format(", {} stages:", state.planned.size());
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
  for (const std::string& line : SubmissionLines(submissions, live ? live->seconds_left : std::nullopt))
    std::cout << "  " << line << "\n";
  for (const PlanStage& stage : state.planned.plan.stages) {
    const std::string id = state.planned.plan.Id(stage);
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
  if (!state.launcher_may_live && !AnyAlive(submissions) && !AnyUnknown(submissions) &&
      counts.at("finished") + counts.at("diverged") + counts.at("early-stopped") <
          static_cast<int>(state.planned.size()))
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
    const SweepState state = ReadSweepState(workspace, files, name, arguments.Has("json"));
    const std::vector<SubmissionView> submissions = LookAtSubmissions(Slurm(), files, workspace, name);
    if (arguments.Has("json")) {
      std::cout << DumpJson(StatusJson(state, workspace, submissions)) << "\n";
    } else {
      PrintText(state, workspace, submissions, arguments.Has("all"));
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
          "Looks at the disk, and for submitted sweeps at squeue, so it can be asked at any time and on any machine "
          "that sees the\nworkspace. A squeue that does not answer leaves a job \"unknown\".\n\n"
          "--json prints one object a line and sweep:\n"
          "  sweep, workspace, results, report    text; the last two are paths, whether or not the files are "
          "there yet\n"
          "  state       running | done | stopped (resumable) | failed | interrupted (its launcher died) | submitted |\n"
          "              unknown (it was submitted, and squeue does not answer)\n"
          "  counts      {finished, diverged, early-stopped, running, interrupted, ready, waiting, failed, skipped: n}\n"
          "  launchers   those that may live: [{host, pid, job, since, joined, silent_for}]: job is Slurm's, since in\n"
          "              unix seconds, joined: it shares the sweep, silent_for: seconds since it was last heard of, or null\n"
          "  launcher    the first of them, or null\n"
          "  submissions [{number, job, directory, life: alive|over|unknown, problem, cancelled_by, jobs: [{id, state, "
          "phase,\n                reason, nodes, start, seconds_left}]}]: those that are not over, and the latest\n"
          "  stages      [{id, kind: train|prune, parent, description, state, attempts: n,\n"
          "                summary: null or what the trainer measured,\n"
          "                latest_attempt: {attempt, host, job, job_restart, slots, started_at, ended_at, "
          "checkpoint_step,\n"
          "                outcome, cause, message, charged}; missing if it was never started; times in unix seconds, 0 = not yet,\n"
          "                progress: {phase, step, steps, loss, tokens_per_second}; while it runs}]\n"
          "  live        {time, fraction, seconds_left, slots, busy_slots, paused, short_of_memory}; while a launcher runs\n\n"
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
