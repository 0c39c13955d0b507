// Learning rates by value, and the FLOP model.
#include "trainer/schedule.h"

#include <gtest/gtest.h>

#include "cluster/base/errors.h"
#include "trainer/flops.h"

namespace headsweep {
namespace {

TrainConfig Config(const std::string& schedule) {
  TrainConfig config;
  config.schedule = schedule;
  config.steps = 110;
  config.warmup_steps = 10;
  config.learning_rate = 2;
  config.final_learning_rate = 0.1;
  return config;
}

TEST(Schedule, EveryScheduleWarmsUpLinearlyToTheHighestRate) {
  for (const char* schedule : {"linear", "cosine", "inverse-sqrt"}) {
    EXPECT_DOUBLE_EQ(LearningRate(Config(schedule), 1), 0.2) << schedule;
    EXPECT_DOUBLE_EQ(LearningRate(Config(schedule), 5), 1) << schedule;
    EXPECT_DOUBLE_EQ(LearningRate(Config(schedule), 10), 2) << schedule;
    EXPECT_LT(LearningRate(Config(schedule), 11), 2) << schedule;
  }
}

TEST(Schedule, LinearFallsToTheFinalFraction) {
  EXPECT_DOUBLE_EQ(LearningRate(Config("linear"), 60), 2 * 0.55);
  EXPECT_DOUBLE_EQ(LearningRate(Config("linear"), 110), 0.2);
}

TEST(Schedule, CosineFallsToTheFinalFraction) {
  EXPECT_NEAR(LearningRate(Config("cosine"), 35), 2 * (0.1 + 0.9 * (1 + 0.70710678118654752) / 2), 1e-12);
  EXPECT_NEAR(LearningRate(Config("cosine"), 60), 2 * 0.55, 1e-12);
  EXPECT_NEAR(LearningRate(Config("cosine"), 110), 0.2, 1e-12);
  EXPECT_NEAR(LearningRate(Config("cosine"), 200), 0.2, 1e-12);  // beyond the end it stays
}

TEST(Schedule, InverseSquareRootHalvesAtFourTimesTheWarmUp) {
  EXPECT_DOUBLE_EQ(LearningRate(Config("inverse-sqrt"), 40), 1);
  EXPECT_DOUBLE_EQ(LearningRate(Config("inverse-sqrt"), 90), 2.0 / 3);
}

TEST(Schedule, WithoutWarmUpTheFirstStepIsFinite) {
  for (const char* schedule : {"linear", "cosine", "inverse-sqrt"}) {
    TrainConfig config = Config(schedule);
    config.warmup_steps = 0;
    EXPECT_NEAR(LearningRate(config, 1), 2, 0.05) << schedule;
    config.warmup_steps = 500;  // longer than the run: it never ends
    EXPECT_DOUBLE_EQ(LearningRate(config, 110), 2 * 110.0 / 500) << schedule;
  }
}

TEST(Schedule, AnUnknownNameIsAnError) { EXPECT_THROW(LearningRate(Config("constant"), 1), ConfigError); }

TEST(Flops, OfAKnownStepAreThoseCountedByHand) {
  ModelShape shape;
  shape.vocabulary = 8192;
  shape.length = 128;
  shape.embed = 256;
  shape.head_size = 32;
  shape.feed_forward = 1024;
  shape.heads.assign(6, 8);
  EXPECT_NEAR(TrainingStepFlops(shape, 8), 44.29e9, 0.01e9);
  const double full = ForwardFlops(shape, 1);
  shape.heads[2] = 0;  // its projections and its attention cost nothing any more
  EXPECT_DOUBLE_EQ(full - ForwardFlops(shape, 1), 2.0 * 128 * (4 * 256 * 256 + 2 * 128 * 256));
}

}  // namespace
}  // namespace headsweep
