// The scheduler core beside other launchers: claims, what it hears of them, and leases that are lost.
#include <gtest/gtest.h>

#include "launcher/failure_policy.h"
#include "launcher/history.h"
#include "tests/launcher/core_driver.h"

namespace headsweep {
namespace {

using namespace testing;

const CorePolicy kShared = [] {
  CorePolicy policy;
  policy.shared = true;
  return policy;
}();

TEST(SharedCore, StartsOnlyWhatItWasGranted) {
  CoreDriver core({Root("a", 3), Root("b", 2), Root("c", 1)}, kShared);
  core.Join(0, 2);
  EXPECT_EQ(core.claimed(), "a.1 b.1");
  EXPECT_EQ(core.started(), "");
  core.Grant("a", 4);
  EXPECT_EQ(core.started(), "a.4@0:0") << "with the number of its lease";
  EXPECT_EQ(core.recorded(), "attempt-started");
  core.Refuse("b");
  EXPECT_EQ(core.claimed(), "a.1 b.1 c.1") << "the next in line";
  core.Grant("c", 1);
  core.Finish("c", 1);
  EXPECT_EQ(core.released(), "c.1");
  EXPECT_EQ(core.state("b"), StageState::kReady);
  core.AdvanceTo(2);
  EXPECT_EQ(core.claimed(), "a.1 b.1 c.1 b.1") << "again, a little later";
}

TEST(SharedCore, LeavesAloneWhatRunsElsewhereUntilItIsOverThere) {
  CoreDriver core({Root("a"), Child("b", "a")}, kShared);
  core.Hear(journal::kAttemptStarted, "a", 1);
  core.Join(0, 1);
  EXPECT_EQ(core.claimed(), "");
  core.Hear(journal::kCheckpointed, "a", 1, {{"step", "40"}});
  core.AdvanceTo(100);
  EXPECT_EQ(core.claimed(), "");
  EXPECT_FALSE(core.exit_code()) << "it waits: the other one may die";
  core.HearFailure("a", 1, cause::kSignal);
  EXPECT_EQ(core.core().status(StageId("a")).failures, 1);
  EXPECT_EQ(core.core().status(StageId("a")).step, 40);
  core.AdvanceTo(102);
  EXPECT_EQ(core.claimed(), "a.2") << "after the backoff";
  core.Refuse("a");  // the other one was faster
  core.Hear(journal::kAttemptStarted, "a", 2);
  core.HearFinish("a", 2);
  EXPECT_EQ(core.state("a"), StageState::kFinished);
  EXPECT_EQ(core.claimed(), "a.2 b.1") << "its child is ready here too";
  EXPECT_EQ(core.recorded(), "") << "nothing of this is ours to record";
  core.HearFinish("b", 1);
  EXPECT_EQ(core.exit_code(), 0);
}

TEST(SharedCore, TakesOverWhatADeadLauncherLeft) {
  CoreDriver core({Root("a")}, kShared);
  core.Join(0, 1);
  core.Refuse("a");
  core.Hear(journal::kAttemptStarted, "a", 1);
  core.LeaveBehind("a", 7);
  core.AdvanceTo(10);
  EXPECT_EQ(core.claimed(), "a.1") << "that was about another attempt";
  core.LeaveBehind("a", 1);
  EXPECT_EQ(core.claimed(), "a.1 a.2");
  EXPECT_EQ(core.core().status(StageId("a")).failures, 0);
}

TEST(SharedCore, AGrantThatComesTooLateIsGivenBack) {
  CoreDriver core({Root("a"), Root("b")}, kShared);
  core.Join(0, 1);
  EXPECT_EQ(core.claimed(), "a.1");
  core.HearFinish("a", 1);  // heard with the answer
  core.Grant("a", 2);
  EXPECT_EQ(core.released(), "a.2");
  EXPECT_EQ(core.started(), "");
  EXPECT_EQ(core.claimed(), "a.1 b.1");
  core.RequestStop();
  core.Grant("b", 1);
  EXPECT_EQ(core.released(), "a.2 b.1");
  EXPECT_EQ(core.exit_code(), 75);
}

TEST(SharedCore, WhatIsTakenFromHereIsKilledAndNotCharged) {
  CoreDriver core({Root("a"), Root("b")}, kShared);
  core.Join(0, 2);
  core.Grant("a", 1);
  core.Grant("b", 1);
  core.LoseLease("a", 1);
  core.Hear(journal::kAttemptStarted, "b", 2);
  EXPECT_EQ(core.killed(), "a.1 b.1");
  core.Fail("a", 1, cause::kSignal);
  core.Fail("b", 1, cause::kSignal);
  EXPECT_EQ(core.journal().back().fields.at("cause"), "lost-lease");
  EXPECT_EQ(core.journal().back().fields.at("charged"), "no");
  EXPECT_EQ(core.released(), "a.1 b.1");
  EXPECT_EQ(core.core().status(StageId("b")).attempt, Attempt(2));
  core.HearFinish("b", 2);
  EXPECT_EQ(core.state("b"), StageState::kFinished);
}

TEST(SharedCore, AResultFromElsewhereEndsWhatStillRunsHere) {
  CoreDriver core({Root("a"), Child("b", "a")}, kShared);
  core.Join(0, 1);
  core.Grant("a", 1);
  core.Hear(journal::kAttemptStarted, "a", 2);
  core.HearFinish("a", 2);
  EXPECT_EQ(core.state("a"), StageState::kRunning) << "its process is still there";
  core.Fail("a", 1, cause::kSignal);
  EXPECT_EQ(core.state("a"), StageState::kFinished);
  EXPECT_EQ(core.claimed(), "a.1 b.1");
}

TEST(SharedCore, GivesUpWhatTheOthersHaveUsedUpTheRetriesOf) {
  CoreDriver core({Root("a", 1, 1, /*retries=*/1), Child("b", "a"), Root("c")}, kShared);
  core.HearFailure("a", 1, cause::kSignal);
  core.HearFailure("a", 2, cause::kSignal);
  EXPECT_EQ(core.state("a"), StageState::kFailed);
  EXPECT_EQ(core.state("b"), StageState::kSkipped);
  core.Hear(journal::kRetried, "a", 2);
  EXPECT_EQ(core.state("a"), StageState::kReady);
  EXPECT_EQ(core.core().status(StageId("a")).failures, 0);
  core.HearFailure("c", 1, control::kCauseConfiguration, false);
  EXPECT_EQ(core.state("c"), StageState::kFailed);
}

TEST(SharedCore, StopsEarlyByWhatTrialsAreWorthElsewhere) {
  CorePolicy policy = kShared;
  policy.early_stopping = {.kind = EarlyStoppingRule::Kind::kMedian, .min_steps = 1, .min_trials = 2};
  std::vector<StageSpec> plan = {Root("a"), Root("b"), Root("c"), Child("d", "c")};
  for (int i = 0; i < 3; ++i) plan[static_cast<std::size_t>(i)].group = "g";
  CoreDriver core(plan, policy);
  for (const char* other : {"a", "b"}) {
    core.Hear(journal::kAttemptStarted, other, 1);
    core.Hear(journal::kEvaluated, other, 1, {{"step", "10"}, {"value", "1"}});
  }
  core.Join(0, 1);
  core.Grant("c", 1);
  core.Evaluate("c", 1, 10, 2);
  EXPECT_EQ(core.stopped(), "c.1") << "worse than both others";
  core.Stopped("c", 1);
  EXPECT_EQ(core.state("c"), StageState::kEarlyStopped);
  EXPECT_EQ(core.state("d"), StageState::kEarlyStopped);
  core.Hear(journal::kRetried, "c", 1);
  EXPECT_EQ(core.claimed(), "c.1 c.2");
  core.Refuse("c");
  core.Hear(journal::kEarlyStopped, "a", 1, {{"reason", "worse"}, {"step", "20"}});
  core.Hear(journal::kAttemptEnded, "a", 1, {{"outcome", control::kStopped}, {"cause", cause::kEarlyStopped}, {"charged", "no"}});
  EXPECT_EQ(core.state("a"), StageState::kEarlyStopped);
}

TEST(SharedCore, HearsJournalsInAnyOrder) {
  CoreDriver core({Root("a"), Child("b", "a")}, kShared);
  core.Hear(journal::kAttemptStarted, "b", 1);  // before the end of its parent, which another journal has
  core.HearFinish("a", 1);
  core.Hear(journal::kAttemptStarted, "a", 1);
  core.Join(0, 1);
  EXPECT_EQ(core.claimed(), "") << "b runs elsewhere";
  core.Hear(journal::kAttemptStarted, "b", 3);
  core.HearFailure("b", 1, cause::kSignal);
  core.HearFailure("b", 2, cause::kSignal);
  EXPECT_EQ(core.claimed(), "") << "a later attempt runs";
  core.HearFinish("b", 3);
  EXPECT_EQ(core.exit_code(), 0);
}

JournalEvent Said(const char* type, const std::string& stage, int attempt, std::map<std::string, std::string> fields = {}) {
  JournalEvent event;
  event.type = type;
  event.stage = stage;
  event.attempt = attempt;
  event.fields = std::move(fields);
  return event;
}

TEST(MergedJournals, AreInTheOrderOfAttemptsAndOfOneLaunch) {
  const JournalEvent begun = Said(journal::kSweepStarted, "", 0, {{"automatic", "no"}});
  const auto failed = [](int attempt) {
    return Said(journal::kAttemptEnded, "a", attempt,
                {{"outcome", "failed"}, {"cause", "signal"}, {"charged", "yes"}, {"message", ""}});
  };
  LauncherJournal one, two, before;
  one.launcher.launch = two.launcher.launch = "now";
  before.launcher.launch = "before";
  one.events = {begun, failed(4), Said(journal::kRetried, "a", 5)};
  two.events = {begun, failed(3), failed(5), failed(6)};
  before.events = {begun, failed(2)};
  const std::vector<JournalEvent> merged = MergeJournals({begun, failed(1)}, {one, two, before}, "now");
  std::string order;
  int by_people = 0;
  for (const JournalEvent& event : merged) {
    if (event.attempt > 0) order += fmt::format("{}{}", event.type == journal::kRetried ? "r" : "", event.attempt) + " ";
    by_people += event.type == journal::kSweepStarted && event.fields.at("automatic") == "no";
  }
  EXPECT_EQ(order, "1 2 3 4 5 r5 6 ");
  EXPECT_EQ(by_people, 3) << "the two of this launch are one";
  // A launcher that comes to this launch: one failure counts, since the retry.
  CorePolicy policy = kShared;
  policy.automatic_restart = true;
  CoreDriver core({Root("a")}, policy, merged);
  EXPECT_EQ(core.core().status(StageId("a")).failures, 1);
  EXPECT_EQ(core.core().status(StageId("a")).attempt, Attempt(6));
  // A launch of its own begins with nothing.
  EXPECT_EQ(CoreDriver({Root("a")}, kShared, MergeJournals({}, {one, two}, "next")).core().status(StageId("a")).failures, 0);
}

}  // namespace
}  // namespace headsweep
