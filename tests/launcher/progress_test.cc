// The estimate of the time that is left, with times made up by the test.
#include "launcher/progress_model.h"

#include <gtest/gtest.h>

#include "tests/launcher/core_driver.h"

namespace headsweep {
namespace {

using testing::CoreDriver;
using testing::Root;

ProgressSnapshot Some(int finished, int running, int ready, double finished_flops, double total_flops,
                      int slots) {
  ProgressSnapshot snapshot;
  snapshot.counts.finished = finished;
  snapshot.counts.running = running;
  snapshot.counts.ready = ready;
  snapshot.finished_flops = finished_flops;
  snapshot.total_flops = total_flops;
  snapshot.slots = slots;
  snapshot.busy_slots = running;
  return snapshot;
}

TEST(Progress, DurationsAreShort) {
  EXPECT_EQ(FormatDuration(-3), "0s");
  EXPECT_EQ(FormatDuration(59.4), "59s");
  EXPECT_EQ(FormatDuration(59.6), "1m00s");
  EXPECT_EQ(FormatDuration(130), "2m10s");
  EXPECT_EQ(FormatDuration(11100), "3h05m");
  EXPECT_EQ(FormatDuration(187200), "2d04h");
}

TEST(Progress, SaysHowFarAndHowLong) {
  ProgressModel model;
  model.Observe(Some(10, 3, 57, 10, 100, 3), 1000);
  EXPECT_EQ(model.Line(), "10/70 stages, 3 running, 10 %, ETA not known yet");
  // 31 units of work in 60 s on three slots; 59 are left.
  model.Observe(Some(12, 3, 55, 41, 100, 3), 1060);
  EXPECT_EQ(model.Line(), "12/70 stages, 3 running, 41 %, ETA 1m54s");
}

TEST(Progress, TheRestOfALongStageDecidesWhenSlotsAbound) {
  ProgressModel model;
  model.Observe(Some(0, 1, 0, 0, 100, 8), 0);
  ProgressSnapshot half = Some(0, 1, 0, 50, 100, 8);
  half.longest_chain = 50;
  model.Observe(half, 10);
  EXPECT_NEAR(*model.SecondsLeft(), 10, 1e-9) << "seven of the eight slots cannot help";
}

TEST(Progress, ResultsThatWereThereAlreadyAreNotSpeed) {
  ProgressModel model;
  model.Observe(Some(60, 0, 10, 600, 700, 1), 0);
  EXPECT_EQ(model.SecondsLeft(), std::nullopt);
  model.Observe(Some(60, 1, 9, 600, 700, 1), 1);
  model.Observe(Some(60, 1, 9, 605, 700, 1), 11);
  EXPECT_NEAR(*model.SecondsLeft(), 190, 1e-9);
}

TEST(Progress, LostWorkIsNotNegativeSpeed) {
  ProgressModel model;
  model.Observe(Some(0, 1, 1, 0, 100, 1), 0);
  model.Observe(Some(0, 1, 1, 40, 100, 1), 40);
  model.Observe(Some(0, 1, 1, 10, 100, 1), 41);
  EXPECT_NEAR(model.slot_speed(), 1, 1e-9);
  EXPECT_NEAR(*model.SecondsLeft(), 90, 1e-9);
}

TEST(Progress, FollowsAChangeOfSpeed) {
  ProgressModel model;
  double work = 0;
  for (int t = 0; t <= 3600; ++t) model.Observe(Some(0, 1, 1, work += 10, 1e6, 1), t);
  for (int t = 3601; t <= 7200; ++t) model.Observe(Some(0, 1, 1, work += 1, 1e6, 1), t);
  EXPECT_NEAR(model.slot_speed(), 1, 0.02);
}

TEST(Progress, EndsAtAHundredPercentAndNamesWhatFailed) {
  ProgressModel model;
  ProgressSnapshot end = Some(5, 0, 0, 5, 5, 2);
  end.counts.failed = 1;
  end.counts.skipped = 2;
  model.Observe(end, 0);
  EXPECT_EQ(model.Line(), "5/8 stages, 0 running, 1 failed, 2 skipped, 100 %");
  EXPECT_EQ(model.SecondsLeft(), 0.0);
}

TEST(Progress, NeverSaysAHundredPercentBeforeTheEnd) {
  ProgressModel model;
  model.Observe(Some(5, 1, 0, 999.9, 1000, 1), 0);
  EXPECT_EQ(model.Line(), "5/6 stages, 1 running, 99 %, ETA not known yet");
}

TEST(Progress, ReadsTheCore) {
  CoreDriver driver({Root("a", 100), Root("b", 50)});
  driver.Join(0, 1);
  driver.Progress("a", 1, 25, 100);
  const ProgressSnapshot snapshot = Snapshot(driver.core());
  EXPECT_EQ(snapshot.slots, 1);
  EXPECT_EQ(snapshot.busy_slots, 1);
  EXPECT_DOUBLE_EQ(snapshot.finished_flops, 25);
  EXPECT_DOUBLE_EQ(snapshot.total_flops, 150);
  EXPECT_DOUBLE_EQ(snapshot.longest_chain, 75);
}

}  // namespace
}  // namespace headsweep
