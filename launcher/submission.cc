#include "launcher/submission.h"

#include <cstdlib>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "launcher/process.h"
#include "launcher/requests.h"
#include "launcher/submission_state.h"
#include "launcher/timing.h"

namespace headsweep {
namespace {

JobPlace PlaceOf(const Workspace& workspace, const Sweep& sweep, const SubmitRequest& request,
                 const std::string& directory, const std::string& comment) {
  JobPlace place;
  place.sweep = sweep.name();
  place.directory = directory;
  place.comment = comment;
  place.program = ProgramPath();
  place.agent = {"run", JoinPath(directory, job_file::kSweep), "--original=" + sweep.file(),
                 "--workspace=" + workspace.root()};
  if (request.job.array > 0) place.agent.push_back("--join");
  place.agent.insert(place.agent.end(), request.options.begin(), request.options.end());
  return place;
}

// Slurm itself takes such a job, and lets it wait for ever. What sinfo does not say is Slurm's to judge.
void RefuseTooManyNodes(const Slurm& slurm, const JobRequest& job) {
  const auto partitions = slurm.Partitions();
  if (!partitions) return;
  const int least = std::atoi(job.nodes.c_str());
  for (const SlurmPartition& partition : *partitions) {
    const bool chosen = job.partition.empty() ? partition.is_default : job.partition == partition.name;
    if (chosen && least > partition.nodes)
      throw ConfigError(fmt::format("--nodes {}: partition {} has {} nodes, so the job would wait for ever", job.nodes,
                                    partition.name, partition.nodes));
  }
}

}  // namespace

std::string ScriptOf(const Workspace& workspace, const Sweep& sweep, const SubmitRequest& request,
                     const std::string& directory, const std::string& comment) {
  return FormatJobScript(request.job, PlaceOf(workspace, sweep, request, directory, comment),
                         Timing::FromEnvironment().stop_grace);
}

void CheckMaySubmit(const FileSystem& files, const Workspace& workspace, const std::string& sweep, const Slurm& slurm,
                    const SubmitRequest& request) {
  for (const auto& [submission, state] : LookAtSubmissions(slurm, files, workspace, sweep)) {
    if (state.life == SubmissionLife::kOver) continue;
    const std::string line = DescribeSubmission(submission, state, std::nullopt).front();
    if (state.life == SubmissionLife::kUnknown)
      throw CommError("Slurm", fmt::format("state of submission {} of {}", submission.number, sweep), 0,
                      fmt::format("{}. It may be running, so nothing is submitted; try again, or say --also", line));
    throw ConfigError(
        fmt::format("{} is submitted already: {}. See `headsweep status {}`; --also submits it a second time", sweep,
                    line, sweep));
  }
  RefuseTooManyNodes(slurm, request.job);
  if (request.job.array == 0) return;
  const auto config = slurm.Config();
  if (!config) throw CommError("Slurm", "scontrol show config", 0, "no answer, so MaxArraySize is not known");
  const auto most = config->find("MaxArraySize");
  const int limit = most == config->end() ? 0 : std::atoi(most->second.c_str());
  if (limit > 0 && request.job.array >= limit)  // the largest index is one less
    throw ConfigError(fmt::format("--array {}: this Slurm takes {} at most (MaxArraySize = {}); submit it more than once "
                                  "with --also, all of them share the sweep",
                                  request.job.array, limit - 1, limit));
}

Submission Submit(FileSystem& files, const Workspace& workspace, const Sweep& sweep, const Slurm& slurm,
                  const SubmitRequest& request) {
  Submission submission;
  submission.directory = MakeSubmissionDirectory(files, workspace, sweep.name());
  submission.number = std::atoi(BaseName(submission.directory).c_str());
  JobRecord& record = submission.record;
  record.sweep = sweep.name();
  record.file = sweep.file();
  record.comment = NewJobComment();
  record.time = SystemClock().Wall();
  record.by = ThisUser();
  record.options = request.options;
  record.request = request.job;
  const auto path = [&](const char* name) { return JoinPath(submission.directory, name); };
  WriteFileDurably(files, path(job_file::kSweep), sweep.text());
  WriteFileDurably(files, path(job_file::kScript),
                   ScriptOf(workspace, sweep, request, submission.directory, record.comment));
  WriteFileDurably(files, path(job_file::kRecord), FormatJobRecord(record));
  // `status` and the like know a sweep by its file. One that has run before keeps its own until the job begins.
  if (!files.Exists(workspace.SweepToml(sweep.name())))
    WriteFileDurably(files, workspace.SweepToml(sweep.name()), sweep.text());

  const SlurmReply reply = slurm.Submit(path(job_file::kScript), submission.directory);
  if (reply.outcome == SlurmOutcome::kDone) {
    record.job = reply.text;
  } else if (reply.outcome == SlurmOutcome::kRefused) {
    record.refused = reply.text;
  } else {
    throw CommError("Slurm", "submission", SystemClock().Wall() - record.time,
                    fmt::format("{}. Perhaps there is a job now: `headsweep status {}` finds it when Slurm answers again",
                                reply.text, sweep.name()));
  }
  WriteFileDurably(files, path(job_file::kRecord), FormatJobRecord(record));
  if (!record.refused.empty()) throw ConfigError("Slurm does not take the job: " + record.refused);
  return submission;
}

SlurmReply SubmitNext(const Slurm& slurm, const std::string& submission, const std::string& job) {
  std::vector<std::string> more = {"--dependency=afterany:" + job};
  const std::size_t underscore = job.find('_');
  const std::string task = underscore == std::string::npos ? "" : job.substr(underscore);
  if (!task.empty()) more.push_back("--array=" + task.substr(1));
  SlurmReply reply = slurm.Submit(JoinPath(submission, job_file::kScript), submission, more);
  if (reply.outcome == SlurmOutcome::kDone) reply.text += task;
  return reply;
}

std::string Describe(const Submission& submission) {
  const JobRequest& job = submission.record.request;
  std::string text = fmt::format("job {} ({} node{}", submission.record.job, job.nodes, job.nodes == "1" ? "" : "s");
  if (job.gpus_per_node > 0) text += fmt::format(" x {} GPU{}", job.gpus_per_node, job.gpus_per_node == 1 ? "" : "s");
  if (!job.time.empty()) text += ", time " + job.time;
  if (!job.partition.empty()) text += ", partition " + job.partition;
  if (job.array > 0) text += fmt::format(", {} jobs", job.array);
  return text + ")";
}

}  // namespace headsweep
