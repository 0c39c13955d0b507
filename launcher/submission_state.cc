#include "launcher/submission_state.h"

#include <algorithm>
#include <cmath>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// A submission without an answer is perhaps still being made.
constexpr double kSubmittingSeconds = 120;

// job "7_3" belongs to the array "7".
bool IsOrIsTaskOf(const std::string& job, const std::string& id) { return job == id || job.starts_with(id + "_"); }

std::string LastWord(const Submission& submission) {
  for (auto event = submission.events.rbegin(); event != submission.events.rend(); ++event)
    if (!event->reason.empty()) return event->reason;
  return "";
}

// When the needed time does not fit into what is left.
std::string WhatFits(double seconds_left, std::optional<double> seconds_needed) {
  if (!seconds_needed || !(*seconds_needed > 0)) return "";
  if (*seconds_needed <= seconds_left) return "; the rest of the sweep fits";
  return fmt::format("; the rest of the sweep needs about {}, so about {:.0f} % of it fits",
                     FormatSlurmTime(*seconds_needed), std::floor(100 * seconds_left / *seconds_needed));
}

std::string DescribeJob(const SlurmJob& job, std::optional<double> seconds_needed) {
  std::string line = fmt::format("job {}: ", job.id);
  switch (job.phase) {
    case JobPhase::kPending:
      line += fmt::format("pending ({})", job.reason);
      if (!job.start.empty()) line += ", expected to start " + job.start;
      if (job.reason.find("held") != std::string::npos && job.reason.find("launch") != std::string::npos)
        line += fmt::format(": Slurm could not start it on its nodes, and holds it. When they are well: scontrol release {}", job.id);
      break;
    case JobPhase::kRunning:
      line += fmt::format("{} on {}", job.state == "RUNNING" ? "running" : job.state, job.nodes);
      if (job.seconds_left)
        line += fmt::format(", {} left{}", FormatSlurmTime(*job.seconds_left), WhatFits(*job.seconds_left, seconds_needed));
      break;
    case JobPhase::kEnding:
      line += "ending";
      break;
    case JobPhase::kOver:
      line += fmt::format("over ({})", job.state);
      break;
  }
  return line;
}

}  // namespace

SubmissionState JudgeSubmission(const Submission& submission, const JobsAnswer& answer, double now) {
  SubmissionState state;
  if (!submission.record.refused.empty()) {
    state.life = SubmissionLife::kOver;
    state.problem = "Slurm refused it: " + submission.record.refused;
    return state;
  }
  if (!answer.known) {
    state.problem = answer.problem;
    return state;
  }
  state.jobs = answer.jobs;
  const bool alive = std::any_of(state.jobs.begin(), state.jobs.end(),
                                 [](const SlurmJob& job) { return job.phase != JobPhase::kOver; });
  if (alive) {
    state.life = SubmissionLife::kAlive;
  } else if (submission.Ids().empty() && state.jobs.empty() && now < submission.record.time + kSubmittingSeconds) {
    state.problem = "sbatch has not answered yet";
  } else {
    state.life = SubmissionLife::kOver;
    state.problem = LastWord(submission);
  }
  return state;
}

std::vector<SubmissionState> AskSubmissions(const Slurm& slurm, const std::vector<Submission>& submissions, double now) {
  std::vector<std::string> all;
  for (const Submission& submission : submissions)
    for (const std::string& id : submission.Ids()) all.push_back(id);
  const JobsAnswer answer = slurm.Jobs(all);
  std::vector<SubmissionState> states;
  for (const Submission& submission : submissions) {
    const std::vector<std::string> ids = submission.Ids();
    if (ids.empty() && submission.record.refused.empty()) {
      states.push_back(JudgeSubmission(submission, slurm.JobsWithComment(submission.record.comment), now));
      continue;
    }
    JobsAnswer part = answer;
    std::erase_if(part.jobs, [&](const SlurmJob& job) {
      return std::none_of(ids.begin(), ids.end(), [&](const std::string& id) { return IsOrIsTaskOf(job.id, id); });
    });
    states.push_back(JudgeSubmission(submission, part, now));
  }
  return states;
}

std::vector<SubmissionView> LookAtSubmissions(const Slurm& slurm, const FileSystem& files, const Workspace& workspace,
                                              const std::string& sweep) {
  std::vector<Submission> submissions = ReadSubmissions(files, workspace, sweep);
  std::vector<SubmissionView> views;
  if (submissions.empty()) return views;
  const std::vector<SubmissionState> states = AskSubmissions(slurm, submissions, SystemClock().Wall());
  for (std::size_t i = 0; i < submissions.size(); ++i)
    if (states[i].life != SubmissionLife::kOver || i + 1 == submissions.size())
      views.push_back({std::move(submissions[i]), states[i]});
  return views;
}

const char* ToString(SubmissionLife life) {
  switch (life) {
    case SubmissionLife::kAlive:
      return "alive";
    case SubmissionLife::kOver:
      return "over";
    case SubmissionLife::kUnknown:
      return "unknown";
  }
  return "unknown";
}

std::string WordOf(const SweepState& sweep, const std::vector<SubmissionView>& views) {
  const std::string word = sweep.Word();
  if (sweep.launcher_may_live || word == "done") return word;
  if (AnyAlive(views)) return "submitted";
  return AnyUnknown(views) ? "unknown" : word;
}

bool AnyAlive(const std::vector<SubmissionView>& views) {
  return std::any_of(views.begin(), views.end(),
                     [](const SubmissionView& view) { return view.state.life == SubmissionLife::kAlive; });
}

bool AnyUnknown(const std::vector<SubmissionView>& views) {
  return std::any_of(views.begin(), views.end(),
                     [](const SubmissionView& view) { return view.state.life == SubmissionLife::kUnknown; });
}

std::vector<std::string> DescribeSubmission(const Submission& submission, const SubmissionState& state,
                                            std::optional<double> seconds_needed) {
  std::vector<std::string> lines;
  const std::vector<std::string> ids = submission.Ids();
  const std::string name = ids.empty() ? fmt::format("submission {}", submission.number) : "job " + ids.back();
  if (state.life == SubmissionLife::kUnknown) {
    lines.push_back(fmt::format("{}: unknown: {}", name, state.problem));
    return lines;
  }
  for (const SlurmJob& job : state.jobs) {
    // Of an array, or of several that went on for each other, those that are over say nothing new.
    if (job.phase == JobPhase::kOver && state.life == SubmissionLife::kAlive) continue;
    lines.push_back(DescribeJob(job, seconds_needed));
  }
  if (lines.empty()) lines.push_back(name + ": over");
  if (state.life == SubmissionLife::kOver && !state.problem.empty()) lines.back() += ": " + state.problem;
  if (!submission.cancelled_by.empty()) lines.back() += fmt::format("; cancelled by {}", submission.cancelled_by);
  return lines;
}

std::vector<std::string> SubmissionLines(const std::vector<SubmissionView>& views, std::optional<double> seconds_needed) {
  std::vector<std::string> lines;
  for (const auto& [submission, state] : views)
    for (std::string& line : DescribeSubmission(submission, state, seconds_needed)) lines.push_back(std::move(line));
  return lines;
}

}  // namespace headsweep
