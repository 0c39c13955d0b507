#include "cluster/slurm/slurm.h"

#include <algorithm>
#include <cstdlib>

#include "cluster/base/errors.h"
#include "cluster/base/run_program.h"
#include "cluster/slurm/job_script.h"

namespace headsweep {
namespace {

constexpr double kTimeout = 20;  // chosen: twice Slurm's default MessageTimeout

double TimeoutFromEnvironment() {
  const char* text = std::getenv("HEADSWEEP_SLURM_TIMEOUT");
  const double seconds = text != nullptr ? std::atof(text) : 0;
  return seconds > 0 ? seconds : kTimeout;
}

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Slurm's words for "there is no such job (any more)".
bool SaysUnknownJob(std::string_view text) { return Contains(text, "Invalid job id specified"); }

std::string Join(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

}  // namespace

bool LeavesOpen(std::string_view complaint) {
  // The request may have arrived although its answer did not.
  for (const char* words : {"timed out", "Zero Bytes were transmitted", "Connection reset", "Broken pipe"})
    if (Contains(complaint, words)) return true;
  return false;
}

bool SaysJobIsChanging(std::string_view complaint) {
  for (const char* words : {"Job is pending execution", "Job can not be altered now", "already completing or completed"})
    if (Contains(complaint, words)) return true;
  return false;
}

Slurm::Slurm(double timeout_seconds)
    : timeout_(timeout_seconds > 0 ? timeout_seconds : TimeoutFromEnvironment()) {}

bool Slurm::IsHere() {
  for (const char* name : {"sbatch", "squeue", "scontrol", "scancel"})
    if (FindProgram(name).empty()) return false;
  return true;
}

Slurm::Heard Slurm::Ask(const std::vector<std::string>& command, bool new_job) const {
  Heard heard;
  // A job must not inherit what Slurm told the one around this process (its restart count, its binding, …).
  std::vector<std::string> without;
  std::vector<std::pair<std::string, std::string>> kept;
  if (new_job) {
    without = {"SLURM_", "SLURMD_", "SRUN_", "PMIX_", "PMI_", "OMPI_COMM_"};
    for (const char* name : {"SLURM_CONF", "SLURM_CLUSTERS"})
      if (const char* value = std::getenv(name)) kept.emplace_back(name, value);
  }
  // Times in one format, whatever the user's own is.
  kept.emplace_back("SLURM_TIME_FORMAT", "standard");
  try {
    const ProgramResult result = RunProgram(command, timeout_, /*merge_errors=*/true, kept, without);
    heard = {true, result.exit_code, result.output, ""};
  } catch (const Error& error) {
    heard.problem = error.what();
  }
  return heard;
}

JobsAnswer Slurm::Answer(const Heard& heard) const {
  JobsAnswer answer;
  if (!heard.answered) {
    answer.problem = heard.problem;
  } else if (heard.exit_code == 0 || SaysUnknownJob(heard.output)) {
    answer.known = true;
    answer.jobs = ParseJobs(heard.output);
  } else {
    answer.problem = fmt::format("squeue ended with code {}: {}", heard.exit_code, Complaint(heard.output));
  }
  return answer;
}

JobsAnswer Slurm::Jobs(const std::vector<std::string>& ids) const {
  if (ids.empty()) return {true, {}, ""};
  return Answer(Ask({"squeue", "--noheader", "--array", "--states=all", "--jobs=" + Join(ids, ","),
                     std::string("--format=") + kJobFormat}));
}

JobsAnswer Slurm::JobsWithComment(const std::string& comment) const {
  JobsAnswer answer = Answer(
      Ask({"squeue", "--noheader", "--array", "--states=all", "--me", std::string("--format=") + kJobFormat}));
  std::erase_if(answer.jobs, [&](const SlurmJob& job) { return job.comment != comment; });
  return answer;
}

SlurmReply Slurm::Tell(const std::vector<std::string>& command, bool new_job) const {
  const Heard heard = Ask(command, new_job);
  if (!heard.answered) return {SlurmOutcome::kUnknown, heard.problem};
  if (heard.exit_code == 0) return {SlurmOutcome::kDone, heard.output};
  const std::string complaint =
      fmt::format("{} ended with code {}: {}", command.front(), heard.exit_code, Complaint(heard.output));
  return {LeavesOpen(heard.output) ? SlurmOutcome::kUnknown : SlurmOutcome::kRefused, complaint};
}

SlurmReply Slurm::Submit(const std::string& script, const std::string& directory,
                         const std::vector<std::string>& more) const {
  std::vector<std::string> command = {"sbatch", "--parsable",
                                      "--chdir=" + (SlurmCanName(directory) ? directory : std::string("/"))};
  command.insert(command.end(), more.begin(), more.end());
  command.push_back(script);
  SlurmReply reply = Tell(command, /*new_job=*/true);
  if (reply.outcome != SlurmOutcome::kDone) return reply;
  if (const auto id = ParseSubmitted(reply.text)) return {SlurmOutcome::kDone, *id};
  return {SlurmOutcome::kUnknown, "sbatch named no job: " + Complaint(reply.text)};
}

SlurmReply Slurm::Requeue(const std::string& id) const { return Tell({"scontrol", "requeue", id}); }

std::optional<int> Slurm::Restarts(const std::string& id) const {
  const Heard heard = Ask({"scontrol", "--oneliner", "show", "job", id});
  constexpr std::string_view kField = " Restarts=";
  const std::size_t at = heard.output.find(kField);
  if (!heard.answered || heard.exit_code != 0 || at == std::string::npos) return std::nullopt;
  return std::atoi(heard.output.c_str() + at + kField.size());
}

SlurmReply Slurm::Cancel(const std::string& id) const { return Tell({"scancel", id}); }

SlurmReply Slurm::CancelPending(const std::string& id) const { return Tell({"scancel", "--state=PENDING", id}); }

std::optional<std::map<std::string, std::string>> Slurm::Config() const {
  const Heard heard = Ask({"scontrol", "show", "config"});
  if (!heard.answered || heard.exit_code != 0) return std::nullopt;
  return ParseConfig(heard.output);
}

std::optional<std::string> Slurm::NodeState(const std::string& node) const {
  const Heard heard = Ask({"sinfo", "--noheader", "--Node", "--nodes=" + node, "--format=headsweep|%T"});
  if (!heard.answered || heard.exit_code != 0) return std::nullopt;
  const std::size_t at = heard.output.find("headsweep|");
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = at + std::string_view("headsweep|").size();
  return heard.output.substr(begin, heard.output.find_first_of(" \n", begin) - begin);
}

std::optional<std::vector<SlurmPartition>> Slurm::Partitions() const {
  const Heard heard = Ask({"sinfo", "--noheader", std::string("--format=") + kPartitionFormat});
  if (!heard.answered || heard.exit_code != 0) return std::nullopt;
  return ParsePartitions(heard.output);
}

}  // namespace headsweep
