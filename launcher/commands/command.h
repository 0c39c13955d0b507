// The sub-commands of `headsweep`: a table. To add one: a file here that defines a function returning a
// SubCommand, a line in AllCommands (command.cc), and a line in CMakeLists.txt.
#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

#include <functional>
#include <string>
#include <vector>

namespace headsweep {

struct Arguments {
  std::vector<std::string> positional;
  boost::program_options::variables_map options;

  std::string Text(const char* name) const { return options[name].as<std::string>(); }
  int Number(const char* name) const { return options[name].as<int>(); }
  bool Has(const char* name) const { return options.count(name) > 0 && options[name].as<bool>(); }
  std::string Positional(std::size_t i) const { return i < positional.size() ? positional[i] : ""; }
};

struct SubCommand {
  std::string name;
  std::string arguments = "";       // "SWEEP.toml", "[NAME]": shown in the usage line
  std::size_t least = 0, most = 0;  // how many of them
  std::string summary;              // one line of `headsweep help`
  std::string details = "";         // the rest of its --help, with examples
  boost::program_options::options_description options{"options", 110, 60};
  std::function<int(const Arguments&)> run;
  bool hidden = false;  // for headsweep itself
};

SubCommand MakeRunCommand();
SubCommand MakeResumeCommand();
SubCommand MakeStatusCommand();
SubCommand MakeLogsCommand();
SubCommand MakeExpandCommand();
SubCommand MakeCollectCommand();
SubCommand MakeReportCommand();
SubCommand MakeWatchCommand();
SubCommand MakeExplainCommand();
SubCommand MakeCancelCommand();
SubCommand MakePauseCommand();
SubCommand MakeContinueCommand();
SubCommand MakeRetryCommand();
SubCommand MakeGcCommand();
SubCommand MakeDataCommand();
SubCommand MakeDoctorCommand();
SubCommand MakePlanCommand();
SubCommand MakeReadResultsCommand();
SubCommand MakeSubmitCommand();
SubCommand MakeBatchCommand();

std::vector<SubCommand> AllCommands();

// Options that several commands share.
void AddWorkspaceOption(SubCommand& command);
void AddRunOptions(SubCommand& command);

// Parses and runs. Throws ConfigError for wrong usage; `headsweep COMMAND --help` and no arguments print
// help.
int RunCommandLine(const std::vector<std::string>& arguments);

}  // namespace headsweep
