#include "cluster/doctor_cluster.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <nlohmann/json.hpp>
#include <set>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "cluster/base/json.h"
#include "cluster/base/run_program.h"

namespace headsweep {
namespace {

constexpr const char* kLine = "headsweep-node|";
constexpr double kMostSkew = 2;  // seconds; chosen: makes of different nodes' times in one log a riddle

std::string Value(const std::map<std::string, std::string>& config, const char* name) {
  const auto found = config.find(name);
  return found != config.end() ? found->second : "";
}

Finding CheckPartitions(const Slurm& slurm) {
  const auto partitions = slurm.Partitions();
  if (!partitions) return {"partitions", FindingLevel::kProblem, "sinfo does not answer", "try sinfo by hand"};
  std::string text;
  bool any_up = false;
  for (const SlurmPartition& partition : *partitions) {
    any_up |= partition.is_up && partition.nodes > 0;
    text += fmt::format("{}{}{}: {} nodes ({} idle) with {} CPUs{}, limit {}{}", text.empty() ? "" : "\n", partition.name,
                        partition.is_default ? " (default)" : "", partition.nodes, partition.idle_nodes,
                        partition.cpus_per_node, partition.gpus.empty() ? ", no GPUs" : " and " + partition.gpus,
                        partition.time_limit, partition.is_up ? "" : ", DOWN");
  }
  if (!any_up) return {"partitions", FindingLevel::kProblem, "no partition is up: " + text, "ask the administrators"};
  return {"partitions", FindingLevel::kOk, text, ""};
}

Finding CheckPmix() {
  const ProgramResult list = RunProgram({"srun", "--mpi=list"}, 20, /*merge_errors=*/true);
  const std::string plugins = Complaint(list.output);
  if (list.output.find("pmix") == std::string::npos)
    return {"mpi", FindingLevel::kProblem, fmt::format("srun has no PMIx plugin: {}", plugins),
            "name one that your MPI understands as `mpi` in cluster.toml, and build headsweep with that MPI"};
  return {"mpi", FindingLevel::kOk, "srun --mpi=pmix is there", ""};
}

Finding CheckRequeue(const std::map<std::string, std::string>& config) {
  const std::string wait = Value(config, "KillWait");
  if (Value(config, "JobRequeue") == "0")
    return {"requeue", FindingLevel::kNote, "jobs are not requeued by default here (JobRequeue = 0)",
            "nothing: headsweep asks for it, and chains a new job where that is refused"};
  return {"requeue", FindingLevel::kOk, fmt::format("jobs may be requeued; from SIGTERM to SIGKILL: {}", wait), ""};
}

// From so many nodes, at the same time.
std::vector<Finding> LookFromNodes(const ClusterDoctorOptions& options) {
  FileSystem& files = FileSystem::Real();
  const SystemClock clock;
  const double before = clock.Wall();
  files.CreateDirectories(options.workspace);
  const std::string directory =
      JoinPath(options.workspace, fmt::format(".headsweep-doctor-{}-{:.0f}", ::getpid(), before * 1000));
  files.CreateDirectories(directory);
  const std::string token = fmt::format("{:.6f}", before);
  WriteFileDurably(files, directory + "/from-login", token);
  std::vector<std::string> command = {"srun", fmt::format("--nodes={}", options.nodes), "--ntasks-per-node=1", "--time=5"};
  command.insert(command.end(), options.srun.begin(), options.srun.end());
  command.insert(command.end(), {options.program, "doctor", "--look-from-node=" + directory, "--token=" + token});
  std::string output, problem;
  try {
    const ProgramResult result = RunProgram(command, options.seconds, /*merge_errors=*/true);
    output = result.output;
    if (result.exit_code != 0) problem = fmt::format("srun ended with code {}: {}", result.exit_code, Complaint(output));
  } catch (const Error& error) {
    problem = error.what();
  }
  const std::vector<NodeLook> looks = ParseNodeLooks(output);
  std::vector<std::string> left;
  for (const NodeLook& look : looks)
    if (files.Exists(directory + "/from-" + look.host)) left.push_back(look.host);
  files.RemoveAll(directory);
  if (looks.empty() && !problem.empty())
    return {{"nodes", FindingLevel::kProblem, problem, "is a node free? give --partition, or fewer --nodes"}};
  return JudgeNodeLooks(looks, options.nodes, before, clock.Wall(), left);
}

}  // namespace

std::vector<Finding> DiagnoseCluster(const Slurm& slurm, const ClusterDoctorOptions& options) {
  if (!Slurm::IsHere())
    return {{"slurm", FindingLevel::kProblem, "no Slurm commands on PATH", "load the cluster's Slurm module"}};
  const auto config = slurm.Config();
  if (!config)
    return {{"slurm", FindingLevel::kProblem, "the controller does not answer (scontrol show config)",
             "try later; submitted jobs go on"}};
  std::vector<Finding> findings = {
      {"slurm", FindingLevel::kOk,
       fmt::format("cluster {}, version {}", Value(*config, "ClusterName"), Value(*config, "SLURM_VERSION")), ""}};
  const auto add = [&](const char* subject, const auto& check) {
    try {
      findings.push_back(check());
    } catch (const std::exception& error) {
      findings.push_back({subject, FindingLevel::kProblem, fmt::format("the check itself failed: {}", error.what()), ""});
    }
  };
  add("partitions", [&] { return CheckPartitions(slurm); });
  add("mpi", [] { return CheckPmix(); });
  add("requeue", [&] { return CheckRequeue(*config); });
  if (options.nodes > 0) {
    try {
      for (Finding& finding : LookFromNodes(options)) findings.push_back(std::move(finding));
    } catch (const std::exception& error) {
      findings.push_back({"nodes", FindingLevel::kProblem, error.what(), "choose a --workspace that you may write to"});
    }
  } else {
    findings.push_back({"nodes", FindingLevel::kNote, "not looked at",
                        "headsweep doctor --cluster --nodes 2 --workspace DIR looks from two nodes"});
  }
  return findings;
}

NodeLook LookFromNode(const std::string& directory, const std::string& token) {
  FileSystem& files = FileSystem::Real();
  NodeLook look;
  char host[HOST_NAME_MAX + 1] = {};
  ::gethostname(host, sizeof host - 1);
  look.host = host;
  look.time = SystemClock().Wall();
  try {
    look.reads = files.ReadFile(directory + "/from-login") == token;
    if (!look.reads) look.problem = "it reads something else than was written";
    WriteFileDurably(files, directory + "/from-" + look.host, look.host);
  } catch (const Error& error) {
    look.problem = error.what();
  }
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) == 0)
    look.free_gib = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) / (1024.0 * 1024 * 1024);
  std::set<std::string> names;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) == 0) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next)
      if ((one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0) names.insert(one->ifa_name);
    ::freeifaddrs(list);
  }
  for (const std::string& name : names) look.interfaces += (look.interfaces.empty() ? "" : " ") + name;
  return look;
}

std::string FormatNodeLook(const NodeLook& look) {
  const nlohmann::json json = {{"host", look.host},         {"time", look.time},         {"reads", look.reads},
                               {"problem", look.problem},   {"free_gib", look.free_gib}, {"interfaces", look.interfaces}};
  return kLine + DumpJson(json) + "\n";
}

std::vector<NodeLook> ParseNodeLooks(const std::string& output) {
  std::vector<NodeLook> looks;
  for (std::size_t at = output.find(kLine); at != std::string::npos; at = output.find(kLine, at + 1)) {
    const std::size_t begin = at + std::string_view(kLine).size();
    const auto json = ParseJson(output.substr(begin, output.find('\n', begin) - begin));
    if (!json.is_object()) continue;
    try {
      looks.push_back({json.at("host"), json.at("time"), json.at("reads"), json.at("problem"), json.at("free_gib"),
                       json.at("interfaces")});
    } catch (const nlohmann::json::exception&) {
      continue;
    }
  }
  return looks;
}

std::vector<Finding> JudgeNodeLooks(const std::vector<NodeLook>& looks, int expected, double now_before, double now_after,
                                    const std::vector<std::string>& left) {
  std::vector<Finding> findings;
  std::string hosts, blind, skewed, interfaces;
  double least_free = 1e300;
  std::set<std::string> kinds;
  const auto list = [](std::string& text, const std::string& word) { text += (text.empty() ? "" : ", ") + word; };
  for (const NodeLook& look : looks) {
    list(hosts, look.host);
    if (!look.reads || !look.problem.empty()) {
      list(blind, fmt::format("{} ({})", look.host, look.problem.empty() ? "it does not see the file" : look.problem));
    } else if (std::find(left.begin(), left.end(), look.host) == left.end()) {
      list(blind, look.host + " (its file is not seen here)");
    }
    const double skew = look.time < now_before ? now_before - look.time : std::max(0.0, look.time - now_after);
    if (skew > kMostSkew) list(skewed, fmt::format("{} by {:.0f} s", look.host, skew));
    least_free = std::min(least_free, look.free_gib);
    kinds.insert(look.interfaces);
    interfaces += (interfaces.empty() ? "" : "; ") + fmt::format("{}: {}", look.host, look.interfaces);
  }
  findings.push_back(static_cast<int>(looks.size()) == expected
                         ? Finding{"nodes", FindingLevel::kOk, "looked from " + hosts, ""}
                         : Finding{"nodes", FindingLevel::kProblem,
                                   fmt::format("{} of {} nodes answered: {}", looks.size(), expected, hosts),
                                   "does headsweep run there? it must be on every node under the same path"});
  if (looks.empty()) return findings;
  findings.push_back(blind.empty() ? Finding{"shared workspace", FindingLevel::kOk,
                                             "what one node writes and renames, the others read", ""}
                                   : Finding{"shared workspace", FindingLevel::kProblem, blind,
                                             "choose a --workspace on a file system that all nodes share"});
  findings.push_back(skewed.empty()
                         ? Finding{"clocks", FindingLevel::kOk, "agree", ""}
                         : Finding{"clocks", FindingLevel::kNote, "differ: " + skewed,
                                   "nothing depends on them but the times in logs; ask for NTP"});
  findings.push_back({"free space there", least_free < 2 ? FindingLevel::kNote : FindingLevel::kOk,
                      fmt::format("{:.1f} GiB as the nodes see it", least_free), least_free < 2 ? "free some space" : ""});
  findings.push_back(kinds.size() == 1
                         ? Finding{"interfaces", FindingLevel::kOk, "on every node: " + *kinds.begin(), ""}
                         : Finding{"interfaces", FindingLevel::kNote, "differ: " + interfaces,
                                   "NCCL_SOCKET_IFNAME names the one that trials of several nodes should use"});
  return findings;
}

}  // namespace headsweep
