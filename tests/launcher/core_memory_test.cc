// The scheduler core: trials that share the memory of a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/failure_policy.h"
#include "tests/launcher/core_driver.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;
using testing::CoreDriver;
using testing::Root;

StageSpec Needs(const std::string& name, std::int64_t memory, double flops = 1, int slots = 1) {
  StageSpec spec = Root(name, flops, slots);
  spec.memory = memory;
  return spec;
}

TEST(CoreMemory, StartsNoMoreThanADeviceHolds) {
  CoreDriver core({Needs("a", 4, 9), Needs("b", 4, 8), Needs("c", 4, 7)});
  core.Join(0, 3, {10});
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1");
  EXPECT_THAT(core.notices(), HasSubstr("memory"));
  EXPECT_TRUE(core.core().short_of_memory());
  core.Finish("b", 1);
  EXPECT_FALSE(core.core().short_of_memory());
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1 c.1@0:1");
}

TEST(CoreMemory, LetsShortOnesThatFitPassOneThatWaitsForMemory) {
  CoreDriver core({Needs("a", 8, 99), Needs("large", 8, 50), Needs("small", 2, 10), Needs("long", 2, 200)});
  core.Join(0, 3, {10});
  EXPECT_EQ(core.started(), "long.1@0:0 a.1@0:1");
  core.Finish("long", 1);
  EXPECT_EQ(core.started(), "long.1@0:0 a.1@0:1 small.1@0:0") << "it ends before a does";
}

TEST(CoreMemory, GoesByWhatOthersOfTheSameEstimateHaveTaken) {
  CoreDriver core({Needs("a", 4, 9), Needs("b", 4, 8), Needs("c", 4, 7), Needs("d", 4, 6)});
  core.Join(0, 4, {12});
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1 c.1@0:2");
  core.Measure("a", 1, 3);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1 c.1@0:2 d.1@0:0");

  CoreDriver restarted({Needs("a", 4, 9), Needs("b", 4, 8), Needs("c", 4, 7), Needs("d", 4, 6), Needs("e", 4, 5)}, {},
                       core.journal(), {{StageId("a"), "{}"}});
  restarted.Join(0, 4, {12});
  EXPECT_EQ(restarted.started(), "b.2@0:0 c.2@0:1 d.2@0:2 e.1@0:3") << "the journal knows it too";
}

TEST(CoreMemory, ExpectsOthersToBeUnderestimatedByAsMuch) {
  CoreDriver core({Needs("a", 1, 9), Needs("b", 4, 8), Needs("c", 5, 7)});
  core.Join(0, 1, {12});
  core.Measure("a", 1, 3);  // 2 more than estimated
  core.Join(1, 2, {12});
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:0 c.1@1:0");
  core.Lose(0);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:0 c.1@1:0") << "6 and 7 do not fit into 12";
  core.Finish("c", 1);
  EXPECT_THAT(core.started(), HasSubstr("b.2@1:0"));
}

TEST(CoreMemory, GivesOneThatRanOutOfItInCompanyADeviceOfItsOwn) {
  CoreDriver core({Needs("a", 1, 9), Needs("b", 1, 8), Needs("c", 1, 7)});
  core.Join(0, 2, {10});
  core.Fail("a", 1, control::kCauseOutOfMemory);
  core.AdvanceTo(2);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1 c.1@0:0");
  core.Finish("c", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1 c.1@0:0") << "b is still there";
  core.Finish("b", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:1 c.1@0:0 a.2@0:0");
  EXPECT_EQ(core.divisor(), 1) << "its micro-batches were not at fault";
  core.Fail("a", 2, control::kCauseOutOfMemory);
  core.AdvanceTo(10);
  EXPECT_EQ(core.divisor(), 2);

  CoreDriver restarted({Needs("a", 1, 9), Needs("d", 1, 2)}, {}, core.journal());
  restarted.Join(0, 2, {10});
  EXPECT_EQ(restarted.started(), "a.4@0:0") << "the journal knows that it wants to be alone";
}

TEST(CoreMemory, TriesWhatIsTooLargeForEverythingWhenNothingElseRuns) {
  CoreDriver core({Needs("gang", 8, 9, 2), Needs("a", 1, 99)});
  core.Join(0, 2, {10});
  EXPECT_EQ(core.started(), "a.1@0:0");
  core.Finish("a", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 gang.1@0:0,0:1");
  core.Finish("gang", 1);
  EXPECT_EQ(core.exit_code(), 0);
}

}  // namespace
}  // namespace headsweep
