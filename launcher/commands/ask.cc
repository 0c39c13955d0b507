// cancel, pause, continue, retry: what people ask of a launcher that runs.
#include <boost/program_options/value_semantic.hpp>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "launcher/commands/command.h"
#include "launcher/messages.h"
#include "launcher/requests.h"
#include "launcher/sweep_state.h"
#include "launcher/submission_state.h"

namespace headsweep {
namespace {

constexpr double kAnswerSeconds = 15;  // the coordinator looks about once a second

// Asks every launcher of the sweep, and waits for their answers. Refuses when none can hear. advice: what to do then.
// done: what is printed, a sentence; with --json an object.
void Ask(const Arguments& arguments, const std::string& sweep, Request request, const std::string& advice,
         const std::string& done) {
  FileSystem& files = FileSystem::Real();
  const Workspace workspace(arguments.Text("workspace"));
  const SweepState state = ReadSweepState(workspace, files, sweep);
  const std::vector<const KnownLauncher*> living = state.Living();
  if (living.empty()) throw ConfigError(fmt::format("no launcher runs the sweep {}; {}", sweep, advice));
  request.by = ThisUser();
  std::vector<std::string> paths;
  for (const KnownLauncher* launcher : living) {
    request.launcher = launcher->process;
    paths.push_back(WriteRequest(files, launcher->directory + "/requests", request));
  }
  std::size_t answers = 0;
  for (std::size_t i = 0; i < living.size(); ++i) {
    const LockOwner& owner = living[i]->process;
    const Answer answer = AwaitAnswer(files, owner, paths[i], kAnswerSeconds);
    answers += answer == Answer::kObeyed;
    if (answer != Answer::kNone) continue;
    throw CommError(
        fmt::format("launcher (process {} on {})", owner.pid, owner.host), "answer to " + request.type,
        kAnswerSeconds,
        "it will act on the request when it is back, as long as it is the same one; see `headsweep status`");
  }
  // One of several may find the sweep done, and end, before it looks.
  if (answers == 0)
    throw ConfigError(fmt::format("the sweep's launcher ended before it looked at the request; see `headsweep status {}`", sweep));
  if (!arguments.Has("json")) {
    std::cout << sweep << ": " << done << "\n";
    return;
  }
  nlohmann::json json = {
      {"sweep", sweep}, {"request", request.type}, {"stages", request.stages}, {"launchers", nlohmann::json::array()}};
  for (const KnownLauncher* launcher : living)
    json["launchers"].push_back({{"host", launcher->process.host}, {"pid", launcher->process.pid}});
  std::cout << DumpJson(json) << "\n";
}

std::string ChosenSweep(const Arguments& arguments) {
  return Workspace(arguments.Text("workspace")).ChooseSweep(FileSystem::Real(), arguments.Positional(0));
}

// Takes the sweep's submissions out of the queue for good. Returns what was done, a line each; empty: there was none.
std::vector<std::string> CancelSubmissions(const std::string& root, const std::string& sweep, bool everything) {
  FileSystem& files = FileSystem::Real();
  const Slurm slurm;
  std::vector<std::string> lines;
  for (const auto& [submission, state] : LookAtSubmissions(slurm, files, Workspace(root), sweep)) {
    if (state.life == SubmissionLife::kOver) continue;
    // First: from here on nothing of it is put into the queue again, whatever becomes of the rest.
    MarkCancelled(files, submission.directory, ThisUser());
    std::vector<std::string> ids = submission.Ids();
    if (ids.empty())
      for (const SlurmJob& job : state.jobs) ids.push_back(job.id);
    for (const std::string& id : ids) {
      const SlurmReply reply = everything ? slurm.Cancel(id) : slurm.CancelPending(id);
      lines.push_back(reply.outcome == SlurmOutcome::kDone
                          ? fmt::format("job {}: {}", id, everything ? "cancelled" : "will not start again")
                          : fmt::format("job {}: Slurm did not cancel it ({}); should it start, it ends at once", id,
                                        reply.text));
    }
    if (ids.empty()) lines.push_back("a submission without a known job: should one start, it ends at once");
  }
  return lines;
}

int RunCancel(const Arguments& arguments) {
  const bool now = arguments.Has("now");
  const std::string sweep = ChosenSweep(arguments);
  const Workspace workspace(arguments.Text("workspace"));
  // A job that is only starting has no launcher yet that could be asked.
  const bool launcher = !ReadSweepState(workspace, FileSystem::Real(), sweep).Living().empty();
  const std::vector<std::string> cancelled = CancelSubmissions(workspace.root(), sweep, now || !launcher);
  for (const std::string& line : cancelled) std::cout << line << "\n";
  if (!launcher && !cancelled.empty()) {
    std::cout << fmt::format("{}: go on later with: headsweep resume {}\n", sweep, sweep);
    return kExitDone;
  }
  Ask(arguments, sweep, {now ? request::kKill : request::kCancel, {}, "", {}}, "there is nothing to cancel",
      fmt::format("{}; go on later with: headsweep resume {}",
                  now ? "killed" : "stopping, what runs is being checkpointed", sweep));
  return kExitDone;
}

int RunPause(const Arguments& arguments) {
  const std::string sweep = ChosenSweep(arguments);
  Ask(arguments, sweep, {request::kPause, {}, "", {}}, "there is nothing to pause",
      fmt::format("paused; what runs goes on, nothing more is started until: headsweep continue {}", sweep));
  return kExitDone;
}

int RunContinue(const Arguments& arguments) {
  const std::string sweep = ChosenSweep(arguments);
  Ask(arguments, sweep, {request::kContinue, {}, "", {}},
      fmt::format("start one with: headsweep resume {}", sweep), "goes on");
  return kExitDone;
}

// [NAME] STAGE …, or --failed.
int RunRetry(const Arguments& arguments) {
  const FileSystem& files = FileSystem::Real();
  const Workspace workspace(arguments.Text("workspace"));
  const std::vector<std::string> sweeps = workspace.Sweeps(files);
  std::vector<std::string> words = arguments.positional;
  std::string name;
  if (!words.empty() && std::find(sweeps.begin(), sweeps.end(), words.front()) != sweeps.end()) {
    name = words.front();
    words.erase(words.begin());
  }
  const std::string sweep = workspace.ChooseSweep(files, name);
  if (words.empty() != arguments.Has("failed"))
    throw ConfigError("name the stages to retry, or say --failed for all that failed (one of the two)");
  Request request{request::kRetry, {}, "", {}};
  for (const std::string& word : words) request.stages.push_back(workspace.ChooseTrial(files, word));
  Ask(arguments, sweep, request, fmt::format("`headsweep resume {}` tries again what failed", sweep),
      fmt::format("asked; see: headsweep status {}", sweep));
  return kExitDone;
}

SubCommand MakeAsking(SubCommand command) {
  command.details =
      "Works on any machine that sees the workspace. The launcher answers within seconds; its log says who "
      "asked.\n\nexamples\n" +
      command.details;
  AddWorkspaceOption(command);
  command.options.add_options()("json", boost::program_options::bool_switch(),
                                "for programs: {sweep, request, stages, launchers: [{host, pid}]}, when all have answered");
  return command;
}

}  // namespace

SubCommand MakeCancelCommand() {
  SubCommand command =
      MakeAsking({.name = "cancel",
                  .arguments = "[NAME]",
                  .most = 1,
                  .summary = "asks a running sweep to checkpoint everything and end",
                  .details = "  headsweep cancel my-first-sweep\n  headsweep cancel my-first-sweep --now\n",
                  .run = RunCancel});
  command.options.add_options()("now", boost::program_options::bool_switch(),
                                "kill what runs; steps since the last checkpoint are lost");
  return command;
}

SubCommand MakePauseCommand() {
  return MakeAsking({.name = "pause",
                     .arguments = "[NAME]",
                     .most = 1,
                     .summary = "asks a running sweep to start nothing more; what runs goes on",
                     .details = "  headsweep pause my-first-sweep\n  headsweep continue my-first-sweep\n",
                     .run = RunPause});
}

SubCommand MakeContinueCommand() {
  return MakeAsking({.name = "continue",
                     .arguments = "[NAME]",
                     .most = 1,
                     .summary = "ends a pause",
                     .details = "  headsweep continue my-first-sweep\n",
                     .run = RunContinue});
}

SubCommand MakeRetryCommand() {
  SubCommand command =
      MakeAsking({.name = "retry",
                  .arguments = "[NAME] [STAGE …]",
                  .most = 1000,
                  .summary = "asks a running sweep to try failed stages again, with a fresh budget",
                  .details = "  headsweep retry my-first-sweep --failed\n  headsweep retry 3fa0\n",
                  .run = RunRetry});
  command.options.add_options()("failed", boost::program_options::bool_switch(), "every stage that failed");
  return command;
}

}  // namespace headsweep
