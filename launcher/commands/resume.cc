#include <boost/program_options/value_semantic.hpp>

#include <cstdio>

#include "launcher/commands/command.h"
#include "launcher/commands/run_options.h"
#include "launcher/planned_sweep.h"
#include "launcher/session.h"

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
                      "sweep only. Running trials go on from their last checkpoint and end with the same "
                      "numbers, bit for bit.\n\n"
                      "examples\n"
                      "  headsweep resume\n"
                      "  headsweep resume my-first-sweep --workspace /scratch/runs\n",
                  .run = [](const Arguments& arguments) {
                    return RunSession(SessionOptionsFrom(arguments),
                                      [&](const Workspace& workspace, const FileSystem& files) {
                                        return LoadToResume(arguments.Positional(0), workspace, files);
                                      });
                  }};
  AddRunOptions(command);
  command.options.add_options()("finish-early-stopped", boost::program_options::bool_switch(),
                                "finish the trials, too, that the sweep's rule for early stopping gave up");
  return command;
}

}  // namespace headsweep
