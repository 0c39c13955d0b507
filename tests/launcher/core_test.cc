// The scheduler core, one rule a test. Random schedules are in simulation_test.cc.
#include "launcher/core.h"

#include <gtest/gtest.h>

#include "cluster/base/errors.h"
#include "launcher/failure_policy.h"
#include "tests/launcher/core_driver.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

using testing::Child;
using testing::CoreDriver;
using testing::Root;

TEST(Core, RunsAStageAndEndsTheSweep) {
  CoreDriver core({Root("a")});
  core.Join(0, 1);
  EXPECT_EQ(core.started(), "a.1@0:0");
  core.Finish("a", 1);
  EXPECT_EQ(core.exit_code(), kExitDone);
  EXPECT_EQ(core.recorded(), "attempt-started attempt-ended sweep-ended");
}

TEST(Core, StartsAChildOnlyWhenItsParentHasFinished) {
  CoreDriver core({Root("a"), Child("b", "a")});
  core.Join(0, 2);
  EXPECT_EQ(core.started(), "a.1@0:0");
  core.Finish("a", 1);
  EXPECT_EQ(core.started(), "a.1@0:0 b.1@0:0");
}

}  // namespace
}  // namespace headsweep
