// gc: what may be deleted of a workspace, and, when asked to, deleting it.
#include <boost/program_options/value_semantic.hpp>
#include <nlohmann/json.hpp>

#include <iostream>
#include <list>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "launcher/commands/command.h"
#include "launcher/garbage.h"
#include "launcher/joining.h"
#include "launcher/messages.h"
#include "launcher/sweep_lock.h"
#include "launcher/timing.h"

namespace headsweep {
namespace {

std::string FormatBytes(std::int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, units[unit]);
}

std::int64_t Sum(const std::vector<Garbage>& garbage) {
  std::int64_t bytes = 0;
  for (const Garbage& item : garbage) bytes += item.bytes;
  return bytes;
}

int RunGc(const Arguments& arguments) {
  FileSystem& files = FileSystem::Real();
  const Workspace workspace(arguments.Text("workspace"));
  if (!files.Exists(workspace.root())) throw ConfigError(fmt::format("there is no workspace {}", workspace.root()));
  const bool deletes = arguments.Has("yes");
  std::list<SweepLock> locks;  // nobody starts a sweep while its leftovers go
  for (const std::string& sweep : deletes ? workspace.Sweeps(files) : std::vector<std::string>()) {
    locks.emplace_back(workspace.Lock(sweep), arguments.Has("take-over"));
    RefuseBesideOthers(files, workspace, sweep,
                       {.lease_seconds = Timing::FromEnvironment().lease,
                        .take_over = arguments.Has("take-over"),
                        .say = [](const std::string& why) { std::cerr << why << "\n"; }});
  }
  std::vector<Garbage> garbage = FindGarbage(workspace, files);
  if (deletes) garbage = DeleteGarbage(workspace, files, SystemClock(), garbage);
  if (arguments.Has("json")) {
    nlohmann::json json = {{"workspace", workspace.root()},
                           {"deleted", deletes},
                           {"bytes", Sum(garbage)},
                           {"items", nlohmann::json::array()}};
    for (const Garbage& item : garbage)
      json["items"].push_back(
          {{"path", item.path}, {"bytes", item.bytes}, {"why", item.why}, {"trial", item.trial}});
    std::cout << DumpJson(json) << "\n";
    return kExitDone;
  }
  for (const Garbage& item : garbage)
    std::cout << fmt::format("{:>10}  {}: {}\n", FormatBytes(item.bytes),
                             item.path.substr(workspace.root().size() + 1), item.why);
  std::cout << fmt::format("{} in {} places {}\n", FormatBytes(Sum(garbage)), garbage.size(),
                           deletes            ? "deleted; gc.jsonl says which"
                           : garbage.empty()  ? "can be deleted"
                                              : "can be deleted with: headsweep gc --yes");
  return kExitDone;
}

}  // namespace

SubCommand MakeGcCommand() {
  SubCommand command{
      .name = "gc",
      .summary = "lists what of a workspace is not needed any more; deletes it with --yes",
      .details =
          "Never a result, a log, a trial's newest checkpoint, or what a sweep of the workspace still has. With --yes no\n"
          "launcher may run there. A trial that was started by hand, and is in no sweep, counts as not needed.\n\n"
          "--json prints {workspace, deleted, bytes, items: [{path, bytes, why, trial}]}.\n\n"
          "examples\n  headsweep gc\n  headsweep gc --yes --workspace /scratch/runs\n",
      .run = RunGc};
  AddWorkspaceOption(command);
  command.options.add_options()("yes", boost::program_options::bool_switch(), "delete it")(
      "json", boost::program_options::bool_switch(), "for programs")(
      "take-over", boost::program_options::bool_switch(),
      "also when a sweep is locked by a launcher on another machine; only if you know that it is dead");
  return command;
}

}  // namespace headsweep
