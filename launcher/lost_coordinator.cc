#include "launcher/lost_coordinator.h"

#include <fcntl.h>
#include <unistd.h>

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
#include "launcher/submission.h"

namespace headsweep {
namespace {

constexpr double kPatience = 600;  // Slurm's default SlurmdTimeout is 300 s
constexpr std::chrono::seconds kPause(3);

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// True for one agent of the job only.
bool IsFirst(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  ::close(fd);
  return true;
}

// This job once more, or, where Slurm does not allow that, another one in its place.
void GoOn(const Slurm& slurm, const std::string& job, const std::string& host, const std::string& submission) {
  FileSystem& files = FileSystem::Real();
  if (files.Exists(JoinPath(submission, job_file::kCancelled))) {
    slurm.Cancel(job);
    return;
  }
  JobEvent event;
  event.type = job_event::kRequeued;
  event.reason = fmt::format("node {}, which had the coordinator, is down", host);
  SlurmReply reply = slurm.Requeue(job);
  if (reply.outcome == SlurmOutcome::kRefused && !SaysJobIsChanging(reply.text)) {
    if (!IsFirst(JoinPath(submission, fmt::format("{}{}", job_file::kChainPrefix, job)))) return;
    event.type = job_event::kChained;
    event.reason += "; " + reply.text;
    reply = SubmitNext(slurm, submission, job);
    event.next = reply.text;
  }
  if (reply.outcome != SlurmOutcome::kDone) {  // another agent was first, perhaps
    LogWarning("{}", reply.text);
    return;
  }
  event.time = SystemClock().Wall();
  event.job = job;
  event.restart = ThisJobsRestarts();
  const std::string task = Environment("SLURM_ARRAY_TASK_ID");
  files.OpenForAppend(HistoryPath(submission, task))->Append(FormatJobEvent(event));
  if (event.type == job_event::kChained) slurm.Cancel(job);  // ends this agent, too
}

std::optional<std::string> ReadSign(const std::string& path) {
  try {
    return FileSystem::Real().ReadFile(path);
  } catch (const IoError&) {
    return std::nullopt;
  }
}

}  // namespace

std::string SignOfLifePath(const std::string& submission, const std::string& job, int restart) {
  return JoinPath(submission, fmt::format("alive-{}-{}", job, restart));
}

bool IsDeadNode(const std::string& state) {
  std::string lower = state;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  // "drained": none of its jobs runs there any more, while one that runs would keep it "draining".
  for (const char* dead : {"down", "drained", "fail", "powered", "power_down", "powering_down", "reboot"})
    if (lower.starts_with(dead)) return true;
  return false;
}

void SeeToLostCoordinator() {
  const std::string host = Environment(kBatchHostVariable), submission = Environment(kSubmissionVariable);
  const std::string job = ThisJob();
  if (host.empty() || submission.empty() || job.empty()) return;
  const std::string sign = SignOfLifePath(submission, job, ThisJobsRestarts());
  const std::optional<std::string> before = ReadSign(sign);
  const Slurm slurm;
  const SystemClock clock;
  const double until = clock.Monotonic() + kPatience;
  while (clock.Monotonic() < until) {
    std::this_thread::sleep_for(kPause);
    const std::optional<std::string> now = ReadSign(sign);
    if (!now || now != before) return;  // the batch process has ended, or lives
    if (IsDeadNode(slurm.NodeState(host).value_or(""))) return GoOn(slurm, job, host, submission);
  }
}

}  // namespace headsweep
