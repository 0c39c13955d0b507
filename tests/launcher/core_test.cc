// The scheduler core, one rule a test: what runs when and where. Failures: core_failure_test.cc; what a new
// launch makes of the history: core_replay_test.cc; random schedules: simulation_test.cc.
#include "launcher/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "cluster/base/errors.h"
#include "tests/launcher/core_driver.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

using testing::Child;
using testing::CoreDriver;
using ::testing::HasSubstr;
using testing::Many;
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

TEST(Core, AHigherPriorityGoesFirstThenTheLongest) {
  std::vector<StageSpec> plan = {Root("long", 9), Root("first", 1), Root("late", 100), Child("first-child", "first"),
                                 Root("gang", 1, 2)};
  plan[1].priority = plan[3].priority = 5;
  plan[2].priority = -1;
  plan[4].priority = 7;
  CoreDriver core(plan);
  core.Join(0, 1);
  EXPECT_EQ(core.started(), "first.1@0:0") << "the gang has the highest, but does not fit";
  core.Finish("first", 1);
  core.Finish("first-child", 1);
  core.Finish("long", 1);
  EXPECT_EQ(core.started(), "first.1@0:0 first-child.1@0:0 long.1@0:0 late.1@0:0");
  core.Join(1, 1);
  core.Finish("late", 1);
  EXPECT_EQ(core.started(), "first.1@0:0 first-child.1@0:0 long.1@0:0 late.1@0:0 gang.1@0:0,1:0");
}

TEST(Core, AheadOfTheTimeLimitEverythingIsCheckpointed) {
  CorePolicy policy;
  policy.time_limit_lead_seconds = 20;
  CoreDriver core(Many(3), policy);
  core.Join(0, 2);
  core.Limit(100);
  core.AdvanceTo(79);
  EXPECT_EQ(core.stopped(), "");
  core.AdvanceTo(80);
  EXPECT_EQ(core.stopped(), "s0.1 s1.1");
  core.Stopped("s0", 1);
  core.Stopped("s1", 1);
  EXPECT_EQ(core.exit_code(), 75);
  EXPECT_NE(core.exit_reason().find("the allocation's time limit"), std::string::npos) << core.exit_reason();
}

TEST(Core, NothingIsStartedThatWouldHardlyGetUnderWay) {
  CorePolicy policy;
  policy.time_limit_lead_seconds = 20;
  CoreDriver core(Many(3), policy);
  core.Join(0, 1);
  core.Limit(100);
  core.AdvanceTo(15);
  core.Progress("s0", 1, 1);  // it took 15 s to get under way
  core.AdvanceTo(49);
  core.Finish("s0", 1);
  EXPECT_EQ(core.started(), "s0.1@0:0 s1.1@0:0") << "80 - 49 s are more than twice that";
  core.AdvanceTo(51);
  core.Finish("s1", 1);
  EXPECT_EQ(core.started(), "s0.1@0:0 s1.1@0:0");
  EXPECT_EQ(core.exit_code(), 75) << "rather than to wait for the end";
  EXPECT_NE(core.exit_reason().find("too short to start more"), std::string::npos) << core.exit_reason();
}

TEST(Core, ALongerAllocationLiftsTheLimit) {
  CorePolicy policy;
  policy.time_limit_lead_seconds = 20;
  CoreDriver core(Many(1), policy);
  core.Join(0, 1);
  core.Limit(30);
  core.Limit(1000);
  core.AdvanceTo(100);
  EXPECT_EQ(core.stopped(), "");
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
  while (passed < 9 && core.state("s" + std::to_string(passed)) == StageState::kRunning) {
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

TEST(CoreRequests, WhilePausedNothingStartsAndTheSweepDoesNotEnd) {
  CoreDriver driver(Many(3));
  driver.Join(0, 1);
  driver.Pause(true);
  driver.Forget();
  driver.Finish("s0", 1);
  driver.AdvanceTo(300);
  EXPECT_EQ(driver.started(), "");
  EXPECT_FALSE(driver.exit_code().has_value());
  driver.Pause(false);
  EXPECT_EQ(driver.started(), "s1.1@0:0");
}

TEST(CoreRequests, APausedSweepCanBeStopped) {
  CoreDriver driver(Many(2));
  driver.Join(0, 1);
  driver.Pause(true);
  driver.RequestStop();
  driver.Stopped("s0", 1);
  EXPECT_EQ(driver.exit_code(), 75);
}

TEST(CoreRequests, ARetryForgivesAFailureAndWhatWasSkippedBecauseOfIt) {
  CoreDriver driver({Root("a", 9, 1, 0), Child("b", "a"), Child("c", "b"), Root("z", 1)});
  driver.Join(0, 1);
  driver.Fail("a", 1, control::kCauseError);
  EXPECT_EQ(driver.state("a"), StageState::kFailed);
  EXPECT_EQ(driver.state("c"), StageState::kSkipped);
  const double left = driver.core().total_flops();
  driver.Retry({"a"});
  EXPECT_EQ(driver.state("a"), StageState::kReady);
  EXPECT_EQ(driver.state("b"), StageState::kWaiting);
  EXPECT_EQ(driver.state("c"), StageState::kWaiting);
  EXPECT_GT(driver.core().total_flops(), left);
  driver.Finish("z", 1);
  driver.Finish("a", 2);
  driver.Finish("b", 1);
  driver.Finish("c", 1);
  EXPECT_EQ(driver.exit_code(), 0);
}

TEST(CoreRequests, ARetryIsRememberedByAnAutomaticRestart) {
  CoreDriver before({Root("a", 9, 1, 0), Root("z", 1)});
  before.Join(0, 1);
  before.Fail("a", 1, control::kCauseError);
  before.Retry({});
  CorePolicy requeued;
  requeued.automatic_restart = true;
  CoreDriver after({Root("a", 9, 1, 0), Root("z", 1)}, requeued, before.journal());
  EXPECT_EQ(after.state("a"), StageState::kReady);
}

}  // namespace
}  // namespace headsweep
