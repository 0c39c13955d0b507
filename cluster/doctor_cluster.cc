#include "cluster/doctor_cluster.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/ranges.h>

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
constexpr const char* kMpiLine = "headsweep-mpi|";
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

Finding CheckPmix(const std::string& mpi) {
  const ProgramResult list = RunProgram({"srun", "--mpi=list"}, 20, /*merge_errors=*/true);
  const std::string plugins = Complaint(list.output);
  if (list.output.find(mpi) == std::string::npos)
    return {"mpi", FindingLevel::kProblem, fmt::format("srun has no plugin {}: {}", mpi, plugins),
            "name one that your MPI understands as `mpi` in cluster.toml, and build headsweep with that MPI"};
  return {"mpi", FindingLevel::kOk, fmt::format("srun --mpi={} is there", mpi), ""};
}

Finding CheckRequeue(const std::map<std::string, std::string>& config) {
  const std::string wait = Value(config, "KillWait");
  if (Value(config, "JobRequeue") == "0")
    return {"requeue", FindingLevel::kNote, "jobs are not requeued by default here (JobRequeue = 0)",
            "nothing: headsweep asks for it, and chains a new job where that is refused"};
  return {"requeue", FindingLevel::kOk, fmt::format("jobs may be requeued; from SIGTERM to SIGKILL: {}", wait), ""};
}

// A job step of one process on each node, waited for.
struct StepEnd {
  std::string output;
  std::string problem;  // why it may have said nothing
};
StepEnd RunStep(const ClusterDoctorOptions& options, const std::string& mpi, const std::vector<std::string>& words) {
  std::vector<std::string> command = {"srun", "--mpi=" + mpi, fmt::format("--nodes={}", options.nodes), "--ntasks-per-node=1",
                                      "--time=5"};
  command.insert(command.end(), options.srun.begin(), options.srun.end());
  command.insert(command.end(), {options.program, "doctor"});
  command.insert(command.end(), words.begin(), words.end());
  StepEnd end;
  try {
    const ProgramResult result = RunProgram(command, options.seconds, /*merge_errors=*/true);
    end.output = result.output;
    if (result.exit_code != 0)
      end.problem = fmt::format("srun ended with code {}: {}", result.exit_code, Complaint(end.output));
  } catch (const Error& error) {
    end.problem = error.what();
  }
  return end;
}

Finding TryMpi(const ClusterDoctorOptions& options) {
  const StepEnd end = RunStep(options, options.mpi, {"--look-by-mpi"});
  return JudgeMpiLooks(ParseMpiLooks(end.output), options.nodes, options.mpi, end.problem);
}

// The objects that nodes have printed, each on a line behind `mark`, among whatever else was printed.
std::vector<nlohmann::json> MarkedObjects(const std::string& output, std::string_view mark) {
  std::vector<nlohmann::json> objects;
  for (std::size_t at = output.find(mark); at != std::string::npos; at = output.find(mark, at + 1)) {
    const std::size_t begin = at + mark.size();
    nlohmann::json json = ParseJson(output.substr(begin, output.find('\n', begin) - begin));
    if (json.is_object()) objects.push_back(std::move(json));
  }
  return objects;
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
  const StepEnd step = RunStep(options, "none", {"--look-from-node=" + directory, "--token=" + token});
  const std::vector<NodeLook> looks = ParseNodeLooks(step.output);
  std::vector<std::string> left;
  for (const NodeLook& look : looks)
    if (files.Exists(directory + "/from-" + look.host)) left.push_back(look.host);
  files.RemoveAll(directory);
  if (looks.empty() && !step.problem.empty())
    return {{"nodes", FindingLevel::kProblem, step.problem, "is a node free? give --partition, or fewer --nodes"}};
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
  add("mpi", [&] { return CheckPmix(options.mpi); });
  add("requeue", [&] { return CheckRequeue(*config); });
  if (options.nodes > 0) {
    try {
      for (Finding& finding : LookFromNodes(options)) findings.push_back(std::move(finding));
    } catch (const std::exception& error) {
      findings.push_back({"nodes", FindingLevel::kProblem, error.what(), "choose a --workspace that you may write to"});
    }
    add("mpi exchange", [&] { return TryMpi(options); });
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
  for (const nlohmann::json& json : MarkedObjects(output, kLine)) {
    try {
      looks.push_back({json.at("host"), json.at("time"), json.at("reads"), json.at("problem"), json.at("free_gib"),
                       json.at("interfaces")});
    } catch (const nlohmann::json::exception&) {
      continue;
    }
  }
  return looks;
}

std::string FormatMpiLook(const MpiLook& look) {
  const nlohmann::json json = {{"host", look.host},
                               {"library", look.library},
                               {"ranks", look.ranks},
                               {"exchanged", look.exchanged},
                               {"problem", look.problem}};
  return kMpiLine + DumpJson(json) + "\n";
}

std::vector<MpiLook> ParseMpiLooks(const std::string& output) {
  std::vector<MpiLook> looks;
  for (const nlohmann::json& json : MarkedObjects(output, kMpiLine)) {
    try {
      looks.push_back({json.at("host"), json.at("library"), json.at("ranks"), json.at("exchanged"), json.at("problem")});
    } catch (const nlohmann::json::exception&) {
      continue;
    }
  }
  return looks;
}

Finding JudgeMpiLooks(const std::vector<MpiLook>& looks, int expected, const std::string& mpi,
                      const std::string& complaint) {
  constexpr const char* kSubject = "mpi exchange";
  std::set<std::string> libraries, problems;
  int well = 0;
  for (const MpiLook& look : looks) {
    libraries.insert(look.library);
    well += look.problem.empty() && look.ranks == expected && look.exchanged;
    if (!look.problem.empty()) {
      problems.insert(look.problem);
    } else if (look.ranks != expected) {
      problems.insert(fmt::format("MPI sees {} of {} processes", look.ranks, expected));
    } else if (!look.exchanged) {
      problems.insert(fmt::format("{} did not get what was sent to it", look.host));
    }
  }
  const std::string names = fmt::format("{}", fmt::join(libraries, "; "));
  if (well == expected && libraries.size() == 1)
    return {kSubject, FindingLevel::kOk, fmt::format("under srun --mpi={} a message went round {} nodes ({})", mpi, expected, names),
            ""};
  if (libraries.size() > 1)
    return {kSubject, FindingLevel::kProblem, "the nodes have different MPI libraries: " + names,
            "load the one that headsweep was built with on all of them (`setup` in cluster.toml does so in jobs)"};
  std::string text = fmt::format("under srun --mpi={} {} of {} nodes could exchange messages", mpi, well, expected);
  for (const std::string& problem : problems) text += "\n" + problem;
  if (problems.empty() && !complaint.empty()) text += "\n" + complaint;
  if (!problems.empty())
    return {kSubject, FindingLevel::kProblem, text,
            fmt::format("`mpi` in cluster.toml: one of `srun --mpi=list` that {} understands (pmix, with Open MPI 3 and later)",
                        names)};
  return {kSubject, FindingLevel::kProblem, text,
          "if srun refused the plugin: name another as `mpi` in cluster.toml; if MPI could not start: build headsweep with an MPI "
          "that understands the plugin; if nothing came back: OMPI_MCA_btl_tcp_if_include names the network between the nodes"};
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
