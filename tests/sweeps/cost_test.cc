// Costs against figures worked out elsewhere.
#include "sweeps/cost.h"

#include <gtest/gtest.h>

namespace headsweep {
namespace {

// 6 layers, width 256, 8 heads of 32, length 128, batch 8, 8192 pieces: 6,868,992 parameters with learned
// positions and a tied output, 44.29 GFLOP in the matrix products of one training step (counted by hand from
// the shapes).
StageConfig Reference() {
  StageConfig config;
  config.task.vocabulary = 8192;
  config.task.length = 128;
  config.model.layers = 6;
  config.model.embed = 256;
  config.model.heads = {8, 8, 8, 8, 8, 8};
  config.model.head_size = 32;
  config.model.feed_forward = 1024;
  config.train.batch = 8;
  return config;
}

TEST(Cost, CountsParametersAndOperationsOfTheReferenceModel) {
  const StageCost cost = EstimateCost(Reference(), {});
  EXPECT_EQ(cost.parameters, 6868992);
  EXPECT_NEAR(cost.flops_per_step, 44.29e9, 0.005e9);
}

TEST(Cost, HeadsOfLayersCountOneByOne) {
  StageConfig config = Reference();
  const std::int64_t whole = CountParameters(config);
  config.model.heads[2] = 7;
  // One head: 4 matrices of D x C, and 3 biases of D.
  EXPECT_EQ(whole - CountParameters(config), 4 * 32 * 256 + 3 * 32);
  config.model.heads[2] = 0;
  EXPECT_LT(ForwardFlopsOf(config, 1), ForwardFlopsOf(Reference(), 1));
}

TEST(Cost, UntiedPostNormAndSinusoidalModelsDiffer) {
  StageConfig config = Reference();
  config.model.tied = false;
  EXPECT_EQ(CountParameters(config) - CountParameters(Reference()), 8192 * 256);
  config.model.tied = true;
  config.model.norm = "post";
  EXPECT_EQ(CountParameters(Reference()) - CountParameters(config), 2 * 256);
  config.model.norm = "pre";
  config.model.positions = "sinusoidal";
  EXPECT_EQ(CountParameters(Reference()) - CountParameters(config), 128 * 256);
}

TEST(Cost, MicroBatchesSaveMemoryAndNothingElse) {
  StageConfig config = Reference();
  const StageCost whole = EstimateCost(config, {});
  config.train.micro_batch = 2;
  const StageCost cut = EstimateCost(config, {});
  EXPECT_LT(cut.memory_bytes, whole.memory_bytes);
  EXPECT_GT(cut.memory_bytes, 16 * cut.parameters);
  EXPECT_EQ(cut.flops, whole.flops);
}

TEST(Cost, TimeFollowsTheRateAndTheDevices) {
  StageConfig config = Reference();
  CostModel model;
  EXPECT_EQ(EstimateCost(config, model).seconds, 0);
  model.flops_per_second = 1e11;
  const StageCost one = EstimateCost(config, model);
  EXPECT_DOUBLE_EQ(one.seconds, one.flops / 1e11);
  config.run.devices = 4;
  EXPECT_DOUBLE_EQ(EstimateCost(config, model).seconds, one.seconds / 4);
}

TEST(Cost, OrdersThatScoreMoreCostMore) {
  StageConfig config = Reference();
  config.kind = StageKind::kPrune;
  const auto flops = [&](const char* order) {
    config.prune.order = order;
    return EstimateCost(config, {}).flops;
  };
  EXPECT_LT(flops("random"), flops("importance"));
  EXPECT_EQ(flops("random"), flops("magnitude"));
  EXPECT_EQ(flops("importance"), flops("reversed"));
  EXPECT_LT(flops("importance"), flops("importance-rescored"));
  EXPECT_LT(flops("importance-rescored"), flops("ablation"));
}

TEST(Cost, TheMeasuredRateIsPlausible) {
  const double rate = MeasureThreadFlopsPerSecond();
  EXPECT_GT(rate, 1e7);
  EXPECT_LT(rate, 1e13);
}

}  // namespace
}  // namespace headsweep
