#include "launcher/commands/command.h"

#include <boost/program_options/cmdline.hpp>
#include <boost/program_options/errors.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/value_semantic.hpp>

#include <algorithm>
#include <iostream>
#include <sstream>

#include "cluster/base/errors.h"
#include "launcher/nearest.h"

namespace headsweep {
namespace {

namespace po = boost::program_options;

std::string Usage(const SubCommand& command) {
  std::string usage = "headsweep " + command.name;
  if (!command.arguments.empty()) usage += " " + command.arguments;
  return usage + " [options]";
}

void PrintHelp(const SubCommand& command) {
  std::cout << "usage: " << Usage(command) << "\n\n"
            << command.summary << "\n\n"
            << command.details << "\n"
            << command.options;
}

void PrintOverview() {
  std::cout << "headsweep: experiments on attention heads, from one sweep file to one report\n\n"
               "usage: headsweep COMMAND [arguments] [options]\n\ncommands\n";
  for (const SubCommand& command : AllCommands())
    if (!command.hidden) std::cout << fmt::format("  {:<9} {}\n", command.name, command.summary);
  std::cout
      << "\n`headsweep COMMAND --help` says more, with examples. `headsweep --version` prints the version.\n"
         "Exit codes: 0 all done; 1 some trials failed, or an error; 2 wrong usage or configuration; 75 "
         "stopped early,\n"
         "everything saved: run it again.\n\n"
         "Environment: HEADSWEEP_LOG=debug|info|warning|error, HEADSWEEP_TRAINER=PATH; seconds to wait:\n"
         "HEADSWEEP_STOP_GRACE (120) for a checkpoint, HEADSWEEP_KILL_GRACE (5) from SIGTERM to SIGKILL,\n"
         "HEADSWEEP_HANG_FLOOR (120) without progress, HEADSWEEP_NODE_TIMEOUT (45) without a word of a "
         "node,\nHEADSWEEP_LEASE (60) without a beat of a launcher that has joined.\n";
}

std::string Suggestion(const std::string& typed, const std::vector<std::string>& names,
                       const std::string& prefix) {
  const std::string nearest = NearestName(typed, names);
  return nearest.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, nearest);
}

[[noreturn]] void Refuse(const SubCommand& command, const std::string& complaint) {
  throw ConfigError(fmt::format("{}\nusage: {}", complaint, Usage(command)));
}

std::vector<std::string> OptionNames(const po::options_description& options) {
  std::vector<std::string> names;
  for (const auto& option : options.options()) names.push_back(option->long_name());
  return names;
}

Arguments Parse(const SubCommand& command, const std::vector<std::string>& words) {
  po::options_description all;
  all.add(command.options);
  all.add_options()(" positional", po::value<std::vector<std::string>>());  // a name that nobody can type
  po::positional_options_description positional;
  positional.add(" positional", -1);
  Arguments arguments;
  try {
    using namespace po::command_line_style;
    po::store(po::command_line_parser(words)
                  .options(all)
                  .positional(positional)
                  .style(unix_style & ~allow_guessing)
                  .run(),
              arguments.options);
    po::notify(arguments.options);
  } catch (const po::unknown_option& error) {
    std::string typed = error.get_option_name();
    typed.erase(0, typed.find_first_not_of('-'));
    Refuse(command, fmt::format("{}: no option --{}{}", command.name, typed,
                                Suggestion(typed, OptionNames(command.options), "--")));
  } catch (const po::error& error) {
    Refuse(command, fmt::format("{}: {}", command.name, error.what()));
  }
  if (arguments.options.count(" positional") > 0)
    arguments.positional = arguments.options[" positional"].as<std::vector<std::string>>();
  if (arguments.Has("help")) return arguments;
  if (arguments.positional.size() < command.least) Refuse(command, command.name + ": something is missing");
  if (arguments.positional.size() > command.most)
    Refuse(command,
           fmt::format("{}: \"{}\" is one too many", command.name, arguments.positional[command.most]));
  return arguments;
}

}  // namespace

std::vector<SubCommand> AllCommands() {
  std::vector<SubCommand> commands = {MakeRunCommand(),    MakeSubmitCommand(),     MakeResumeCommand(),
                                      MakeStatusCommand(), MakeBatchCommand(),
                                      MakeWatchCommand(),  MakeExplainCommand(),    MakeLogsCommand(),
                                      MakeCancelCommand(), MakePauseCommand(),      MakeContinueCommand(),
                                      MakeRetryCommand(),  MakeExpandCommand(),     MakeCollectCommand(),
                                      MakeReportCommand(), MakeGcCommand(), MakeDataCommand(),       MakeDoctorCommand(),
                                      MakePlanCommand(),   MakeReadResultsCommand()};
  for (SubCommand& command : commands)
    command.options.add_options()("help,h", po::bool_switch(), "this text");
  return commands;
}

void AddWorkspaceOption(SubCommand& command) {
  command.options.add_options()(
      "workspace,w", po::value<std::string>()->default_value("./headsweep-runs")->value_name("DIR"),
      "where sweeps, trials and data are kept");
}

void AddRunOptions(SubCommand& command) {
  AddWorkspaceOption(command);
  command.options.add_options()("slots", po::value<int>()->default_value(0)->value_name("N"),
                                "trials at once on each node, as far as memory goes; 0: usable cores / threads, or GPUs")(
      "threads", po::value<int>()->default_value(0)->value_name("N"),
      "CPU threads of one trial; 0: run.threads of the sweep")(
      "no-report", po::bool_switch(), "do not make results.h5 and report.html at the end")(
      "join", po::bool_switch(),
      "share the sweep with other launchers that say --join, at once or later: each takes what is left")(
      "time-limit", po::value<std::string>()->default_value("")->value_name("TIME"),
      "of the allocation: minutes, HH:MM:SS or D-HH:MM:SS; ahead of its end everything is checkpointed")(
      "take-over", po::bool_switch(),
      "also when the sweep is locked by a launcher on another machine; only if you know that it is dead")(
      "finish-early-stopped", po::bool_switch(),
      "finish the trials, too, that the sweep's rule for early stopping has given up by now")(
      "quiet,q", po::bool_switch(), "only failures and the end");
}

int RunCommandLine(const std::vector<std::string>& words) {
  const std::vector<SubCommand> commands = AllCommands();
  const auto find = [&](const std::string& name) {
    return std::find_if(commands.begin(), commands.end(),
                        [&](const SubCommand& command) { return command.name == name; });
  };
  if (words.empty()) {
    PrintOverview();
    return kExitUsage;
  }
  std::string name = words.front();
  const bool wants_help = name == "help" || name == "--help" || name == "-h";
  if (wants_help && words.size() > 1) name = words[1];
  if (wants_help && words.size() == 1) {
    PrintOverview();
    return kExitDone;
  }
  if (name == "--version") {
    std::cout << "headsweep " << HEADSWEEP_VERSION << "\n";
    return kExitDone;
  }
  const auto command = find(name);
  if (command == commands.end()) {
    std::vector<std::string> names;
    for (const SubCommand& known : commands)
      if (!known.hidden) names.push_back(known.name);
    throw ConfigError(fmt::format("no command \"{}\"{}\n`headsweep help` lists the commands", name,
                                  Suggestion(name, names, "headsweep ")));
  }
  const Arguments arguments = wants_help ? Arguments{} : Parse(*command, {words.begin() + 1, words.end()});
  if (wants_help || arguments.Has("help")) {
    PrintHelp(*command);
    return kExitDone;
  }
  return command->run(arguments);
}

}  // namespace headsweep
