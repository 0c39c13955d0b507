// The model of scaling, against cases that one can do in one's head.
#include "cluster/scaling.h"

#include <gtest/gtest.h>

namespace headsweep {
namespace {

// 1 s of work on a batch of 64, 100 MB of gradients, 1 GB/s without latency, one device a node.
ScalingModel Simple() {
  ScalingModel model;
  model.step_seconds = 1;
  model.batch = 64;
  model.gradient_bytes = 1e8;
  model.devices_per_node = 1;
  model.inner = model.outer = {1e9, 0};
  return model;
}

TEST(Scaling, OneDeviceIsWhatWasMeasured) {
  const ScalingPoint point = Scale(Simple(), 1);
  EXPECT_DOUBLE_EQ(point.step, 1);
  EXPECT_EQ(point.communication, 0);
  EXPECT_DOUBLE_EQ(point.efficiency, 1);
}

TEST(Scaling, OneMessageAtTheEndIsAllExposed) {
  const ScalingPoint point = Scale(Simple(), 2);
  EXPECT_NEAR(point.compute, 0.5, 1e-12);
  EXPECT_NEAR(point.exposed, 0.1, 1e-6) << "2 (n-1)/n S / bandwidth";
  EXPECT_NEAR(point.speedup, 1 / 0.6, 1e-4);
}

TEST(Scaling, BucketsHideAllButTheLast) {
  ScalingModel model = Simple();
  model.bucket_bytes = 1e7;  // ten; each completes every 33 ms and takes 10 ms
  EXPECT_NEAR(Scale(model, 2).exposed, 0.01, 1e-6);
  model.overlap = 0;
  EXPECT_NEAR(Scale(model, 2).exposed, 0.1, 1e-6) << "nothing hides";
}

TEST(Scaling, ANetworkThatIsTheBottleneckIsNeverHidden) {
  ScalingModel model = Simple();
  model.bucket_bytes = 1e7;
  model.outer.bandwidth = 1e8;  // 1 s for everything
  const ScalingPoint point = Scale(model, 2);
  EXPECT_NEAR(point.exposed, 1 - (1.0 / 3) * 0.9, 1e-6)
      << "it starts with the first bucket, and never waits again";
}

TEST(Scaling, UnevenSharesCostTheLargest) {
  ScalingModel model = Simple();
  model.outer.bandwidth = 1e15;
  EXPECT_NEAR(Scale(model, 3).compute, 22.0 / 64, 1e-12);
  model.fixed_seconds = 0.36;
  EXPECT_NEAR(Scale(model, 64).compute, 0.36 + 0.01, 1e-12);
}

TEST(Scaling, ManyDevicesTakeTheTree) {
  ScalingModel model = Simple();
  model.outer = {1e9, 1e-3};
  EXPECT_NEAR(AllReduceSeconds(model, 1e3, 1024), 2e-6 + 2 * 10 * 1e-3, 1e-9);
  EXPECT_NEAR(AllReduceSeconds(model, 1e9, 2), 1 + 2e-3, 1e-9);
}

TEST(Scaling, WithinANodeTheInnerLinkCounts) {
  ScalingModel model = Simple();
  model.devices_per_node = 8;
  model.inner = {1e10, 0};
  EXPECT_NEAR(AllReduceSeconds(model, 1e9, 8), 2 * 7.0 / 8 * 0.1, 1e-9);
  EXPECT_NEAR(AllReduceSeconds(model, 1e9, 16), 2 * 7.0 / 8 * 0.1 + 1, 1e-9);
}

TEST(Scaling, MoreDevicesAreNeverSlowerPerExampleThanTheModelSays) {
  ScalingModel model = Simple();
  model.outer = {1e9, 5e-6};
  model.bucket_bytes = 5e6;
  double before = 0;
  for (int devices = 1; devices <= 64; devices *= 2) {
    const ScalingPoint point = Scale(model, devices);
    EXPECT_LE(point.efficiency, 1 + 1e-12);
    EXPECT_GT(point.speedup, before) << devices;
    EXPECT_GE(point.communication, point.exposed - 1e-12);
    before = point.speedup;
  }
}

}  // namespace
}  // namespace headsweep
