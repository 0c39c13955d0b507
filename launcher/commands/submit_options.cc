#include "launcher/commands/submit_options.h"

#include <boost/program_options/value_semantic.hpp>

#include <cstdlib>
#include <functional>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "sweeps/document.h"
#include "sweeps/settings.h"

namespace headsweep {
namespace {

namespace po = boost::program_options;

// One key of cluster.toml: exactly one of the members is set.
struct ClusterKey {
  const char* name;
  std::string JobRequest::* text = nullptr;
  int JobRequest::* number = nullptr;
  std::vector<std::string> JobRequest::* list = nullptr;
};
const ClusterKey kClusterKeys[] = {
    {.name = "nodes", .text = &JobRequest::nodes},
    {.name = "gpus_per_node", .number = &JobRequest::gpus_per_node},
    {.name = "cpus_per_node", .number = &JobRequest::cpus_per_node},
    {.name = "time", .text = &JobRequest::time},
    {.name = "partition", .text = &JobRequest::partition},
    {.name = "account", .text = &JobRequest::account},
    {.name = "qos", .text = &JobRequest::qos},
    {.name = "constraint", .text = &JobRequest::constraint},
    {.name = "mpi", .text = &JobRequest::mpi},
    {.name = "setup", .list = &JobRequest::setup},
    {.name = "sbatch", .list = &JobRequest::sbatch},
    {.name = "lead", .number = &JobRequest::lead_seconds},
    {.name = "max_requeues", .number = &JobRequest::most_requeues},
};

void Read(const ClusterKey& key, const RawValue& value, JobRequest& request, Complaints& complaints) {
  const auto* integer = std::get_if<std::int64_t>(&value.data);
  const auto complain = [&](const char* wanted) {
    complaints.Add(value.at, fmt::format("{} must be {}, not {}", key.name, wanted, TypeName(value)));
  };
  if (key.text != nullptr) {
    const auto* text = std::get_if<std::string>(&value.data);
    if (text != nullptr) {
      request.*key.text = *text;
    } else if (integer != nullptr) {  // nodes = 2, time = 30
      request.*key.text = std::to_string(*integer);
    } else {
      complain("text");
    }
  } else if (key.number != nullptr) {
    if (integer == nullptr) return complain("a whole number");
    if (*integer < 0 || *integer > 1'000'000)
      return complaints.Add(value.at, fmt::format("{} = {}: give a number from 0 to 1000000", key.name, *integer));
    request.*key.number = static_cast<int>(*integer);
  } else {
    const auto* array = std::get_if<RawArray>(&value.data);
    if (array == nullptr) return complain("a list of texts");
    std::vector<std::string> words;
    for (const RawValue& element : *array) {
      const auto* text = std::get_if<std::string>(&element.data);
      if (text == nullptr) return complain("a list of texts");
      words.push_back(*text);
    }
    request.*key.list = std::move(words);
  }
}

void ReadTable(const RawTable& table, bool top, JobRequest& request, Complaints& complaints) {
  for (const RawEntry& entry : table) {
    if (top && entry.key == "profile") continue;
    const ClusterKey* known = nullptr;
    std::vector<std::string> names;
    for (const ClusterKey& key : kClusterKeys) {
      names.push_back(key.name);
      if (entry.key == key.name) known = &key;
    }
    if (known != nullptr) {
      Read(*known, entry.value, request, complaints);
    } else {
      ComplainUnknownKey(entry.at, entry.key, names, complaints);
    }
  }
}

std::string ReadIfThere(const std::string& path) {
  const FileSystem& files = FileSystem::Real();
  return files.Exists(path) ? files.ReadFile(path) : "";
}

}  // namespace

std::string ClusterConfigPath() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config != '\0') return JoinPath(config, "headsweep/cluster.toml");
  const char* home = std::getenv("HOME");
  return JoinPath(home != nullptr ? home : "/", ".config/headsweep/cluster.toml");
}

JobRequest ReadClusterConfig(const std::string& text, const std::string& path, const std::string& profile) {
  Complaints complaints(path);
  JobRequest request;
  const RawTable document = ParseDocument(text, complaints);
  ReadTable(document, /*top=*/true, request, complaints);
  std::string names;
  bool found = profile.empty();
  for (const RawEntry& entry : document) {
    if (entry.key != "profile") continue;
    const auto* profiles = std::get_if<RawTable>(&entry.value.data);
    if (profiles == nullptr) {
      complaints.Add(entry.at, "profiles are tables: [profile.NAME]");
      continue;
    }
    for (const RawEntry& one : *profiles) {
      names += (names.empty() ? "" : ", ") + one.key;
      const auto* table = std::get_if<RawTable>(&one.value.data);
      // The others are checked too: a mistake should not wait for the day when they are used.
      JobRequest unused;
      if (table == nullptr) {
        complaints.Add(one.at, fmt::format("profile {} must be a table: [profile.{}]", one.key, one.key));
      } else {
        ReadTable(*table, /*top=*/false, one.key == profile ? request : unused, complaints);
      }
      found |= one.key == profile;
    }
  }
  if (!found)
    complaints.Add({}, fmt::format("no profile \"{}\"; there is: {}", profile, names.empty() ? "none" : names));
  complaints.ThrowIfAny();
  return request;
}

JobRequest SiteDefaults(const std::string& profile) {
  const std::string path = ClusterConfigPath();
  return ReadClusterConfig(ReadIfThere(path), path, profile);
}

void AddSubmitOptions(SubCommand& command) {
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  const auto number = [](const char* name) { return po::value<int>()->value_name(name); };
  command.options.add_options()("nodes,N", text("N"), "nodes, one agent each; 2-4: from two to four")(
      "gpus-per-node", number("N"), "GPUs of each node")(
      "cpus-per-node", number("N"), "CPUs of each node; without it: whole nodes")(
      "array", number("K"), "K jobs instead of one, each with these nodes, that share the sweep")(
      "time,t", text("TIME"), "time limit: minutes, HH:MM:SS or D-HH:MM:SS; a longer sweep is requeued until it is done")(
      "partition,p", text("NAME"), "as for sbatch")("account,A", text("NAME"), "as for sbatch")(
      "qos", text("NAME"), "as for sbatch")("constraint,C", text("LIST"), "as for sbatch")(
      "lead", number("SECONDS"), "from \"checkpoint and leave\" to the end of the time limit; chosen if not given")(
      "max-requeues", number("N"), "requeue the unfinished sweep so often at most (100)")(
      "profile", text("NAME"), "[profile.NAME] of cluster.toml");
}

JobRequest JobRequestFrom(const Arguments& arguments, std::size_t positional) {
  const auto given = [&](const char* name) { return arguments.options.count(name) > 0; };
  JobRequest request = SiteDefaults(given("profile") ? arguments.Text("profile") : "");
  const auto text = [&](const char* name, std::string& value) {
    if (given(name)) value = arguments.Text(name);
  };
  const auto number = [&](const char* name, int& value) {
    if (given(name)) value = arguments.Number(name);
  };
  text("nodes", request.nodes);
  number("gpus-per-node", request.gpus_per_node);
  number("cpus-per-node", request.cpus_per_node);
  number("array", request.array);
  text("time", request.time);
  text("partition", request.partition);
  text("account", request.account);
  text("qos", request.qos);
  text("constraint", request.constraint);
  number("lead", request.lead_seconds);
  number("max-requeues", request.most_requeues);
  for (std::size_t i = positional; i < arguments.positional.size(); ++i)
    request.sbatch.push_back(arguments.positional[i]);
  CheckJobRequest(request);
  return request;
}

}  // namespace headsweep
