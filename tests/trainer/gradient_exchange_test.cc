// Buckets of gradients: they cover everything once, and what leaves during the backward pass is complete.
#include "trainer/gradient_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trainer/model_support.h"

namespace headsweep {
namespace {

ModelShape Shape(const std::string& norm, bool tied, std::vector<int> heads) {
  ModelShape shape;
  shape.vocabulary = 13;
  shape.length = 6;
  shape.embed = 10;
  shape.head_size = 3;
  shape.feed_forward = 14;
  shape.heads = std::move(heads);
  shape.norm = norm;
  shape.tied = tied;
  return shape;
}

class BucketTest : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  const ModelShape shape_ = Shape(std::get<0>(GetParam()), std::get<1>(GetParam()), {2, 0, 3});
  const ParameterLayout layout_{shape_};
};

TEST_P(BucketTest, EveryValueIsInExactlyOneBucketInTheOrderOfTheBackwardPass) {
  for (const std::int64_t bytes : {0, 1, 400, 3000, 1 << 30}) {
    const std::vector<GradientBucket> buckets = PlanBuckets(layout_, shape_, bytes);
    std::vector<int> covered(static_cast<std::size_t>(layout_.size()));
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      for (std::int64_t v = buckets[i].begin; v < buckets[i].end; ++v) ++covered[static_cast<std::size_t>(v)];
      if (i > 0) {
        EXPECT_LE(buckets[i].after_layer, buckets[i - 1].after_layer);
      }
      const bool last = buckets[i].after_layer < 0;
      if (!last) {
        EXPECT_GE((buckets[i].end - buckets[i].begin) * 4, bytes);
      }
    }
    EXPECT_TRUE(std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; })) << bytes;
  }
  EXPECT_EQ(PlanBuckets(layout_, shape_, 0).size(), 1u);
  EXPECT_GE(PlanBuckets(layout_, shape_, 1).size(), 4u) << "one a layer, and the rest";
}

TEST_P(BucketTest, WhatLeavesEarlyIsNotTouchedAnyMore) {
  const auto backend = MakeBackend({"cpu", 1});
  Model model(*backend, shape_, 4, Model::Purpose::kTrain);
  model.Initialize(7);
  Batch batch;
  batch.B = 4;
  batch.T = 6;
  for (int i = 0; i < 24; ++i) {
    batch.tokens.push_back(i * 5 % 13);
    batch.targets.push_back(i * 7 % 13);
  }
  batch.target_count = 24;
  const std::vector<GradientBucket> buckets = PlanBuckets(layout_, shape_, 1);
  std::vector<float> sent(static_cast<std::size_t>(layout_.size()));
  std::size_t next = 0;
  std::vector<int> calls;
  ForwardBackwardOptions options;
  options.gradient_scale = 1.0f / 24;
  options.dropout = 0.1f;
  options.on_layer_done = [&](int layer) {
    calls.push_back(layer);
    const std::vector<float> now = model.GetGradients();
    for (; next < buckets.size() && buckets[next].after_layer >= layer; ++next)
      std::copy(now.begin() + buckets[next].begin, now.begin() + buckets[next].end,
                sent.begin() + buckets[next].begin);
  };
  model.ZeroGradients();
  model.ForwardBackward(batch, options);
  EXPECT_EQ(calls, (std::vector<int>{3, 2, 1, 0, -1}));
  EXPECT_EQ(next, buckets.size());
  EXPECT_EQ(sent, model.GetGradients());
}

INSTANTIATE_TEST_SUITE_P(Shapes, BucketTest,
                         ::testing::Combine(::testing::Values("pre", "post"), ::testing::Bool()));

}  // namespace
}  // namespace headsweep
