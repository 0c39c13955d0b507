#include "launcher/lost_coordinator.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/log.h"
#include "cluster/slurm/slurm.h"
#include "cluster/slurm/this_job.h"
#include "launcher/job_record.h"

namespace headsweep {
namespace {

constexpr double kPatience = 600;  // Slurm's default SlurmdTimeout is 300 s
constexpr std::chrono::seconds kPause(3);

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void Requeue(const Slurm& slurm, const std::string& job, const std::string& host, const std::string& submission) {
  FileSystem& files = FileSystem::Real();
  const bool cancelled = files.Exists(JoinPath(submission, job_file::kCancelled));
  const SlurmReply reply = cancelled ? slurm.Cancel(job) : slurm.Requeue(job);
  if (reply.outcome != SlurmOutcome::kDone) {  // another agent was first, perhaps
    LogWarning("{}", reply.text);
    return;
  }
  if (cancelled) return;
  JobEvent event;
  event.type = job_event::kRequeued;
  event.time = SystemClock().Wall();
  event.job = job;
  event.restart = ThisJobsRestarts();
  event.reason = fmt::format("node {}, which had the coordinator, is down", host);
  const std::string task = Environment("SLURM_ARRAY_TASK_ID");
  files.OpenForAppend(HistoryPath(submission, task))->Append(FormatJobEvent(event));
}

std::optional<std::string> ReadSign(const std::string& path) {
  try {
    return FileSystem::Real().ReadFile(path);
  } catch (const IoError&) {
    return std::nullopt;
  }
}

}  // namespace

std::string SignOfLifePath(const std::string& submission, const std::string& job) {
  return JoinPath(submission, "alive-" + job);
}

bool IsDeadNode(const std::string& state) {
  std::string lower = state;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* dead : {"down", "fail", "powered", "power_down", "powering_down", "reboot"})
    if (lower.starts_with(dead)) return true;
  return false;
}

void SeeToLostCoordinator() {
  const std::string host = Environment(kBatchHostVariable), submission = Environment(kSubmissionVariable);
  const std::string job = ThisJob();
  if (host.empty() || submission.empty() || job.empty()) return;
  const std::string sign = SignOfLifePath(submission, job);
  const std::optional<std::string> before = ReadSign(sign);
  const Slurm slurm;
  const SystemClock clock;
  const double until = clock.Monotonic() + kPatience;
  while (clock.Monotonic() < until) {
    std::this_thread::sleep_for(kPause);
    const std::optional<std::string> now = ReadSign(sign);
    if (!now || now != before) return;  // the batch process has ended, or lives
    if (IsDeadNode(slurm.NodeState(host).value_or(""))) return Requeue(slurm, job, host, submission);
  }
}

}  // namespace headsweep
