// Early stopping: the two rules on numbers worked out by hand, and what the core makes of their verdicts.
#include "launcher/early_stopping.h"

#include <gtest/gtest.h>

#include <limits>

#include "launcher/failure_policy.h"
#include "tests/launcher/core_driver.h"

namespace headsweep::testing {
namespace {

using Kind = EarlyStoppingRule::Kind;

bool Stops(EarlyStopping& rule, const std::string& trial, std::int64_t step, double value) {
  rule.Observe("g", StageId(trial), step, value);
  return rule.Judge("g", StageId(trial), step).has_value();
}

TEST(EarlyStoppingTest, NoRuleStopsNothing) {
  EarlyStopping none;
  EXPECT_FALSE(none.on());
  for (const char* trial : {"a", "b", "c", "d"}) EXPECT_FALSE(Stops(none, trial, 100, 1e9));
}

TEST(EarlyStoppingTest, MedianComparesWithTheBestOfOthersByTheSameStep) {
  EarlyStopping rule({.kind = Kind::kMedian, .min_steps = 10, .min_trials = 3});
  EXPECT_FALSE(Stops(rule, "a", 10, 5));
  EXPECT_FALSE(Stops(rule, "b", 10, 6));
  EXPECT_FALSE(Stops(rule, "c", 10, 7)) << "only two others";
  EXPECT_TRUE(Stops(rule, "d", 10, 6.5)) << "the median of 5, 6, 7 is 6";
  EXPECT_FALSE(Stops(rule, "e", 10, 6.25)) << "the median of 5, 6, 6.5, 7 is 6.25, and equal is not worse";
  EXPECT_FALSE(Stops(rule, "a", 20, 9)) << "nobody else is at step 20, and its best is 5";
  EXPECT_FALSE(Stops(rule, "f", 5, 100)) << "before min_steps";
}

TEST(EarlyStoppingTest, MedianTakesATrialThatGotWorseByItsBest) {
  EarlyStopping rule({.kind = Kind::kMedian, .min_steps = 1, .min_trials = 1});
  EXPECT_FALSE(Stops(rule, "a", 1, 4));
  EXPECT_FALSE(Stops(rule, "a", 2, 8)) << "a's best by step 2 is still 4";
  EXPECT_FALSE(Stops(rule, "b", 2, 4));
  EXPECT_TRUE(Stops(rule, "c", 2, 4.5));
  EXPECT_NE(rule.Judge("g", StageId("c"), 2)->find("perplexity_per_word by step 2 is 4.5, above 4"), std::string::npos);
}

TEST(EarlyStoppingTest, HalvingKeepsTheBestShareOfEachRung) {
  EarlyStopping rule({.kind = Kind::kSuccessiveHalving, .min_steps = 10, .reduction_factor = 3});
  EXPECT_FALSE(Stops(rule, "a", 10, 5)) << "the first at a rung";
  EXPECT_TRUE(Stops(rule, "b", 10, 6)) << "one of two goes on";
  EXPECT_FALSE(Stops(rule, "c", 10, 4));
  EXPECT_FALSE(Stops(rule, "d", 10, 4.5)) << "two of four go on, and it is second";
  EXPECT_TRUE(Stops(rule, "e", 10, 4.75)) << "third of five";
  EXPECT_FALSE(Stops(rule, "a", 20, 50)) << "between rungs nothing is judged";
  EXPECT_FALSE(Stops(rule, "c", 30, 3));
  EXPECT_TRUE(Stops(rule, "d", 31, 3.5)) << "the first value beyond the rung of 30 counts there";
  EXPECT_FALSE(Stops(rule, "d", 40, 100)) << "it has been judged at that rung";
}

TEST(EarlyStoppingTest, TheBestAlwaysGoesOnAndNaNIsWorst) {
  for (const Kind kind : {Kind::kMedian, Kind::kSuccessiveHalving}) {
    EarlyStopping rule({.kind = kind, .min_steps = 1, .min_trials = 1, .reduction_factor = 4});
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_FALSE(Stops(rule, "a", 1, nan)) << "alone";
    EXPECT_FALSE(Stops(rule, "b", 1, 1e6)) << "better than not a number";
    for (int i = 0; i < 50; ++i) EXPECT_FALSE(Stops(rule, "t" + std::to_string(i), 1, 100 - i)) << i;
    EXPECT_TRUE(Stops(rule, "z", 1, nan));
  }
}

TEST(EarlyStoppingTest, GroupsAreApartAndRepeatsChangeNothing) {
  EarlyStopping rule({.kind = Kind::kSuccessiveHalving, .min_steps = 1, .reduction_factor = 2});
  rule.Observe("small", StageId("a"), 1, 1);
  rule.Observe("large", StageId("b"), 1, 100);
  EXPECT_FALSE(rule.Judge("large", StageId("b"), 1)) << "nothing to compare it with";
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Stops(rule, "only", 1, 7)) << "told again after a restart";
}

// --- In the core ----------------------------------------------------------------------------------------------------------

StageSpec Competing(const std::string& name) {
  StageSpec spec = Root(name);
  spec.group = "g";
  return spec;
}

CorePolicy Halving() {
  CorePolicy policy;
  policy.early_stopping = {.kind = Kind::kSuccessiveHalving, .min_steps = 10, .reduction_factor = 2};
  return policy;
}

const std::vector<StageSpec> kPlan = {Competing("a"), Competing("b"), Child("b1", "b"), Child("b2", "b1"), Child("a1", "a")};

TEST(EarlyStoppingCoreTest, GivesUpATrialAndAllBehindIt) {
  CoreDriver core(kPlan, Halving());
  core.Join(0, 2);
  core.Evaluate("a", 1, 10, 5);
  EXPECT_EQ(core.stopped(), "");
  core.Evaluate("b", 1, 10, 6);
  EXPECT_EQ(core.stopped(), "b.1");
  core.Evaluate("b", 1, 10, 6);
  EXPECT_EQ(core.stopped(), "b.1") << "asked once";
  core.Checkpoint("b", 1, 11);
  core.Stopped("b", 1);
  for (const char* name : {"b", "b1", "b2"}) EXPECT_EQ(core.state(name), StageState::kEarlyStopped) << name;
  EXPECT_NE(core.core().status(StageId("b")).message.find("of 6 at the rung of 10 steps is place 2 of 2, and 1 go on"), std::string::npos);
  EXPECT_EQ(core.journal().back().fields.at("cause"), "early-stopped");
  EXPECT_EQ(core.journal().back().fields.at("charged"), "no");
  core.Finish("a", 1);
  core.Finish("a1", 1);
  EXPECT_EQ(core.exit_code(), 0) << "that is no failure";
  EXPECT_EQ(core.exit_reason(), "every stage is done; 3 were stopped early");
}

TEST(EarlyStoppingCoreTest, ATrialThatFinishesAllTheSameIsFinished) {
  CoreDriver core(kPlan, Halving());
  core.Join(0, 2);
  core.Evaluate("a", 1, 10, 5);
  core.Evaluate("b", 1, 10, 6);
  core.Finish("b", 1);
  EXPECT_EQ(core.state("b"), StageState::kFinished);
  EXPECT_EQ(core.state("b1"), StageState::kRunning);
}

TEST(EarlyStoppingCoreTest, ACrashOnTheWayOutCostsNothing) {
  CoreDriver core(kPlan, Halving());
  core.Join(0, 2);
  core.Evaluate("a", 1, 10, 5);
  core.Evaluate("b", 1, 10, 6);
  core.Fail("b", 1, cause::kSignal);
  EXPECT_EQ(core.state("b"), StageState::kEarlyStopped);
  EXPECT_EQ(core.core().status(StageId("b")).failures, 0);
}

TEST(EarlyStoppingCoreTest, ARestartKeepsTheVerdictAndWhatWasCompared) {
  CoreDriver first(kPlan, Halving());
  first.Join(0, 2);
  first.Evaluate("a", 1, 10, 5);
  first.Finish("a", 1);
  first.Finish("a1", 1);
  const std::map<StageId, std::string> done = {{StageId("a"), "{}"}, {StageId("a1"), "{}"}};
  CoreDriver second(kPlan, Halving(), first.journal(), done);
  second.Join(0, 1);
  second.Evaluate("b", 2, 10, 6);
  EXPECT_EQ(second.stopped(), "b.2") << "a's value is in the journal";
  // Killed here: the verdict is in the journal, the end of the attempt is not.
  std::vector<JournalEvent> journal = first.journal();
  journal.insert(journal.end(), second.journal().begin(), second.journal().end());
  CoreDriver third(kPlan, Halving(), journal, done);
  third.Join(0, 1);
  third.AdvanceTo(1);
  EXPECT_EQ(third.started(), "");
  EXPECT_EQ(third.state("b2"), StageState::kEarlyStopped);
  EXPECT_EQ(third.exit_code(), 0);
  CoreDriver without(kPlan, CorePolicy{}, journal, done);
  without.Join(0, 1);
  EXPECT_EQ(without.started(), "b.3@0:0") << "without the rule it is wanted again";
}

TEST(EarlyStoppingCoreTest, APersonCanHaveItFinished) {
  CoreDriver core(kPlan, Halving());
  core.Join(0, 2);
  core.Evaluate("a", 1, 10, 5);
  core.Evaluate("b", 1, 10, 6);
  core.Stopped("b", 1);
  core.Forget();
  core.Retry({});
  EXPECT_EQ(core.started(), "") << "it has not failed";
  core.Retry({"b1"});
  EXPECT_EQ(core.started(), "") << "what is behind it has nothing to start from";
  core.Retry({"b"});
  EXPECT_EQ(core.started(), "b.2@0:0");
  EXPECT_EQ(core.state("b2"), StageState::kWaiting);
  core.Evaluate("b", 2, 20, 60);
  EXPECT_EQ(core.stopped(), "") << "spared for good";
  CoreDriver again(kPlan, Halving(), core.journal());
  again.Join(0, 2);
  again.Evaluate("b", 3, 40, 60);
  EXPECT_EQ(again.stopped(), "") << "after a restart too";
}

TEST(EarlyStoppingCoreTest, WithoutARuleNothingIsRecorded) {
  CoreDriver core(kPlan);
  core.Join(0, 2);
  core.Evaluate("a", 1, 10, 5);
  core.Evaluate("b", 1, 10, 6);
  EXPECT_EQ(core.recorded().find("evaluated"), std::string::npos);
}

}  // namespace
}  // namespace headsweep::testing
