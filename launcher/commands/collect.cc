#include <boost/program_options/value_semantic.hpp>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "launcher/collecting.h"
#include "launcher/commands/command.h"

namespace headsweep {
namespace {

int RunCollect(const Arguments& arguments) {
  const FileSystem& files = FileSystem::Real();
  const Workspace workspace(arguments.Text("workspace"));
  const std::string name = workspace.ChooseSweep(files, arguments.Positional(0));
  const SweepState state = ReadSweepState(workspace, files, name);
  const CollectOutcome outcome = Collect(MakeCollectSource(state, workspace, files), workspace.Results(name));
  for (const std::string& problem : outcome.problems) std::cerr << "left out: " << problem << "\n";
  if (arguments.Has("json")) {
    std::cout << DumpJson(nlohmann::json{{"sweep", name},
                                         {"results", workspace.Results(name)},
                                         {"stages", outcome.stages},
                                         {"stages_read", outcome.stages_read},
                                         {"problems", outcome.problems}})
              << "\n";
  } else if (!arguments.Has("quiet")) {
    std::cout << fmt::format("{} of {} stages in {}\n", outcome.stages_read, outcome.stages,
                             workspace.Results(name));
  }
  return outcome.problems.empty() ? kExitDone : kExitFailed;
}

}  // namespace

SubCommand MakeCollectCommand() {
  SubCommand command{.name = "collect",
                  .arguments = "[NAME]",
                  .most = 1,
                  .summary = "rebuilds results.h5 from the trials of a sweep, also while it runs",
                  .details =
                      "results.h5 is derived: it may be deleted at any time. Stages without a result are "
                      "missing values; a\n"
                      "damaged result.h5 is named, left out, and makes the exit code 1.\n\n"
                      "examples\n"
                      "  headsweep collect\n"
                      "  headsweep collect my-first-sweep --workspace /scratch/runs\n",
                  .run = RunCollect};
  AddWorkspaceOption(command);
  command.options.add_options()("quiet,q", boost::program_options::bool_switch(), "only problems")(
      "json", boost::program_options::bool_switch(), "for programs: {sweep, results, stages, stages_read, problems}");
  return command;
}

}  // namespace headsweep
