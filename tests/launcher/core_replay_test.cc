// The scheduler core, one rule a test: what a new launch makes of the journal and of the results that are
// there.
#include "launcher/core.h"

#include <gtest/gtest.h>

#include "cluster/base/errors.h"
#include "tests/launcher/core_driver.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

using testing::Child;
using testing::CoreDriver;
using testing::Root;

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

}  // namespace
}  // namespace headsweep
