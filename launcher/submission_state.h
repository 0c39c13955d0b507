// Where a submission stands, from its record and Slurm's answer: pure. What is not known for sure is unknown, and nothing
// is ever submitted again on the strength of that.
#pragma once

#include <string>
#include <vector>

#include "cluster/slurm/slurm.h"
#include "launcher/job_record.h"
#include "launcher/sweep_state.h"

namespace headsweep {

enum class SubmissionLife {
  kAlive,    // a job of it waits, runs, or is being cleared away
  kOver,     // none will run again by itself
  kUnknown,  // Slurm did not say
};

struct SubmissionState {
  SubmissionLife life = SubmissionLife::kUnknown;
  std::vector<SlurmJob> jobs;  // those that Slurm still remembers
  std::string problem;         // kUnknown: why; kOver: why it ended, if that is known
};

// answer: to a question for all of submission.Ids(), or, while it has none, for its comment. now: unix seconds.
SubmissionState JudgeSubmission(const Submission& submission, const JobsAnswer& answer, double now);

// Asks Slurm, once for all of them; the states are in the order of the submissions.
std::vector<SubmissionState> AskSubmissions(const Slurm& slurm, const std::vector<Submission>& submissions, double now);

// What is worth a person's look: those that are not over, and the latest.
struct SubmissionView {
  Submission submission;
  SubmissionState state;
};
std::vector<SubmissionView> LookAtSubmissions(const Slurm& slurm, const FileSystem& files, const Workspace& workspace,
                                              const std::string& sweep);
const char* ToString(SubmissionLife life);  // "alive", "over", "unknown"
// One word for the sweep (SweepState::Word), or "submitted" or "unknown" when no launcher lives but a job may.
std::string WordOf(const SweepState& sweep, const std::vector<SubmissionView>& views);
bool AnyAlive(const std::vector<SubmissionView>& views);
bool AnyUnknown(const std::vector<SubmissionView>& views);

// For people, a line a job: "job 7: running on n[0-2], 00:58:10 left". seconds_needed: of the rest of the sweep with the
// slots it has now, if known: says how much of it still fits.
std::vector<std::string> DescribeSubmission(const Submission& submission, const SubmissionState& state,
                                            std::optional<double> seconds_needed);
std::vector<std::string> SubmissionLines(const std::vector<SubmissionView>& views, std::optional<double> seconds_needed);

}  // namespace headsweep
