// A head that is gated off and a head that is cut out: the same model, on the real forward pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "cluster/base/errors.h"
#include "kernels/backend.h"
#include "tests/trainer/head_samples.h"
#include "trainer/head_surgery.h"
#include "trainer/model.h"
#include "trainer/pruning_curve.h"

namespace headsweep {
namespace {

using head_samples::AllHeads;
using head_samples::RandomBatch;
using head_samples::RandomHeads;
using head_samples::RandomParameters;
using head_samples::UnevenShape;

struct Variant {
  std::string name;
  ModelShape shape;
};

std::vector<Variant> Variants() {
  const ModelShape uneven = UnevenShape();
  ModelShape post = uneven, plain = uneven, wide = uneven, empty_layer = uneven;
  post.norm = "post";
  post.activation = "relu";
  plain.positions = "sinusoidal";
  plain.tied = false;
  wide.head_size = 33;  // one head is wider than the model
  wide.heads = {2, 5};
  empty_layer.heads = {0, 3, 2};
  return {{"PreNorm", uneven},
          {"PostNorm", post},
          {"SinusoidalUntied", plain},
          {"WideHeads", wide},
          {"EmptyLayer", empty_layer}};
}

class HeadRemoval : public ::testing::TestWithParam<Variant> {
 protected:
  // Largest difference of logits between masking and removing, relative to the largest logit.
  double Difference(const std::vector<HeadIndex>& removed) {
    model_.SetGates(GatesFor(shape_, removed));
    const std::vector<float> masked = model_.Logits(batch_);
    model_.ClearGates();
    const PrunedModel pruned = RemoveHeads(shape_, parameters_, removed);
    Model smaller(*backend_, pruned.shape, batch_.B, Model::Purpose::kEvaluate);
    smaller.SetParameters(pruned.parameters);
    const std::vector<float> cut = smaller.Logits(batch_);
    double largest = 0, difference = 0;
    EXPECT_EQ(masked.size(), cut.size());
    for (std::size_t i = 0; i < masked.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(masked[i])));
      const double d = std::abs(static_cast<double>(masked[i]) - cut[i]);
      if (!(d <= difference)) difference = d;  // a NaN stays
    }
    EXPECT_GT(largest, 0.1) << "logits too small to tell anything";
    return difference / largest;
  }

  const unsigned seed_ = 20240607;
  std::mt19937 random_{seed_};
  const ModelShape shape_ = GetParam().shape;
  std::unique_ptr<Backend> backend_ = MakeBackend({});
  std::vector<float> parameters_ = RandomParameters(shape_, random_);
  Batch batch_ = RandomBatch(shape_, 3, random_);
  Model model_{*backend_, shape_, 3, Model::Purpose::kEvaluate};

  void SetUp() override {
    RecordProperty("seed", static_cast<int>(seed_));
    model_.SetParameters(parameters_);
  }
};

constexpr double kTolerance = 1e-5;

TEST_P(HeadRemoval, MaskedAndRemovedHeadsGiveEqualLogitsForRandomMasks) {
  for (int trial = 0; trial < 40; ++trial) {
    const auto removed = RandomHeads(shape_, (trial % 10 + 0.5) / 10, random_);
    EXPECT_TRUE(Difference(removed) <= kTolerance) << Difference(removed) << " with " << removed.size()
                                                   << " heads removed, seed " << seed_ << ", trial " << trial;
  }
}

TEST_P(HeadRemoval, EveryWholeLayerCanGo) {
  for (int layer = 0; layer < shape_.layers(); ++layer) {
    std::vector<HeadIndex> removed;
    for (int head = 0; head < shape_.heads[layer]; ++head) removed.push_back({layer, head});
    EXPECT_TRUE(Difference(removed) <= kTolerance)
        << Difference(removed) << " without layer " << layer << "'s heads";
  }
}

TEST_P(HeadRemoval, AllHeadsCanGo) {
  const double difference = Difference(AllHeads(shape_));
  EXPECT_TRUE(difference <= kTolerance) << difference;
}

TEST_P(HeadRemoval, MatteredInTheFirstPlace) {  // or the tests above would compare nothing with nothing
  const std::vector<float> whole = model_.Logits(batch_);
  model_.SetGates(GatesFor(shape_, AllHeads(shape_)));
  const std::vector<float> none = model_.Logits(batch_);
  double difference = 0;
  for (std::size_t i = 0; i < whole.size(); ++i)
    difference = std::max(difference, std::abs(double{whole[i]} - none[i]));
  EXPECT_GT(difference, 0.1);
}

INSTANTIATE_TEST_SUITE_P(Models, HeadRemoval, ::testing::ValuesIn(Variants()),
                         [](const auto& variant) { return variant.param.name; });

TEST(CheckMaskedEqualsRemoved, AcceptsRoundingAndNamesTheFirstRealDifference) {
  CheckMaskedEqualsRemoved({1.0f, 20.0f, 0.0f}, {1.00005f, 20.001f, 0.00005f}, 1e-4, 3);
  try {
    CheckMaskedEqualsRemoved({1.0f, 20.0f}, {1.0f, 20.01f}, 1e-4, 3);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("3 heads removed, target 1"), std::string::npos) << error.what();
  }
  EXPECT_THROW(CheckMaskedEqualsRemoved({std::nanf("")}, {std::nanf("")}, 1e-4, 1), Error);
}

}  // namespace
}  // namespace headsweep
