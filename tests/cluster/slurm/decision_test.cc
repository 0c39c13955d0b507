#include "cluster/slurm/decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/base/errors.h"
#include "launcher/batch.h"
#include "launcher/lost_coordinator.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;

RunEnd Unfinished() {
  RunEnd end;
  end.coordinator = kExitResumable;
  end.srun = kExitResumable;
  end.progress_after = 1;
  return end;
}

TEST(JobDecision, AnUnfinishedSweepGoesOn) {
  const RunDecision decision = DecideAfterRun(Unfinished());
  EXPECT_TRUE(decision.again);
  EXPECT_EQ(decision.exit_code, kExitResumable);
  EXPECT_FALSE(decision.futile);
}

TEST(JobDecision, TheCoordinatorsWordCountsNotSruns) {
  RunEnd end = Unfinished();
  end.coordinator = kExitDone;
  end.srun = 137;  // the agent of a lost node
  EXPECT_FALSE(DecideAfterRun(end).again);
  EXPECT_EQ(DecideAfterRun(end).exit_code, kExitDone);
}

TEST(JobDecision, FailuresAndWrongUseAreForPeople) {
  RunEnd end = Unfinished();
  end.coordinator = kExitFailed;
  EXPECT_FALSE(DecideAfterRun(end).again);
  EXPECT_EQ(DecideAfterRun(end).exit_code, kExitFailed);
  end.coordinator = kExitUsage;
  EXPECT_FALSE(DecideAfterRun(end).again);
  EXPECT_EQ(DecideAfterRun(end).exit_code, kExitUsage);
}

TEST(JobDecision, WhoCancelledGetsItCancelled) {
  RunEnd end = Unfinished();
  end.cancelled_by = "anna on login1";
  const RunDecision decision = DecideAfterRun(end);
  EXPECT_FALSE(decision.again);
  EXPECT_THAT(decision.reason, HasSubstr("anna on login1"));
}

TEST(JobDecision, AJobThatSlurmEndsIsSlurmsToRequeue) {
  RunEnd end = Unfinished();
  end.slurm_ends_job = true;
  EXPECT_FALSE(DecideAfterRun(end).again);
  end.at_time_limit = true;
  EXPECT_TRUE(DecideAfterRun(end).again) << "after a time limit Slurm does nothing";
}

TEST(JobDecision, DeadAgentsAreStartedAgainOnlyWhileItMoves) {
  RunEnd end;
  end.srun = 139;
  RunDecision decision = DecideAfterRun(end);
  EXPECT_TRUE(decision.again);
  EXPECT_TRUE(decision.futile);
  end.futile_before = kMostFutileRuns - 1;
  decision = DecideAfterRun(end);
  EXPECT_FALSE(decision.again);
  EXPECT_EQ(decision.exit_code, kExitFailed);
  EXPECT_THAT(decision.reason, HasSubstr("signal 11")) << "the reason is shown";
  end.progress_after = 1;
  EXPECT_TRUE(DecideAfterRun(end).again) << "it moved";
}

TEST(JobDecision, RequeuesHaveACap) {
  RunEnd end = Unfinished();
  end.requeues = end.most_requeues = 7;
  const RunDecision decision = DecideAfterRun(end);
  EXPECT_FALSE(decision.again);
  EXPECT_EQ(decision.exit_code, kExitResumable);
  EXPECT_THAT(decision.reason, HasSubstr("7 times"));
}

TEST(LostCoordinator, OnlyANodeThatSlurmTakesForDeadIsGivenUp) {
  for (const char* dead : {"down", "down*", "DOWN*+DRAIN", "drained*", "fail", "powered_down"}) EXPECT_TRUE(IsDeadNode(dead)) << dead;
  for (const char* other : {"", "allocated", "mixed", "idle", "draining", "mixed*", "allocated*"})
    EXPECT_FALSE(IsDeadNode(other)) << other;
}

TEST(JobDecision, ProgressGrowsWithCheckpointsAndResultsAlone) {
  const auto event = [](const char* type, const char* stage, std::map<std::string, std::string> fields) {
    JournalEvent made;
    made.type = type;
    made.stage = stage;
    made.attempt = 1;
    made.fields = std::move(fields);
    return made;
  };
  std::vector<JournalEvent> events = {event(journal::kSweepStarted, "", {}), event(journal::kAttemptStarted, "a", {})};
  EXPECT_EQ(ProgressOf(events), 0);
  events.push_back(event(journal::kCheckpointed, "a", {{"step", "8"}}));
  EXPECT_EQ(ProgressOf(events), 8);
  events.push_back(event(journal::kCheckpointed, "a", {{"step", "4"}}));
  EXPECT_EQ(ProgressOf(events), 8) << "the same steps again are no progress";
  events.push_back(event(journal::kAttemptEnded, "a", {{"outcome", "failed"}}));
  EXPECT_EQ(ProgressOf(events), 8);
  events.push_back(event(journal::kAttemptEnded, "a", {{"outcome", "finished"}}));
  EXPECT_GT(ProgressOf(events), 1000);
}

}  // namespace
}  // namespace headsweep
