#include "launcher/job_record.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "cluster/base/log.h"

namespace headsweep {
namespace {

using Json = nlohmann::json;

Json RequestJson(const JobRequest& request) {
  return {{"nodes", request.nodes},
          {"gpus_per_node", request.gpus_per_node},
          {"cpus_per_node", request.cpus_per_node},
          {"time", request.time},
          {"partition", request.partition},
          {"account", request.account},
          {"qos", request.qos},
          {"constraint", request.constraint},
          {"array", request.array},
          {"mpi", request.mpi},
          {"setup", request.setup},
          {"sbatch", request.sbatch},
          {"lead_seconds", request.lead_seconds},
          {"most_requeues", request.most_requeues}};
}

JobRequest RequestFrom(const Json& json) {
  JobRequest request;
  json.at("nodes").get_to(request.nodes);
  json.at("gpus_per_node").get_to(request.gpus_per_node);
  json.at("cpus_per_node").get_to(request.cpus_per_node);
  json.at("time").get_to(request.time);
  json.at("partition").get_to(request.partition);
  json.at("account").get_to(request.account);
  json.at("qos").get_to(request.qos);
  json.at("constraint").get_to(request.constraint);
  json.at("array").get_to(request.array);
  json.at("mpi").get_to(request.mpi);
  json.at("setup").get_to(request.setup);
  json.at("sbatch").get_to(request.sbatch);
  json.at("lead_seconds").get_to(request.lead_seconds);
  json.at("most_requeues").get_to(request.most_requeues);
  return request;
}

std::string Dump(const Json& json, int indent) {
  return DumpJson(json, indent) + "\n";
}

std::optional<JobEvent> EventFrom(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  try {
    JobEvent event;
    json.at("type").get_to(event.type);
    json.at("time").get_to(event.time);
    json.at("job").get_to(event.job);
    json.at("restart").get_to(event.restart);
    event.nodes = json.value("nodes", "");
    event.progress = json.value("progress", std::int64_t{0});
    event.exit_code = json.value("exit_code", 0);
    event.again = json.value("again", false);
    event.futile = json.value("futile", false);
    event.reason = json.value("reason", "");
    event.next = json.value("next", "");
    return event;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string FormatJobRecord(const JobRecord& record) {
  return Dump({{"sweep", record.sweep},
               {"file", record.file},
               {"comment", record.comment},
               {"job", record.job},
               {"refused", record.refused},
               {"time", record.time},
               {"by", record.by},
               {"options", record.options},
               {"request", RequestJson(record.request)}},
              2);
}

JobRecord ParseJobRecord(const std::string& text, const std::string& path) {
  const Json json = ParseJson(text);
  try {
    JobRecord record;
    json.at("sweep").get_to(record.sweep);
    json.at("file").get_to(record.file);
    json.at("comment").get_to(record.comment);
    json.at("job").get_to(record.job);
    json.at("refused").get_to(record.refused);
    json.at("time").get_to(record.time);
    json.at("by").get_to(record.by);
    json.at("options").get_to(record.options);
    record.request = RequestFrom(json.at("request"));
    return record;
  } catch (const Json::exception& error) {
    throw IoError("read", path, 0, fmt::format("it is no record of a submission ({})", error.what()));
  }
}

std::string FormatJobEvent(const JobEvent& event) {
  return Dump({{"type", event.type},
               {"time", event.time},
               {"job", event.job},
               {"restart", event.restart},
               {"nodes", event.nodes},
               {"progress", event.progress},
               {"exit_code", event.exit_code},
               {"again", event.again},
               {"futile", event.futile},
               {"reason", event.reason},
               {"next", event.next}},
              -1);
}

std::vector<JobEvent> ParseJobEvents(const std::string& text) {
  std::vector<JobEvent> events;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (auto event = EventFrom(ParseJson(line)))
      events.push_back(std::move(*event));
    begin = end + 1;
  }
  return events;
}

std::vector<std::string> Submission::Ids() const {
  std::vector<std::string> ids;
  if (!record.job.empty()) ids.push_back(record.job);
  for (const JobEvent& event : events)
    if (event.type == job_event::kChained && !event.next.empty()) ids.push_back(event.next);
  return ids;
}

Submission ReadSubmission(const FileSystem& files, const std::string& directory) {
  Submission submission;
  submission.directory = directory;
  submission.number = std::atoi(BaseName(directory).c_str());
  const std::string path = JoinPath(directory, job_file::kRecord);
  submission.record = ParseJobRecord(files.ReadFile(path), path);
  for (const std::string& name : files.List(directory)) {
    if (!name.starts_with(job_file::kHistory) || !name.ends_with(".jsonl")) continue;
    for (JobEvent& event : ParseJobEvents(files.ReadFile(JoinPath(directory, name))))
      submission.events.push_back(std::move(event));
  }
  std::stable_sort(submission.events.begin(), submission.events.end(),
                   [](const JobEvent& a, const JobEvent& b) { return a.time < b.time; });
  const std::string cancelled = JoinPath(directory, job_file::kCancelled);
  if (files.Exists(cancelled)) {
    submission.cancelled_by = files.ReadFile(cancelled);
    while (submission.cancelled_by.ends_with('\n')) submission.cancelled_by.pop_back();
    if (submission.cancelled_by.empty()) submission.cancelled_by = "somebody";
  }
  return submission;
}

std::vector<Submission> ReadSubmissions(const FileSystem& files, const Workspace& workspace, const std::string& sweep) {
  std::vector<Submission> submissions;
  for (const std::string& name : files.List(workspace.Jobs(sweep))) {
    const std::string directory = JoinPath(workspace.Jobs(sweep), name);
    if (!files.Exists(JoinPath(directory, job_file::kRecord))) continue;
    try {
      submissions.push_back(ReadSubmission(files, directory));
    } catch (const IoError& error) {
      LogWarning("{}", error.what());
    }
  }
  std::sort(submissions.begin(), submissions.end(),
            [](const Submission& a, const Submission& b) { return a.number < b.number; });
  return submissions;
}

std::string HistoryPath(const std::string& directory, const std::string& task) {
  return JoinPath(directory, task.empty() ? fmt::format("{}.jsonl", job_file::kHistory)
                                          : fmt::format("{}-{}.jsonl", job_file::kHistory, task));
}

std::string MakeSubmissionDirectory(FileSystem& files, const Workspace& workspace, const std::string& sweep) {
  const std::string root = workspace.Jobs(sweep);
  files.CreateDirectories(root);
  int number = 1;
  for (const std::string& name : files.List(root)) number = std::max(number, std::atoi(name.c_str()) + 1);
  // mkdir is exclusive: two people who submit at once get two numbers.
  for (;; ++number) {
    const std::string directory = JoinPath(root, std::to_string(number));
    if (::mkdir(directory.c_str(), 0755) == 0) {
      files.SyncDirectory(root);
      return directory;
    }
    if (errno != EEXIST) throw IoError("create", directory, errno);
  }
}

std::string NewJobComment() {
  std::random_device random;
  return fmt::format("headsweep-{:08x}{:08x}", random(), random());
}

void MarkCancelled(FileSystem& files, const std::string& directory, const std::string& by) {
  WriteFileDurably(files, JoinPath(directory, job_file::kCancelled), by + "\n");
}

void LeaveExitCode(int exit_code) {
  const char* path = std::getenv(kExitCodeVariable);
  if (path == nullptr || *path == '\0') return;
  try {
    WriteFileDurably(FileSystem::Real(), path, std::to_string(exit_code) + "\n");
  } catch (const IoError& error) {
    LogWarning("{}", error.what());  // the job script then takes srun's word
  }
}

}  // namespace headsweep
