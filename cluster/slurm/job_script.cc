#include "cluster/slurm/job_script.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "cluster/base/errors.h"
#include "cluster/slurm/answers.h"
#include "cluster/slurm/quoting.h"

namespace headsweep {
namespace {

constexpr double kLeaveSeconds = 60;   // chosen: to hear of the end, and to go
constexpr double kShortShare = 1.0 / 3;  // of a short job's limit, at most
constexpr int kMostNodes = 100'000, kMostArray = 1'000'000;  // typing errors

// Options that the script sets itself, and what to use in their place.
struct Reserved {
  const char* option;
  const char* instead;
};
constexpr Reserved kReserved[] = {
    {"--nodes", "--nodes before the \"--\""},
    {"-N", "--nodes before the \"--\""},
    {"--time", "--time before the \"--\""},
    {"-t", "--time before the \"--\""},
    {"--array", "--array before the \"--\""},
    {"-a", "--array before the \"--\""},
    {"--ntasks", "--nodes: there is one agent a node"},
    {"-n", "--nodes: there is one agent a node"},
    {"--ntasks-per-node", "--nodes: there is one agent a node"},
    {"--cpus-per-task", "--cpus-per-node"},
    {"-c", "--cpus-per-node"},
    {"--gpus-per-node", "--gpus-per-node before the \"--\""},
    {"--signal", "--lead SECONDS"},
    {"--output", "nothing: `headsweep logs` finds the output where it is"},
    {"-o", "nothing: `headsweep logs` finds the output where it is"},
    {"--error", "nothing: it is in the output"},
    {"-e", "nothing: it is in the output"},
    {"--open-mode", "nothing: output is always appended"},
    {"--chdir", "nothing: every path is absolute"},
    {"-D", "nothing: every path is absolute"},
    {"--comment", "nothing: submissions are recognised by it"},
    {"--wrap", "the sweep file"},
    {"--parsable", "nothing: it is always there"},
    {"--test-only", "--print"},
};

bool IsNodeCount(const std::string& text) {
  const auto is_number = [](std::string_view part) {
    return !part.empty() && part.size() <= 6 && part.front() != '0' &&
           std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  const std::size_t dash = text.find('-');
  const std::string least = text.substr(0, dash);
  if (!is_number(least) || std::stoi(least) > kMostNodes) return false;
  if (dash == std::string::npos) return true;
  const std::string most = text.substr(dash + 1);
  return is_number(most) && std::stoi(most) >= std::stoi(least);
}

bool HasControl(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

class Complaining {
 public:
  void Add(const std::string& message) { complaints_.push_back({"", 0, 0, message}); }
  void Text(const char* option, const std::string& value) {
    if (HasControl(value)) Add(fmt::format("{}: a newline or another control character cannot be part of it", option));
    if (value.starts_with('-')) Add(fmt::format("{} {}: it cannot begin with \"-\"", option, value));
  }
  void Range(const char* option, int value, int most) {
    if (value < 0 || value > most) Add(fmt::format("{} {}: give a number from 0 to {}", option, value, most));
  }
  void ThrowIfAny() const {
    if (!complaints_.empty()) throw ConfigError(complaints_);
  }

 private:
  std::vector<Diagnostic> complaints_;
};

class Script {
 public:
  void Line(const std::string& text) { text_ += text + "\n"; }
  void Sbatch(const std::string& words, const char* why = "") {
    Line("#SBATCH " + words + (*why != '\0' ? std::string("   # ") + why : ""));
  }
  void Value(const char* option, const std::string& value) {
    if (!value.empty()) Sbatch(fmt::format("{}={}", option, QuoteForSbatch(value, option)));
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

void CheckJobRequest(const JobRequest& request) {
  Complaining complaints;
  if (!IsNodeCount(request.nodes))
    complaints.Add(fmt::format("--nodes \"{}\": give a number, or a range as 2-4", request.nodes));
  if (!request.time.empty() && !ParseDuration(request.time))
    complaints.Add(fmt::format("--time \"{}\": give minutes, HH:MM:SS, or D-HH:MM:SS", request.time));
  complaints.Range("--gpus-per-node", request.gpus_per_node, 1024);
  complaints.Range("--cpus-per-node", request.cpus_per_node, 4096);
  complaints.Range("--array", request.array, kMostArray);
  complaints.Range("--lead", request.lead_seconds, 65535);  // Slurm's own limit of --signal
  complaints.Range("--max-requeues", request.most_requeues, 1'000'000);
  complaints.Text("--partition", request.partition);
  complaints.Text("--account", request.account);
  complaints.Text("--qos", request.qos);
  complaints.Text("--constraint", request.constraint);
  if (request.mpi.empty() || !std::all_of(request.mpi.begin(), request.mpi.end(), [](unsigned char c) {
        return std::isalnum(c) || c == '_';
      }))
    complaints.Add(fmt::format("mpi = \"{}\": give a name that `srun --mpi=list` lists", request.mpi));
  if (!request.sbatch.empty() && !request.sbatch.front().starts_with('-'))
    complaints.Add(fmt::format("\"{}\": one sweep at a time; what follows -- are options of sbatch", request.sbatch.front()));
  for (const std::string& word : request.sbatch) {
    if (HasControl(word)) complaints.Add("an option of sbatch holds a newline or another control character");
    for (const Reserved& reserved : kReserved) {
      const std::string_view option = reserved.option;
      const bool is_long = option.starts_with("--");
      if (word == option || (is_long && word.starts_with(std::string(option) + "=")) ||
          (!is_long && word.starts_with(option) && !word.starts_with("--")))
        complaints.Add(fmt::format("{} is set by headsweep; use {}", word, reserved.instead));
    }
  }
  complaints.ThrowIfAny();
}

int LeadSeconds(double limit_seconds, double stop_grace) {
  double lead = stop_grace + kLeaveSeconds;
  if (limit_seconds > 0) lead = std::min(lead, limit_seconds * kShortShare);
  return static_cast<int>(std::lround(std::max(lead, 1.0)));
}

bool SlurmCanName(std::string_view directory) {
  return !HasControl(directory) && directory.find_first_of("%\\") == std::string_view::npos;
}

std::string JobName(std::string_view sweep) {
  std::string name = "headsweep-";
  for (const char c : sweep)
    name += std::isalnum(static_cast<unsigned char>(c)) || std::string_view("._-").find(c) != std::string_view::npos
                ? c
                : '_';
  return name;
}

std::string FormatJobScript(const JobRequest& request, const JobPlace& place, double stop_grace) {
  const double limit = ParseDuration(request.time).value_or(0);
  const int lead = request.lead_seconds > 0 ? request.lead_seconds : LeadSeconds(limit, stop_grace);
  Script script;
  script.Line("#!/bin/bash");
  script.Line("# Written by `headsweep submit`. To start it again by hand: `headsweep resume`.");
  script.Value("--job-name", JobName(place.sweep));
  script.Value("--comment", place.comment);
  script.Value("--nodes", request.nodes);
  script.Sbatch("--ntasks-per-node=1", "one agent a node");
  if (request.cpus_per_node > 0) {
    script.Sbatch(fmt::format("--cpus-per-task={}", request.cpus_per_node));
  } else {
    script.Sbatch("--exclusive");
  }
  if (request.gpus_per_node > 0) script.Sbatch(fmt::format("--gpus-per-node={}", request.gpus_per_node));
  script.Value("--time", request.time);
  script.Value("--partition", request.partition);
  script.Value("--account", request.account);
  script.Value("--qos", request.qos);
  script.Value("--constraint", request.constraint);
  if (request.array > 0) script.Sbatch(fmt::format("--array=0-{}", request.array - 1));
  script.Sbatch(fmt::format("--signal=USR2@{}", lead), "to the agents: checkpoint everything and leave");
  script.Sbatch("--requeue");
  script.Sbatch("--no-kill", "the loss of a node does not end the job");
  script.Sbatch("--open-mode=append");
  const bool own_output = !SlurmCanName(place.directory);
  script.Sbatch(own_output ? "--output=/dev/null"
                           : (request.array > 0 ? "--output=slurm-%A_%a.txt" : "--output=slurm-%j.txt"));
  if (!request.sbatch.empty()) {
    std::string words;
    for (const std::string& word : request.sbatch)
      words += (words.empty() ? "" : " ") + QuoteForSbatch(word, "an option of sbatch");
    script.Sbatch(words);
  }
  script.Line("");
  for (const std::string& line : request.setup) script.Line(line);
  // Whoever asked for a late signal, or has a short job, still has its checkpoints cut off before Slurm does.
  if (lead < stop_grace + kLeaveSeconds)
    script.Line(fmt::format("export HEADSWEEP_STOP_GRACE={}", std::max(1, lead * 2 / 3)));
  script.Line("headsweep=" + QuoteForShell(place.program));
  script.Line("submission=" + QuoteForShell(place.directory));
  if (own_output)
    script.Line("exec >> \"$submission/slurm-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"
                "${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}.txt\" 2>&1   # Slurm cannot take this path");
  script.Line("agents=(");
  script.Line(fmt::format("  srun --mpi={} --no-kill --kill-on-bad-exit=0 --ntasks-per-node=1 --cpu-bind=none{}", request.mpi,
                          request.cpus_per_node > 0 ? fmt::format(" --cpus-per-task={}", request.cpus_per_node) : ""));
  std::string agent = "  \"$headsweep\"";
  for (const std::string& word : place.agent) agent += " " + QuoteForShell(word);
  script.Line(agent);
  script.Line(")");
  script.Line(fmt::format("exec \"$headsweep\" batch --submission=\"$submission\" --max-requeues={} -- \"${{agents[@]}}\"",
                          request.most_requeues));
  return std::move(script).text();
}

}  // namespace headsweep
