#include "launcher/job_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/base/errors.h"
#include "launcher/submission_state.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobRecord SomeRecord() {
  JobRecord record;
  record.sweep = "heads \"and\" tails";
  record.file = "/home/anna/heads.toml";
  record.comment = "headsweep-0123456789abcdef";
  record.job = "7";
  record.time = 1767225600.5;
  record.by = "anna on login1";
  record.options = {"--slots=2"};
  record.request.nodes = "3";
  record.request.gpus_per_node = 2;
  record.request.setup = {"module load x"};
  return record;
}

Submission SomeSubmission() {
  Submission submission;
  submission.number = 1;
  submission.record = SomeRecord();
  return submission;
}

SlurmJob Job(const std::string& id, const std::string& state) {
  SlurmJob job;
  job.id = id;
  job.state = state;
  job.phase = PhaseOf(state);
  job.nodes = "n1";
  job.reason = "Resources";
  job.seconds_left = 600;
  return job;
}

TEST(JobRecord, ComesBackAsItWasWritten) {
  EXPECT_EQ(ParseJobRecord(FormatJobRecord(SomeRecord()), "x"), SomeRecord());
  EXPECT_THROW(ParseJobRecord("{}", "x"), IoError);
  EXPECT_THROW(ParseJobRecord("", "x"), IoError);
}

TEST(JobRecord, EventsComeBackAndDamagedLinesAreLeftOut) {
  JobEvent event;
  event.type = job_event::kEnded;
  event.job = "7_3";
  event.restart = 2;
  event.reason = "two\nlines";
  event.again = true;
  const std::string line = FormatJobEvent(event);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_THAT(ParseJobEvents(line + "{\"type\": \"ended\"\n" + line + line.substr(0, 20)), ElementsAre(event, event));
}

TEST(JobRecord, SubmissionsAreNumberedAndRead) {
  const testing::TempDir temp;
  FileSystem& files = FileSystem::Real();
  const Workspace workspace(temp.path());
  for (const char* number : {"1", "2"}) {
    const std::string directory = MakeSubmissionDirectory(files, workspace, "s");
    EXPECT_EQ(BaseName(directory), number);
    files.WriteFile(directory + "/job.json", FormatJobRecord(SomeRecord()));
  }
  MakeSubmissionDirectory(files, workspace, "s");  // one that was killed before its record
  JobEvent chained;
  chained.type = job_event::kChained;
  chained.next = "9";
  files.WriteFile(workspace.Jobs("s") + "/2/history.jsonl", FormatJobEvent(chained));
  MarkCancelled(files, workspace.Jobs("s") + "/2", "anna");
  const std::vector<Submission> submissions = ReadSubmissions(files, workspace, "s");
  ASSERT_EQ(submissions.size(), 2u);
  EXPECT_THAT(submissions[1].Ids(), ElementsAre("7", "9"));
  EXPECT_EQ(submissions[0].cancelled_by, "");
  EXPECT_EQ(submissions[1].cancelled_by, "anna");
}

TEST(SubmissionState, NoAnswerIsUnknownNeverOver) {
  JobsAnswer silence;
  silence.problem = "squeue did not end";
  EXPECT_EQ(JudgeSubmission(SomeSubmission(), silence, 0).life, SubmissionLife::kUnknown);
  EXPECT_THAT(DescribeSubmission(SomeSubmission(), JudgeSubmission(SomeSubmission(), silence, 0), {}),
              ElementsAre(HasSubstr("unknown: squeue did not end")));
}

TEST(SubmissionState, WhatSlurmKnowsDecides) {
  const Submission submission = SomeSubmission();
  EXPECT_EQ(JudgeSubmission(submission, {true, {Job("7", "RUNNING")}, ""}, 0).life, SubmissionLife::kAlive);
  EXPECT_EQ(JudgeSubmission(submission, {true, {Job("7", "COMPLETING")}, ""}, 0).life, SubmissionLife::kAlive);
  EXPECT_EQ(JudgeSubmission(submission, {true, {Job("7", "TIMEOUT")}, ""}, 0).life, SubmissionLife::kOver);
  EXPECT_EQ(JudgeSubmission(submission, {true, {Job("7", "FAILED"), Job("9", "PENDING")}, ""}, 0).life,
            SubmissionLife::kAlive);
  EXPECT_EQ(JudgeSubmission(submission, {true, {}, ""}, 0).life, SubmissionLife::kOver) << "forgotten by Slurm";
}

TEST(SubmissionState, ASubmissionWithoutAnswerIsPerhapsStillBeingMade) {
  Submission submission = SomeSubmission();
  submission.record.job = "";
  const double made = submission.record.time;
  EXPECT_EQ(JudgeSubmission(submission, {true, {}, ""}, made + 1).life, SubmissionLife::kUnknown);
  EXPECT_EQ(JudgeSubmission(submission, {true, {}, ""}, made + 1000).life, SubmissionLife::kOver);
  EXPECT_EQ(JudgeSubmission(submission, {true, {Job("7", "PENDING")}, ""}, made + 1000).life, SubmissionLife::kAlive);
  submission.record.refused = "no such partition";
  EXPECT_EQ(JudgeSubmission(submission, {}, made).life, SubmissionLife::kOver);
}

TEST(SubmissionState, PeopleSeeWhyItWaitsAndWhatStillFits) {
  const Submission submission = SomeSubmission();
  const auto lines = [&](const SlurmJob& job, std::optional<double> needed) {
    return DescribeSubmission(submission, JudgeSubmission(submission, {true, {job}, ""}, 0), needed);
  };
  EXPECT_THAT(lines(Job("7", "PENDING"), {}), ElementsAre("job 7: pending (Resources)"));
  SlurmJob held = Job("7", "PENDING");
  held.reason = "launch failed requeued held";
  EXPECT_THAT(lines(held, {}), ElementsAre(HasSubstr("scontrol release 7")));
  EXPECT_THAT(lines(Job("7", "RUNNING"), {}), ElementsAre("job 7: running on n1, 00:10:00 left"));
  EXPECT_THAT(lines(Job("7", "RUNNING"), 60), ElementsAre(HasSubstr("the rest of the sweep fits")));
  EXPECT_THAT(lines(Job("7", "RUNNING"), 2400), ElementsAre(HasSubstr("needs about 00:40:00, so about 25 % of it fits")));
  EXPECT_THAT(lines(Job("7", "TIMEOUT"), {}), ElementsAre("job 7: over (TIMEOUT)"));
}

}  // namespace
}  // namespace headsweep
