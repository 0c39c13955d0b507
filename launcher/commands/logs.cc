#include <boost/program_options/value_semantic.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "launcher/commands/command.h"
#include "launcher/submission_state.h"
#include "launcher/sweep_state.h"
#include "launcher/workspace.h"

namespace headsweep {
namespace {

namespace po = boost::program_options;

constexpr std::chrono::milliseconds kFollowInterval(500);
constexpr double kSlurmSeconds = 10;  // between two questions to squeue

// The last `lines` lines of text; all for 0.
std::string Tail(const std::string& text, int lines) {
  if (lines <= 0) return text;
  std::size_t start = text.size();
  if (start > 0 && text.back() == '\n') --start;
  for (int i = 0; i < lines && start != std::string::npos; ++i)
    start = start == 0 ? std::string::npos : text.rfind('\n', start - 1);
  return start == std::string::npos ? text : text.substr(start + 1);
}

// According to the journal of any sweep that has it.
bool IsRunning(const Workspace& workspace, const FileSystem& files, const std::string& stage, int attempt) {
  for (const std::string& sweep : workspace.Sweeps(files)) {
    const SweepState state = ReadSweepState(workspace, files, sweep);
    const AttemptHistory* latest = state.LatestAttempt(stage);
    if (latest != nullptr && latest->attempt == attempt && state.IsRunning(stage)) return true;
  }
  return false;
}

// Slurm's output of the latest submission: the newest of its files (an array has one a task); "" = none yet.
std::string LatestOutput(const FileSystem& files, const Submission& submission) {
  std::string latest;
  std::filesystem::file_time_type newest{};
  for (const std::string& name : files.List(submission.directory)) {
    if (!name.starts_with("slurm-")) continue;
    const std::string path = JoinPath(submission.directory, name);
    std::error_code error;
    const auto written = std::filesystem::last_write_time(path, error);
    if (!error && (latest.empty() || written > newest)) latest = path, newest = written;
  }
  return latest;
}

// The output of a submitted sweep's job.
int RunJobLogs(const Arguments& arguments, const Workspace& workspace, const std::string& sweep) {
  const FileSystem& files = FileSystem::Real();
  const Slurm slurm;
  const SystemClock clock;
  std::size_t printed = 0;
  std::string path;
  double next_question = 0;
  bool may_go_on = true;
  for (;;) {
    if (clock.Monotonic() >= next_question) {
      const std::vector<SubmissionView> views = LookAtSubmissions(slurm, files, workspace, sweep);
      may_go_on = AnyAlive(views) || AnyUnknown(views);
      next_question = clock.Monotonic() + kSlurmSeconds;
      const std::string latest = LatestOutput(files, views.back().submission);
      if (latest.empty()) {
        for (const std::string& line : SubmissionLines(views, std::nullopt)) std::cerr << "== " << line << "\n";
      } else if (latest != path) {
        path = latest;
        std::cerr << "== " << path << "\n";
        const std::string text = files.ReadFile(path);
        std::cout << Tail(text, arguments.Number("lines")) << std::flush;
        printed = text.size();
      }
    }
    if (!path.empty()) {
      const std::string text = files.ReadFile(path);
      if (text.size() > printed) std::cout << text.substr(printed) << std::flush;
      printed = text.size();
    }
    if (!arguments.Has("follow") || !may_go_on) return kExitDone;
    std::this_thread::sleep_for(kFollowInterval);
  }
}

int RunLogs(const Arguments& arguments) {
  const FileSystem& files = FileSystem::Real();
  const Workspace workspace(arguments.Text("workspace"));
  const std::vector<std::string> sweeps = workspace.Sweeps(files);
  if (arguments.positional.size() == 1 &&
      std::find(sweeps.begin(), sweeps.end(), arguments.Positional(0)) != sweeps.end()) {
    if (ReadSubmissions(files, workspace, arguments.Positional(0)).empty())
      throw ConfigError(fmt::format("{} was never submitted, so there is no job's output; name one of its trials too",
                                    arguments.Positional(0)));
    return RunJobLogs(arguments, workspace, arguments.Positional(0));
  }
  const bool named = arguments.positional.size() == 2;
  if (named) workspace.ChooseSweep(files, arguments.Positional(0));
  const std::string stage = workspace.ChooseTrial(files, arguments.Positional(named ? 1 : 0));
  const std::vector<int> attempts = workspace.Attempts(files, stage);
  if (attempts.empty()) throw ConfigError(fmt::format("trial {} was never started", stage));
  const int wanted = arguments.Number("attempt");
  const int attempt = wanted > 0 ? wanted : attempts.back();
  const std::string path = workspace.AttemptLog(stage, attempt);
  if (!files.Exists(path)) throw ConfigError(fmt::format("there is no {}", path));
  std::cerr << "== " << path << " (attempt " << attempt << " of " << attempts.size() << ")\n";
  std::string text = files.ReadFile(path);
  std::cout << Tail(text, arguments.Number("lines")) << std::flush;
  while (arguments.Has("follow")) {
    const bool runs =
        IsRunning(workspace, files, stage, attempt);  // first, so that what it writes last is still read
    const std::string now = files.ReadFile(path);
    if (now.size() > text.size()) std::cout << now.substr(text.size()) << std::flush;
    text = now;
    if (!runs) break;
    std::this_thread::sleep_for(kFollowInterval);
  }
  return kExitDone;
}

}  // namespace

SubCommand MakeLogsCommand() {
  SubCommand command{.name = "logs",
                     .arguments = "[NAME] STAGE | NAME",
                     .least = 1,
                     .most = 2,
                     .summary = "prints the log of a trial (its id, or the first digits), or of a submitted sweep's job",
                     .details =
                         "examples\n"
                         "  headsweep logs 3fa0\n"
                         "  headsweep logs 3fa0 -f\n"
                         "  headsweep logs my-first-sweep -f           # what its Slurm job prints\n"
                         "  headsweep logs my-first-sweep 3fa0 -n 0 --attempt 1\n",
                     .run = RunLogs};
  AddWorkspaceOption(command);
  command.options.add_options()("lines,n", po::value<int>()->default_value(40)->value_name("LINES"),
                                "the last LINES; 0: all")(
      "attempt", po::value<int>()->default_value(0)->value_name("N"), "of this attempt; 0: the latest")(
      "follow,f", po::bool_switch(), "go on printing what is written, until the trial ends");
  return command;
}

}  // namespace headsweep
