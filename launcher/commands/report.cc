#include <boost/program_options/value_semantic.hpp>

#include <iostream>

#include "cluster/base/errors.h"
#include "launcher/commands/command.h"
#include "launcher/workspace.h"
#include "results/collect.h"

namespace headsweep {
namespace {

int RunReport(const Arguments& arguments) {
  const FileSystem& files = FileSystem::Real();
  const Workspace workspace(arguments.Text("workspace"));
  const std::string name = workspace.ChooseSweep(files, arguments.Positional(0));
  const std::string results = workspace.Results(name);
  if (!files.Exists(results))
    throw ConfigError(fmt::format("there is no {} yet; make it with `headsweep collect {}`", results, name));
  if (arguments.Has("summary")) std::cout << FormatSummary(results) << std::flush;
  WriteReport(results, workspace.Report(name));
  if (!arguments.Has("quiet")) std::cout << workspace.Report(name) << "\n";
  return kExitDone;
}

}  // namespace

SubCommand MakeReportCommand() {
  SubCommand command{
      .name = "report",
      .arguments = "[NAME]",
      .most = 1,
      .summary = "rebuilds report.html from results.h5",
      .details =
          "One page that needs nothing else: it can be sent by mail and opened anywhere.\n\n"
          "examples\n"
          "  headsweep collect my-first-sweep && headsweep report my-first-sweep\n"
          "  headsweep report my-first-sweep --summary       # the tables of the end of a run, too\n",
      .run = RunReport};
  AddWorkspaceOption(command);
  command.options.add_options()("summary", boost::program_options::bool_switch(), "also print the summary")(
      "quiet,q", boost::program_options::bool_switch(), "do not print the page's path");
  return command;
}

}  // namespace headsweep
