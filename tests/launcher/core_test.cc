// The scheduler core, one rule a test. Random schedules are in simulation_test.cc.
#include "launcher/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "cluster/base/errors.h"
#include "launcher/failure_policy.h"
#include "tests/launcher/core_driver.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

using testing::Child;
using testing::CoreDriver;
using ::testing::HasSubstr;
using testing::Root;

// --- Order
// ----------------------------------------------------------------------------------------------------------------

TEST(Core, RunsAStageAndEndsTheSweep) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  EXPECT_EQ(core.started(), "a.1@0:0");
  core.Finish("a", 1);
  EXPECT_EQ(core.exit_code(), kExitDone);
  EXPECT_EQ(core.recorded(), "attempt-started attempt-ended sweep-ended");
}

TEST(Core, OfNoStagesEndsAtOnce) {
  CoreDriver core({});
  core.Join(0, 1);
  EXPECT_EQ(core.exit_code(), kExitDone);
}

TEST(Core, StartsAChildOnlyWhenItsParentHasFinished) {
  CoreDriver core({Root("a"), Child("b", "a")});
  core.Join(0, 2);
  EXPECT_EQ(core.started(), "a.1@0:0");
  core.Finish("a", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:0");
}

TEST(Core, StartsTheLongestFirst) {
  CoreDriver core({Root("short", 1), Root("long", 9), Root("middle", 5)});
  core.Join(0, 2);
  EXPECT_EQ(core.started(), "long.1@0:0 middle.1@0:1");
}

TEST(Core, CountsWhatComesBehindAStageAsPartOfItsLength) {
  CoreDriver core({Root("alone", 5), Root("parent", 3), Child("child", "parent", 4)});
  core.Join(0, 1);
  EXPECT_EQ(core.started(), "parent.1@0:0");
}

TEST(Core, PrefersTheChildrenOfWhatIsFinished) {
  CoreDriver core({Root("a", 5), Root("b", 4), Root("c", 4), Child("a1", "a", 1)});
  core.Join(0, 1);
  core.Finish("a", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 a1.1@0:0");
}

TEST(Core, PrefersAStageThatDecidesWhenTheSweepEnds) {
  CoreDriver core({Root("a", 100), Root("b", 90), Root("c", 80), Child("a1", "a", 1)});
  core.Join(0, 2);
  core.Finish("a", 1);  // 171 units are left for two slots: c alone takes nearly half of the rest
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1 a1.1@0:0");
  core.Join(1, 8);  // and with ten slots it takes longer than everything else
  EXPECT_THAT(core.started(), HasSubstr(" c.1@1:0"));
}

TEST(Core, KeepsToThePlanAmongEquals) {
  CoreDriver core({Root("z"), Root("m"), Root("a")});
  core.Join(0, 3);
  EXPECT_EQ(core.started(), "z.1@0:0 m.1@0:1 a.1@0:2");
}

// --- Gangs
// ----------------------------------------------------------------------------------------------------------------

TEST(Core, StartsAGangOnlyOnAllItsSlots) {
  CoreDriver core({Root("gang", 8, 4)});
  core.Join(0, 2);
  EXPECT_EQ(core.started(), "");
  core.Join(1, 2);
  EXPECT_EQ(core.started(), "gang.1@0:0,0:1,1:0,1:1");
}

TEST(Core, PutsAGangOnOneNodeIfItCan) {
  CoreDriver core({Root("big", 90, 3), Root("gang", 8, 2)});
  core.Join(0, 4);
  EXPECT_EQ(core.started(), "big.1@0:0,0:1,0:2");
  core.Join(1, 2);
  EXPECT_EQ(core.started(), "big.1@0:0,0:1,0:2 gang.1@1:0,1:1");
}

TEST(SlotPool, FillsTheFullestNodeThatHasRoom) {
  SlotPool pool;
  pool.AddNode(NodeId(0), "a", 4);
  pool.AddNode(NodeId(1), "b", 1);
  pool.AddNode(NodeId(2), "c", 2);
  EXPECT_EQ(pool.Take(1), (std::vector<SlotId>{{NodeId(1), 0}}));
  EXPECT_EQ(pool.Take(1), (std::vector<SlotId>{{NodeId(2), 0}}));
  EXPECT_EQ(pool.Take(3), (std::vector<SlotId>{{NodeId(0), 0}, {NodeId(0), 1}, {NodeId(0), 2}}));
  EXPECT_EQ(pool.Take(2), (std::vector<SlotId>{{NodeId(0), 3}, {NodeId(2), 1}}));
  EXPECT_EQ(pool.free(), 0);
}

TEST(SlotPool, ForgetsTheSlotsOfALostNode) {
  SlotPool pool;
  pool.AddNode(NodeId(0), "a", 2);
  pool.AddNode(NodeId(1), "b", 2);
  const std::vector<SlotId> taken = pool.Take(3);
  pool.Quarantine(taken[0]);
  EXPECT_EQ(pool.usable(), 3);
  pool.RemoveNode(NodeId(0));
  pool.Restore(taken[0]);
  EXPECT_EQ(pool.total(), 2);
  pool.CheckInvariants({taken[2]});
}

TEST(Core, KeepsSlotsForAGangThatWaits) {
  // The gang is the longest after "a" and "b"; many short ones are behind it.
  CoreDriver core(
      {Root("a", 99), Root("b", 98), Root("gang", 150, 2), Root("s1", 60), Root("s2", 60), Root("s3", 60)});
  core.Join(0, 2);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1");
  core.Progress("b", 1, 90, 100);
  core.Finish("a", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1")
      << "a short one would keep the gang waiting: b has little left";
  core.Finish("b", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1 gang.1@0:0,0:1");
}

TEST(Core, LetsAShortStagePassAGangThatWaitsLonger) {
  CoreDriver core({Root("a", 99), Root("b", 98), Root("gang", 90, 2), Root("short", 10), Root("long", 44)});
  core.Join(0, 2);
  core.Progress("b", 1, 80, 100);  // about 20 units left
  core.Finish("a", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1 short.1@0:0");
  core.Finish("short", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1 short.1@0:0") << "\"long\" would take longer than b";
}

TEST(Core, LetsOnlySoManyPassAGang) {
  std::vector<StageSpec> plan = {Root("a", 99), Root("gang", 120, 2)};  // 60 units of slot time
  for (int i = 0; i < 9; ++i) plan.push_back(Root("s" + std::to_string(i), 1));
  CoreDriver core(plan);
  core.Join(0, 2);  // a starts; its progress is never reported, so the estimate of its end is wrong for ever
  int passed = 0;
  while (core.state("s" + std::to_string(passed)) == StageState::kRunning) {
    core.Finish("s" + std::to_string(passed), 1);
    ++passed;
  }
  EXPECT_EQ(passed, 2) << core.started();
  core.Finish("a", 1);
  EXPECT_EQ(core.state("gang"), StageState::kRunning);
}

TEST(Core, DoesNotHoldUpOthersForAGangThatFitsNowhere) {
  CoreDriver core({Root("gang", 99, 4), Root("a", 1), Root("b", 1)});
  core.Join(0, 1);
  EXPECT_EQ(core.started(), "a.1@0:0");
  core.Finish("a", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:0");
}

TEST(Core, EndsWithAnErrorWhenAGangFitsNowhere) {
  CoreDriver core({Root("gang", 99, 4)});
  core.Join(0, 2);
  core.AdvanceTo(59);
  EXPECT_EQ(core.exit_code(), std::nullopt) << "another node may still join";
  core.AdvanceTo(61);
  EXPECT_EQ(core.exit_code(), kExitUsage);
  EXPECT_THAT(core.exit_reason(), HasSubstr("need at least 4 slots at once, but there are 2"));
}

TEST(Core, EndsResumableWhenALostNodeLeavesTooFewSlotsForAGang) {
  CoreDriver core({Root("gang", 99, 4)});
  core.Join(0, 2);
  core.Join(1, 2);
  core.Lose(1);
  EXPECT_EQ(core.killed(), "gang.1");
  core.Fail("gang", 1, "signal");
  core.AdvanceTo(61);
  EXPECT_EQ(core.exit_code(), kExitResumable);
}

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

std::vector<StageSpec> Many(int count, int retries = 0) {
  std::vector<StageSpec> plan;
  for (int i = 0; i < count; ++i) plan.push_back(Root("s" + std::to_string(i), 1, 1, retries));
  return plan;
}

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

// --- Nodes
// ----------------------------------------------------------------------------------------------------------------

TEST(Core, MovesTheAttemptsOfALostNode) {
  CoreDriver core({Root("a", 2), Root("b")});
  core.Join(0, 1);
  core.Join(1, 1);
  core.Lose(0);
  EXPECT_EQ(core.state("a"), StageState::kReady);
  core.Finish("b", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@1:0 a.2@1:0");
  core.Finish("a", 1);
  EXPECT_EQ(core.state("a"), StageState::kRunning) << "a late message of the lost attempt changes nothing";
  core.Finish("a", 2);
  EXPECT_EQ(core.exit_code(), kExitDone);
}

TEST(Core, WaitsForTheRestOfAGangWhenOneOfItsNodesIsLost) {
  CoreDriver core({Root("gang", 1, 2)});
  core.Join(0, 1);
  core.Join(1, 1);
  core.Join(2, 1);
  core.Lose(1);
  EXPECT_EQ(core.killed(), "gang.1");
  EXPECT_EQ(core.started(), "gang.1@0:0,1:0") << "two attempts of a stage never live at once";
  core.Fail("gang", 1, "error", "a peer is gone");
  EXPECT_EQ(core.started(), "gang.1@0:0,1:0 gang.2@0:0,2:0");
  EXPECT_EQ(core.core().status(StageId("gang")).failures, 0);
}

TEST(Core, TakesANodeThatComesBackForANewOne) {
  CoreDriver core({Root("a"), Root("b")});
  core.Join(0, 1);
  core.Join(1, 1);
  core.Lose(1);
  core.Join(1, 2);
  EXPECT_EQ(core.core().slots(), 3);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@1:0 b.2@1:0");
}

TEST(Core, EndsResumableWhenAllNodesAreLost) {
  CoreDriver core({Root("a"), Root("b")});
  core.Join(0, 1);
  core.Lose(0);
  EXPECT_EQ(core.exit_code(), kExitResumable);
  EXPECT_EQ(core.recorded(), "attempt-started attempt-ended sweep-ended");
}

TEST(Core, LeavesOutASlotOnWhichStageAfterStageFails) {
  CoreDriver core(Many(40, /*retries=*/5));
  core.Join(0, 2);
  // Slot 1 is broken: whatever runs there crashes.
  for (int round = 0; round < 3; ++round) {
    for (const StageSpec& spec : core.core().plan()) {
      const StageStatus& status = core.core().status(spec.id);
      if (status.state != StageState::kRunning) continue;
      if (status.slots[0].index == 1) {
        core.Fail(spec.id.value(), status.attempt.value(), control::kCauseDevice, "ECC error");
      } else {
        core.Finish(spec.id.value(), status.attempt.value());
      }
      break;
    }
    for (const StageSpec& spec : core.core().plan()) {
      const StageStatus& status = core.core().status(spec.id);
      if (status.state != StageState::kRunning || status.slots[0].index != 1) continue;
      core.Fail(spec.id.value(), status.attempt.value(), control::kCauseDevice, "ECC error");
      break;
    }
  }
  EXPECT_EQ(core.core().slots(), 1);
  EXPECT_THAT(core.notices(), HasSubstr("slot 1 of node 0 (host0) is left out for 600 s"));
}

TEST(Core, TriesALeftOutSlotAgainLater) {
  CorePolicy policy;
  policy.slot_failure_limit = 1;
  policy.hang_floor_seconds = 1e6;
  CoreDriver core(Many(10, /*retries=*/5), policy);
  core.Join(0, 2);
  core.Fail("s1", 1, control::kCauseDevice);
  EXPECT_EQ(core.core().slots(), 1);
  core.AdvanceTo(599);
  EXPECT_EQ(core.core().slots(), 1);
  core.Forget();
  core.AdvanceTo(600);
  EXPECT_EQ(core.core().slots(), 2);
  EXPECT_EQ(core.started(), "s1.2@0:1");
  core.Fail("s1", 2, control::kCauseDevice);
  EXPECT_EQ(core.core().slots(), 1) << "the probe failed";
}

TEST(Core, NeverLeavesOutMoreThanHalfOfTheSlots) {
  CorePolicy policy;
  policy.slot_failure_limit = 1;
  CoreDriver core(Many(10, /*retries=*/5), policy);
  core.Join(0, 3);
  for (const char* stage : {"s0", "s1", "s2"}) core.Fail(stage, 1, control::kCauseDevice);
  EXPECT_EQ(core.core().slots(), 2);
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

// --- Idempotence
// ----------------------------------------------------------------------------------------------------------

TEST(Core, IgnoresWhatItDoesNotKnow) {
  CoreDriver core({Root("a", 2), Root("b")});
  core.Join(0, 1);
  core.Forget();
  core.Finish("nobody", 1);
  core.Finish("a", 2);
  core.Finish("a", 0);
  core.Finish("b", 1);
  core.Progress("b", 1, 5);
  core.Checkpoint("b", 1, 5);
  core.Lose(7);
  core.Join(0, 4);
  EXPECT_EQ(core.recorded(), "");
  EXPECT_EQ(core.core().slots(), 1);
}

TEST(Core, IgnoresTheSameMessageTwice) {
  CoreDriver core({Root("a", 2), Root("b"), Root("c")});
  core.Join(0, 1);
  core.Finish("a", 1);
  core.Finish("a", 1);
  core.Fail("a", 1, "signal");
  EXPECT_EQ(core.state("a"), StageState::kFinished);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:0");
  core.Checkpoint("b", 1, 5);
  core.Checkpoint("b", 1, 5);
  core.Checkpoint("b", 1, 4);
  EXPECT_EQ(core.recorded(), "attempt-started attempt-ended attempt-started checkpointed");
}

TEST(Core, SaysNothingAfterTheEnd) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  core.Finish("a", 1);
  core.Forget();
  core.Join(1, 1);
  core.RequestStop();
  EXPECT_EQ(core.recorded(), "");
}

TEST(Core, RecordsBeforeItActs) {
  Core core({Root("a"), Root("b")}, {}, {}, {});
  bool acted = false;
  for (const Command& command : core.Handle(NodeJoined{NodeId(0), "host", 2}, 0)) {
    acted = acted || !std::holds_alternative<Record>(command);
    EXPECT_FALSE(acted && std::holds_alternative<Record>(command));
  }
  EXPECT_TRUE(acted);
}

// --- A new launch
// ---------------------------------------------------------------------------------------------------------

using Done = std::map<StageId, std::string>;

TEST(CoreReplay, GoesOnWithNewAttemptNumbers) {
  CoreDriver first({Root("a", 2), Root("b")});
  first.Join(0, 2);
  first.Finish("b", 1);
  first.Checkpoint("a", 1, 50);
  CoreDriver second({Root("a", 2), Root("b")}, {}, first.journal(), Done{{StageId("b"), "{}"}});
  EXPECT_EQ(second.core().status(StageId("a")).step, 50);
  second.Join(0, 2);
  EXPECT_EQ(second.started(), "a.2@0:0");
  EXPECT_EQ(second.recorded(), "attempt-started") << "b is not adopted again";
}

TEST(CoreReplay, GivesEveryLaunchOfAPersonAFreshBudget) {
  CoreDriver first({Root("a", 1, 1, 0), Child("b", "a")});
  first.Join(0, 1);
  first.Fail("a", 1, control::kCauseConfiguration);
  EXPECT_EQ(first.state("b"), StageState::kSkipped);
  CoreDriver second({Root("a", 1, 1, 0), Child("b", "a")}, {}, first.journal());
  second.Join(0, 1);
  EXPECT_EQ(second.started(), "a.2@0:0");
}

JournalEvent Launched(bool automatic) {
  JournalEvent event;
  event.type = journal::kSweepStarted;
  if (automatic) event.fields["automatic"] = "yes";
  return event;
}

TEST(CoreReplay, KeepsTheFailuresOfAnAutomaticRestart) {
  CorePolicy requeued;
  requeued.automatic_restart = true;
  CoreDriver first({Root("a", 1, 1, 1), Root("b")});
  first.Join(0, 2);
  first.Fail("a", 1, "signal");
  std::vector<JournalEvent> history = {Launched(false)};
  history.insert(history.end(), first.journal().begin(), first.journal().end());
  CoreDriver second({Root("a", 1, 1, 1), Root("b")}, requeued, history);
  EXPECT_EQ(second.core().status(StageId("a")).failures, 1);
  second.Join(0, 2);
  second.Fail("a", 2, "signal");
  EXPECT_EQ(second.state("a"), StageState::kFailed);

  history.push_back(Launched(true));
  history.insert(history.end(), second.journal().begin(), second.journal().end());
  CoreDriver third({Root("a", 1, 1, 1), Root("b")}, requeued, history);
  EXPECT_EQ(third.state("a"), StageState::kFailed) << "a requeue is no new budget";

  history.push_back(Launched(false));
  CoreDriver fourth({Root("a", 1, 1, 1), Root("b")}, requeued, history);
  EXPECT_EQ(fourth.state("a"), StageState::kReady) << "a person started it since";
}

TEST(CoreReplay, RemembersThatMemoryWasShort) {
  CoreDriver first({Root("a")});
  first.Join(0, 1);
  first.Fail("a", 1, control::kCauseOutOfMemory);
  CoreDriver second({Root("a")}, {}, first.journal());
  second.Join(0, 1);
  EXPECT_EQ(second.divisor(), 2);
}

TEST(CoreReplay, AdoptsResultsThatTheJournalDoesNotKnow) {
  CoreDriver core({Root("a"), Child("b", "a"), Root("c")}, {}, {},
                  Done{{StageId("a"), "{}"}, {StageId("c"), R"({"outcome": "diverged"})"}});
  EXPECT_EQ(core.state("a"), StageState::kFinished);
  EXPECT_EQ(core.state("c"), StageState::kDiverged);
  core.Join(0, 1);
  EXPECT_EQ(core.recorded(), "stage-adopted stage-adopted attempt-started");
  EXPECT_EQ(core.started(), "b.1@0:0");
  CoreDriver again({Root("a"), Child("b", "a"), Root("c")}, {}, core.journal(),
                   Done{{StageId("a"), "{}"}, {StageId("c"), ""}});
  EXPECT_EQ(again.state("c"), StageState::kDiverged) << "the journal remembers what the summary does not say";
}

TEST(CoreReplay, EndsAtOnceWhenEverythingIsThere) {
  CoreDriver core({Root("a")}, {}, {}, Done{{StageId("a"), "{}"}});
  core.Join(0, 1);
  EXPECT_EQ(core.exit_code(), kExitDone);
  EXPECT_EQ(core.recorded(), "stage-adopted sweep-ended");
}

TEST(CoreReplay, RunsAgainWhatLostItsResult) {
  CoreDriver first({Root("a"), Root("b")});
  first.Join(0, 2);
  first.Finish("a", 1);
  first.Finish("b", 1);
  CoreDriver second({Root("a"), Root("b")}, {}, first.journal(), Done{{StageId("b"), "{}"}});
  second.Join(0, 2);
  EXPECT_EQ(second.started(), "a.2@0:0");
}

TEST(CoreReplay, IgnoresStagesThatTheSweepNoLongerHasAndTypesItDoesNotKnow) {
  CoreDriver first({Root("a"), Root("b")});
  first.Join(0, 2);
  first.Finish("a", 1);
  std::vector<JournalEvent> history = first.journal();
  history.push_back({"colour-chosen", 0, "b", 0, {{"colour", "blue"}}});
  CoreDriver second({Root("b"), Root("c")}, {}, history);
  second.Join(0, 2);
  EXPECT_EQ(second.started(), "b.2@0:0 c.1@0:1");
}

TEST(CoreReplay, KeepsTheResultOfAChildWhoseParentRunsAgain) {
  CoreDriver core({Root("a"), Child("b", "a"), Child("c", "a")}, {}, {}, Done{{StageId("b"), "{}"}});
  core.Join(0, 2);
  EXPECT_EQ(core.started(), "a.1@0:0");
  core.Finish("a", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 c.1@0:0");
}

// --- Sizes and misuse
// -----------------------------------------------------------------------------------------------------

TEST(Core, HandlesAHundredThousandStages) {
  std::vector<StageSpec> plan;
  for (int i = 0; i < 20000; ++i) {
    const std::string parent = fmt::format("t{}", i);
    plan.push_back(Root(parent, 1 + i % 97));
    for (int k = 0; k < 4; ++k) plan.push_back(Child(fmt::format("{}.{}", parent, k), parent));
  }
  Core core(plan, {}, {}, {});
  std::deque<std::pair<StageId, Attempt>> running;
  std::optional<int> exit_code;
  const auto handle = [&](const Event& event) {
    for (const Command& command : core.Handle(event, 0)) {
      if (const auto* start = std::get_if<StartAttempt>(&command))
        running.push_back({start->stage, start->attempt});
      if (const auto* end = std::get_if<EndSweep>(&command)) exit_code = end->exit_code;
    }
  };
  handle(NodeJoined{NodeId(0), "host", 64});
  for (int finished = 0; !running.empty(); ++finished) {
    const auto [stage, attempt] = running.front();
    running.pop_front();
    handle(AttemptEnded{stage, attempt, control::kFinished, "", "", "{}"});
  }
  EXPECT_EQ(exit_code, kExitDone);
  EXPECT_EQ(core.counts().finished, 100000);
  core.CheckInvariants();
}

TEST(CoreDeath, RefusesABrokenPlan) {
  EXPECT_DEATH(Core({Root("a"), Root("a")}, {}, {}, {}), "twice in the plan");
  EXPECT_DEATH(Core({Child("a", "b")}, {}, {}, {}), "not in the plan");
  EXPECT_DEATH(Core({Child("a", "b"), Child("b", "a")}, {}, {}, {}), "in a circle");
  EXPECT_DEATH(Core({Root("a", 1, 0)}, {}, {}, {}), "needs 0 slots");
}

TEST(CoreDeath, RefusesAClockThatGoesBack) {
  Core core({Root("a")}, {}, {}, {});
  core.Handle(Tick{}, 5);
  EXPECT_DEATH(core.Handle(Tick{}, 4), "the clock went back");
}

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
