// The scheduler core, one rule a test: failures, hangs and stopping.
#include "launcher/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/base/errors.h"
#include "launcher/failure_policy.h"
#include "tests/launcher/core_driver.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

using testing::Child;
using testing::CoreDriver;
using ::testing::HasSubstr;
using testing::Many;
using testing::Root;

// --- Failures
// -------------------------------------------------------------------------------------------------------------

TEST(Core, RetriesAfterAWaitAndGivesUpWhenTheBudgetIsSpent) {
  for (const char* cause : {"signal", "exit", "error", "device", "a cause of a later version"}) {
    CoreDriver core({Root("a"), Child("b", "a")});
    core.Join(0, 1);
    core.Fail("a", 1, cause);
    EXPECT_EQ(core.started(), "a.1@0:0");
    core.AdvanceTo(1);
    EXPECT_EQ(core.started(), "a.1@0:0 a.2@0:0");
    core.Fail("a", 2, cause);
    core.AdvanceTo(4.5);
    EXPECT_EQ(core.started(), "a.1@0:0 a.2@0:0") << "the second wait is four seconds";
    core.AdvanceTo(5);
    EXPECT_EQ(core.started(), "a.1@0:0 a.2@0:0 a.3@0:0");
    core.Fail("a", 3, cause);
    EXPECT_EQ(core.state("a"), StageState::kFailed);
    EXPECT_EQ(core.state("b"), StageState::kSkipped);
    EXPECT_EQ(core.exit_code(), kExitFailed);
  }
}

TEST(Core, CountsOnlyWhatIsInACheckpointWhenAnAttemptFails) {
  CoreDriver core({Root("a", 100)});
  core.Join(0, 1);
  core.Progress("a", 1, 40, 100);
  core.Checkpoint("a", 1, 30);
  EXPECT_DOUBLE_EQ(core.core().finished_flops(), 40);
  core.Fail("a", 1, "signal");
  EXPECT_EQ(core.core().status(StageId("a")).step, 30);
  core.AdvanceTo(1);
  EXPECT_DOUBLE_EQ(core.core().finished_flops(), 30) << "the next attempt goes on from there";
}

TEST(Core, NeverRetriesAWrongConfiguration) {
  CoreDriver core({Root("a"), Root("b")});
  core.Join(0, 1);
  core.Fail("a", 1, control::kCauseConfiguration, "heads must be positive");
  EXPECT_EQ(core.state("a"), StageState::kFailed);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:0");
}

TEST(Core, DoesNotChargeWhatTheMachineDid) {
  CoreDriver core({Root("a", 1, 1, /*retries=*/0)});
  core.Join(0, 1);
  core.Progress("a", 1, 5);
  core.Stopped("a", 1);
  EXPECT_EQ(core.state("a"), StageState::kRunning);
  core.Join(1, 1);
  core.Lose(0);
  EXPECT_EQ(core.started(), "a.1@0:0 a.2@0:0 a.3@1:0");
  EXPECT_EQ(core.core().status(StageId("a")).failures, 0);
}

TEST(Core, ChargesAStageThatIsStoppedAgainAndAgainWithoutAStepDone) {
  CorePolicy policy;
  policy.hang_floor_seconds = 1e6;
  CoreDriver core({Root("a", 1, 1, /*retries=*/0)}, policy);
  core.Join(0, 1);
  int attempts = 0;
  while (!core.exit_code() && attempts < 100) {
    core.Stopped("a", ++attempts);
    core.AdvanceTo(1000.0 * attempts);
  }
  EXPECT_EQ(core.state("a"), StageState::kFailed);
  EXPECT_EQ(attempts, 11);
}

TEST(Core, HalvesTheMicroBatchAfterEachOutOfMemory) {
  CoreDriver core({Root("a", 1, 1, 3)});
  core.Join(0, 1);
  EXPECT_EQ(core.divisor(), 1);
  core.Fail("a", 1, control::kCauseOutOfMemory);
  core.AdvanceTo(10);
  EXPECT_EQ(core.divisor(), 2);
  core.Fail("a", 2, control::kCauseOutOfMemory);
  core.AdvanceTo(20);
  EXPECT_EQ(core.divisor(), 4);
  core.Fail("a", 3, "signal");
  core.AdvanceTo(40);
  EXPECT_EQ(core.divisor(), 4);
  EXPECT_EQ(core.core().status(StageId("a")).failures, 3);
}

TEST(Core, LeavesResumableWhenTheDiskIsFull) {
  CoreDriver core({Root("a", 2, 1, 0), Root("b"), Root("c")});
  core.Join(0, 2);
  core.Fail("a", 1, control::kCauseInputOutput, "write result.h5: No space left on device");
  EXPECT_EQ(core.stopped(), "b.1");
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1") << "nothing new is started";
  core.Stopped("b", 1);
  EXPECT_EQ(core.exit_code(), kExitResumable);
  EXPECT_THAT(core.exit_reason(), HasSubstr("No space left on device"));
  EXPECT_EQ(core.core().status(StageId("a")).failures, 0);
}

TEST(Core, TakesDivergenceForAResult) {
  CoreDriver core({Root("a"), Child("b", "a"), Root("c")});
  core.Join(0, 2);
  core.Diverge("a", 1);
  core.Finish("c", 1);
  EXPECT_EQ(core.state("a"), StageState::kDiverged);
  EXPECT_EQ(core.state("b"), StageState::kSkipped) << "there is nothing to prune";
  EXPECT_EQ(core.exit_code(), kExitFailed);
  CoreDriver alone({Root("a")});
  alone.Join(0, 1);
  alone.Diverge("a", 1);
  EXPECT_EQ(alone.exit_code(), kExitDone);
}

TEST(Core, SkipsEverythingBehindAFailedStage) {
  CoreDriver core({Root("a", 1, 1, 0), Child("b", "a"), Child("c", "b"), Root("d")});
  core.Join(0, 2);
  core.Finish("d", 1);
  core.Fail("a", 1, "error");
  EXPECT_EQ(core.state("b"), StageState::kSkipped);
  EXPECT_EQ(core.state("c"), StageState::kSkipped);
  EXPECT_EQ(core.exit_code(), kExitFailed);
}

// --- Failures common to all
// -----------------------------------------------------------------------------------------------

TEST(Core, StopsEarlyWhenTheSameMistakeFailsEveryStage) {
  CoreDriver core(Many(500));
  core.Join(0, 4);
  core.Fail("s0", 1, control::kCauseConfiguration, "s0: learning_rate 3 is too high, line 17");
  core.Fail("s1", 1, control::kCauseConfiguration, "s1: learning_rate 5 is too high, line 17");
  EXPECT_EQ(core.stopped(), "");
  core.Fail("s2", 1, control::kCauseConfiguration, "s2: learning_rate 7 is too high, line 17");
  EXPECT_EQ(core.stopped(), "s3.1 s4.1 s5.1");
  for (const char* stage : {"s3", "s4", "s5"}) core.Stopped(stage, 1);
  EXPECT_EQ(core.exit_code(), kExitUsage);
  EXPECT_THAT(core.exit_reason(), HasSubstr("is too high"));
  EXPECT_EQ(core.core().counts().ready, 497);
}

TEST(Core, StopsEarlyWithOneWhenTheCommonFailureIsACrash) {
  CoreDriver core(Many(500));
  core.Join(0, 1);
  for (const char* stage : {"s0", "s1", "s2"})
    core.Fail(stage, 1, "signal", "the trainer ended with signal 11");
  EXPECT_EQ(core.exit_code(), kExitFailed);
}

TEST(Core, GoesOnWhenTheFailuresDiffer) {
  CoreDriver core(Many(10));
  core.Join(0, 1);
  core.Fail("s0", 1, "error", "a");
  core.Fail("s1", 1, "error", "b");
  core.Fail("s2", 1, "signal", "a");
  core.Fail("s3", 1, "error", "c");
  EXPECT_EQ(core.state("s4"), StageState::kRunning);
}

TEST(Core, GoesOnWhenAnyStageHasEverFinished) {
  CoreDriver core(Many(10));
  core.Join(0, 1);
  core.Finish("s0", 1);
  for (int i = 1; i <= 8; ++i) core.Fail("s" + std::to_string(i), 1, control::kCauseConfiguration, "wrong");
  EXPECT_EQ(core.state("s9"), StageState::kRunning);

  CoreDriver earlier(Many(10), {}, {}, {{StageId("s5"), "{}"}});
  earlier.Join(0, 1);
  for (int i = 0; i <= 3; ++i)
    earlier.Fail("s" + std::to_string(i), 1, control::kCauseConfiguration, "wrong");
  EXPECT_EQ(earlier.state("s4"), StageState::kRunning);
}

TEST(Core, TellsAWrongConfigurationOfAnOnlyStage) {
  CoreDriver core({Root("a"), Child("b", "a")});
  core.Join(0, 1);
  core.Fail("a", 1, control::kCauseConfiguration, "no such corpus");
  EXPECT_EQ(core.exit_code(), kExitUsage);
}

// --- Hangs
// ----------------------------------------------------------------------------------------------------------------

TEST(Core, KillsAnAttemptThatShowsNoSignOfLifeAndTriesAgain) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  core.Progress("a", 1, 7);
  core.AdvanceTo(119);
  EXPECT_EQ(core.killed(), "");
  core.AdvanceTo(120);
  EXPECT_EQ(core.killed(), "a.1");
  EXPECT_EQ(core.started(), "a.1@0:0") << "not before its end is known";
  core.Fail("a", 1, "signal", "signal 9");
  EXPECT_EQ(core.core().status(StageId("a")).cause, "hang");
  EXPECT_EQ(core.core().status(StageId("a")).failures, 1);
  core.AdvanceTo(121);
  EXPECT_EQ(core.started(), "a.1@0:0 a.2@0:0");
}

TEST(Core, GivesASlowAttemptTheTimeItsOwnPaceAsksFor) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  for (int step = 0; step <= 10; ++step) {  // 30 s a step
    core.AdvanceTo(30.0 * step);
    core.Progress("a", 1, step);
  }
  core.AdvanceTo(300 + 20 * 30 - 1);
  EXPECT_EQ(core.killed(), "");
  core.AdvanceTo(300 + 20 * 30);
  EXPECT_EQ(core.killed(), "a.1");
}

TEST(Core, TakesAnyMessageForASignOfLife) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  for (int t = 0; t < 1000; t += 100) {
    core.AdvanceTo(t);
    core.Progress("a", 1, 3);  // a long evaluation
  }
  EXPECT_EQ(core.killed(), "");
}

TEST(Core, DoesNotTakeItsOwnSleepForAHang) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  core.Progress("a", 1, 1);
  core.JumpTo(36000);  // the laptop was closed: what the trainer said meanwhile has not been read yet
  EXPECT_EQ(core.killed(), "");
}

TEST(Core, RepeatsAKillWhoseEndIsNotReported) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  core.AdvanceTo(120);
  core.AdvanceTo(180);
  EXPECT_EQ(core.killed(), "a.1 a.1");
}

TEST(Core, KeepsAResultThatWasSealedWhileItWasKilled) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  core.AdvanceTo(120);
  core.Finish("a", 1);
  EXPECT_EQ(core.state("a"), StageState::kFinished);
}

// --- Stopping
// -------------------------------------------------------------------------------------------------------------

TEST(Core, StopsWhenAskedTo) {
  CoreDriver core({Root("a"), Root("b"), Root("c")});
  core.Join(0, 2);
  core.RequestStop();
  EXPECT_EQ(core.stopped(), "a.1 b.1");
  core.Stopped("a", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1") << "nothing new is started";
  core.Fail("b", 1, "signal", "Ctrl-C reaches the trainers too");
  EXPECT_EQ(core.core().status(StageId("b")).failures, 0);
  EXPECT_EQ(core.exit_code(), kExitResumable);
}

TEST(Core, EndsDoneWhenTheLastStageFinishedWhileItWasAskedToStop) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  core.RequestStop();
  core.Finish("a", 1);
  EXPECT_EQ(core.exit_code(), kExitDone);
}

TEST(Core, EndsAtOnceWhenNothingRuns) {
  CoreDriver core({Root("a", 1, 2)});
  core.Join(0, 1);
  core.RequestStop();
  EXPECT_EQ(core.exit_code(), kExitResumable);
}

TEST(Core, KillsAtTheSecondRequest) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  core.RequestStop();
  EXPECT_EQ(core.killed(), "");
  core.RequestStop();
  EXPECT_EQ(core.killed(), "a.1");
  core.Fail("a", 1, "signal");
  EXPECT_EQ(core.exit_code(), kExitResumable);
  EXPECT_EQ(core.core().status(StageId("a")).failures, 0);
}

TEST(Core, KillsWhatDoesNotStopInTime) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  core.RequestStop();
  core.AdvanceTo(59);
  EXPECT_EQ(core.killed(), "");
  core.AdvanceTo(60);
  EXPECT_EQ(core.killed(), "a.1");
}

// --- The policy by itself ---

TEST(FailurePolicy, BacksOffLongerEachTime) {
  EXPECT_EQ(BackoffSeconds(1), 1);
  EXPECT_EQ(BackoffSeconds(2), 4);
  EXPECT_EQ(BackoffSeconds(3), 16);
  EXPECT_EQ(BackoffSeconds(5), 256);
  EXPECT_EQ(BackoffSeconds(50), 256);
}

TEST(FailurePolicy, SignaturesLeaveOutWhatDiffersFromStageToStage) {
  EXPECT_EQ(FailureSignature("error", "a3f0: loss 17.5 at step 9\nstack", "a3f0"),
            FailureSignature("error", "77b1: loss 2.25 at step 1000\nother", "77b1"));
  EXPECT_NE(FailureSignature("error", "no such corpus", "a"),
            FailureSignature("signal", "no such corpus", "a"));
  EXPECT_NE(FailureSignature("error", "no such corpus", "x"),
            FailureSignature("error", "no such model", "x"));
}

}  // namespace
}  // namespace headsweep
