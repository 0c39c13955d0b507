#include <boost/program_options/value_semantic.hpp>

#include <cstdio>

#include "cluster/base/errors.h"
#include "cluster/slurm/this_job.h"
#include "launcher/commands/command.h"
#include "launcher/commands/run_options.h"
#include "launcher/journal.h"
#include "launcher/mpi_link.h"
#include "launcher/planned_sweep.h"
#include "launcher/session.h"
#include "launcher/submission.h"

namespace headsweep {
namespace {

// NAME, or a sweep file: then the sweep of that name, as the workspace keeps it.
Sweep LoadToResume(const std::string& what, const Workspace& workspace, const FileSystem& files) {
  if (!what.ends_with(".toml")) return LoadKeptSweep(workspace, files, workspace.ChooseSweep(files, what));
  const Sweep given = Sweep::Load(AbsolutePath(what));
  const std::string name = workspace.ChooseSweep(files, given.name());
  if (files.ReadFile(workspace.SweepToml(name)) != given.text())
    std::fprintf(
        stderr,
        "%s differs from the sweep that is being resumed; `headsweep run %s` would take the changes\n",
        what.c_str(), what.c_str());
  return LoadKeptSweep(workspace, files, name);
}

// Whether what ran last was a job (or it never ran): then it goes on as one.
bool BelongsToSlurm(const Workspace& workspace, const FileSystem& files, const std::string& sweep) {
  std::string job = "?";
  for (const JournalEvent& event : ReadJournal(files, workspace.Journal(sweep)).events) {
    if (event.type != journal::kSweepStarted) continue;
    const auto field = event.fields.find("job");
    job = field != event.fields.end() ? field->second : "";
  }
  return !job.empty() && !ReadSubmissions(files, workspace, sweep).empty();
}

constexpr const char* kFinishEarlyStopped = "finish-early-stopped";

// As it was submitted the last time, with the same resources.
int SubmitAgain(const Workspace& workspace, const std::string& sweep, bool finish_early_stopped) {
  FileSystem& files = FileSystem::Real();
  const Submission last = ReadSubmissions(files, workspace, sweep).back();
  SubmitRequest request{last.record.request, last.record.options};
  // Asked for each time anew: it means what has been given up by now.
  std::erase(request.options, std::string("--") + kFinishEarlyStopped);
  if (finish_early_stopped) request.options.push_back(std::string("--") + kFinishEarlyStopped);
  const Slurm slurm;
  CheckMaySubmit(files, workspace, sweep, slurm, request);
  const Sweep again =
      Sweep::Parse(files.ReadFile(JoinPath(last.directory, job_file::kSweep)), last.record.file);
  const Submission submission = Submit(files, workspace, again, slurm, request);
  std::printf("%s: submitted again as %s\n", sweep.c_str(), Describe(submission).c_str());
  return kExitDone;
}

int RunResume(const Arguments& arguments) {
  const Workspace chosen(arguments.Text("workspace"));
  const std::string& what = arguments.Positional(0);
  // A job does not submit, nor does every rank under mpirun.
  if (!arguments.Has("here") && ThisJob().empty() && !DetectMpi().launched && !what.ends_with(".toml")) {
    const FileSystem& files = FileSystem::Real();
    const std::string sweep = chosen.ChooseSweep(files, what);
    if (BelongsToSlurm(chosen, files, sweep)) return SubmitAgain(chosen, sweep, arguments.Has(kFinishEarlyStopped));
  }
  return RunSession(SessionOptionsFrom(arguments), [&](const Workspace& workspace, const FileSystem& files) {
    return LoadToResume(what, workspace, files);
  });
}

}  // namespace

SubCommand MakeResumeCommand() {
  SubCommand command{.name = "resume",
                  .arguments = "[NAME | SWEEP.toml]",
                  .least = 0,
                  .most = 1,
                  .summary = "goes on with a stopped or killed sweep, and tries again what failed",
                  .details =
                      "Takes the sweep as it was last run, from the workspace's own copy. NAME may be left "
                      "out if the workspace has one\n"
                      "sweep only. A sweep that ran as a Slurm job is submitted again, as it was. Running trials go on "
                      "from their last\ncheckpoint and end with the same numbers, bit for bit.\n\n"
                      "examples\n"
                      "  headsweep resume\n"
                      "  headsweep resume my-first-sweep --workspace /scratch/runs\n",
                  .run = RunResume};
  AddRunOptions(command);
  command.options.add_options()("here", boost::program_options::bool_switch(),
                                "on this machine, also when it ran as a Slurm job");
  return command;
}

}  // namespace headsweep
