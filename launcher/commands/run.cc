#include <boost/program_options/value_semantic.hpp>

#include "launcher/commands/command.h"
#include "launcher/commands/run_options.h"
#include "launcher/session.h"

namespace headsweep {

SubCommand MakeRunCommand() {
  SubCommand command{.name = "run",
                  .arguments = "SWEEP.toml",
                  .least = 1,
                  .most = 1,
                  .summary = "runs what is missing of a sweep, then makes results.h5 and report.html",
                  .details =
                      "Trials that are finished are not run again, whichever sweep of the workspace they "
                      "were run for; so change the\n"
                      "file (more head counts, seeds, pruning orders) and run it again. Ctrl-C checkpoints "
                      "and leaves with exit code 75,\n"
                      "a second one kills; SIGTERM and SIGUSR2 are as one Ctrl-C. Kill it as you like: run "
                      "or resume goes on.\n\n"
                      "examples\n"
                      "  headsweep run heads.toml\n"
                      "  headsweep run heads.toml --workspace /scratch/runs --threads 2\n"
                      "  mpirun -n 4 --map-by node headsweep run heads.toml     # four nodes that share the "
                      "workspace's file system\n"
                      "  headsweep run heads.toml --join                        # any number of these, on any "
                      "machines that see the\n"
                      "                                                         # workspace (a job array, say): "
                      "they drain one sweep\n"
                      "  srun --mpi=pmix --no-kill --kill-on-bad-exit=0 headsweep run heads.toml\n",
                  .run = [](const Arguments& arguments) {
                    const std::string path = AbsolutePath(arguments.Positional(0));
                    const std::string original = arguments.Text("original");
                    return RunSession(SessionOptionsFrom(arguments),
                                      [&](const Workspace&, const FileSystem& files) {
                                        return original.empty() ? Sweep::Load(path)
                                                                : Sweep::Parse(files.ReadFile(path), original);
                                      });
                  }};
  AddRunOptions(command);
  command.options.add_options()(
      "original", boost::program_options::value<std::string>()->default_value("")->value_name("PATH"),
      "the file that SWEEP.toml is a copy of: relative paths in it are seen from there");
  return command;
}

}  // namespace headsweep
