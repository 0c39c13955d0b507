#include "launcher/commands/command.h"
#include "launcher/result_check.h"

namespace headsweep {

SubCommand MakeReadResultsCommand() {
  SubCommand command{
      .name = "read-results",
      .arguments = "STAGE…",
      .least = 1,
      .most = 100000,
      .summary = "reads finished results and tells the launcher about them (for headsweep itself)",
      .run = [](const Arguments& arguments) {
        return ReadResultsInChild(Workspace(arguments.Text("workspace")), arguments.positional);
      }};
  AddWorkspaceOption(command);
  command.hidden = true;
  return command;
}

}  // namespace headsweep
