// watch: a running sweep, live.
#include <unistd.h>

#include <boost/program_options/value_semantic.hpp>

#include <chrono>
#include <iostream>
#include <thread>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "launcher/commands/command.h"
#include "launcher/commands/status_json.h"
#include "launcher/messages.h"
#include "launcher/submission_state.h"
#include "launcher/sweep_state.h"

namespace headsweep {
namespace {

constexpr double kSlurmSeconds = 10;  // between two questions to squeue, which all users of a cluster ask

std::string Bar(double fraction, int width) {
  const int done = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * width);
  return std::string(static_cast<std::size_t>(done), '#') +
         std::string(static_cast<std::size_t>(width - done), '.');
}

std::string Page(const SweepState& state, const std::optional<LiveView>& live,
                 const std::vector<SubmissionView>& submissions) {
  std::string page = fmt::format("{}: {}", state.name, WordOf(state, submissions));
  if (live) {
    page += fmt::format("{}\n[{}] {}\nslots {} of {} busy{}\n", live->paused ? " (paused)" : "",
                        Bar(live->fraction, 40), live->line, live->busy_slots, live->slots,
                        live->short_of_memory ? "; no memory for more at once" : "");
  } else {
    page += "\n";
  }
  for (const std::string& line : SubmissionLines(submissions, live ? live->seconds_left : std::nullopt))
    page += line + "\n";
  for (const PlanStage& stage : state.planned.plan.stages) {
    const std::string id = state.planned.plan.Id(stage);
    const AttemptHistory* attempt = state.LatestAttempt(id);
    if (!state.IsRunning(id)) continue;
    const LiveTrial* now = live ? live->Find(id, attempt->attempt) : nullptr;
    if (now == nullptr) {
      page += fmt::format("  {}  starting  {}\n", id, state.planned.Describe(id));
      continue;
    }
    const double done = now->steps > 0 ? static_cast<double>(now->step) / static_cast<double>(now->steps) : 0;
    page += fmt::format("  {}  [{}] {:>6} of {:<6} loss {:<7.4f} {:>8.0f} tokens/s  {}  {}{}\n", id,
                        Bar(done, 12), now->step, now->steps, now->loss, now->tokens_per_second,
                        attempt->host, state.planned.Describe(id),
                        attempt->attempt > 1 ? fmt::format(" (attempt {})", attempt->attempt) : "");
  }
  const std::map<std::string, int> counts = state.Counts();
  for (const char* bad : {"failed", "skipped", "diverged", "early-stopped"}) {
    if (counts.at(bad) > 0)
      page += fmt::format("{} {}; see: headsweep status {}\n", counts.at(bad), bad, state.name);
  }
  return page;
}

int RunWatch(const Arguments& arguments) {
  const FileSystem& files = FileSystem::Real();
  const Workspace workspace(arguments.Text("workspace"));
  const std::string name = workspace.ChooseSweep(files, arguments.Positional(0));
  const double interval = arguments.options["interval"].as<double>();
  if (!(interval >= 0.2)) throw ConfigError("--interval is at least 0.2 seconds");
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  std::string last;
  const SystemClock clock;
  std::vector<SubmissionView> submissions;
  double next_question = 0;
  for (;;) {
    if (clock.Monotonic() >= next_question) {
      submissions = LookAtSubmissions(Slurm(), files, workspace, name);
      next_question = clock.Monotonic() + std::max(interval, kSlurmSeconds);
    }
    const SweepState state = ReadSweepState(workspace, files, name, arguments.Has("json"));
    const std::string page = arguments.Has("json") ? DumpJson(StatusJson(state, workspace, submissions)) + "\n"
                                                   : Page(state, ReadLive(files, state), submissions);
    if (terminal && !arguments.Has("json")) {
      std::cout << "\033[H\033[J" << page << std::flush;  // home, clear to the end
    } else if (page != last) {
      std::cout << page << std::flush;
    }
    last = page;
    const bool may_go_on = AnyAlive(submissions) || AnyUnknown(submissions);
    if (!state.launcher_may_live && may_go_on && state.Word() == "done") return kExitDone;
    if (!state.launcher_may_live && !may_go_on) {
      const std::string word = state.Word();
      return word == "done" ? kExitDone : (word == "failed" ? kExitFailed : kExitResumable);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(interval));
  }
}

}  // namespace

SubCommand MakeWatchCommand() {
  SubCommand command{
      .name = "watch",
      .arguments = "[NAME]",
      .most = 1,
      .summary = "shows a running sweep live: progress, running trials, speed, time left; ends with it",
      .details =
          "Looks at the disk, and now and then at squeue, so it works on any machine that sees the workspace; a "
          "submitted sweep is\nwatched from the queue to its end. Where the output is "
          "no "
          "terminal it prints\na page whenever something has changed. Exit code: 0 all done; 1 some trials "
          "failed; 75 "
          "stopped.\n\nexamples\n  headsweep watch\n  headsweep watch my-first-sweep --interval 5\n",
      .run = RunWatch};
  AddWorkspaceOption(command);
  command.options.add_options()(
      "interval", boost::program_options::value<double>()->default_value(1)->value_name("SECONDS"),
      "between two looks")("json", boost::program_options::bool_switch(),
                           "for programs: what `status --json` prints, a line whenever something has changed");
  return command;
}

}  // namespace headsweep
