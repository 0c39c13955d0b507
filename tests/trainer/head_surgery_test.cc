// RemoveHeads and its relatives on flat parameter vectors, without running a model (head_removal_test.cc
// does).
#include "trainer/head_surgery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/trainer/head_samples.h"

namespace headsweep {
namespace {

using head_samples::AllHeads;
using head_samples::RandomHeads;
using head_samples::RandomParameters;
using head_samples::UnevenShape;
using ::testing::ElementsAre;

// Values of one head of one layer, gathered index by index: query, key, value rows, their biases, output
// columns.
std::vector<float> ValuesOfHead(const ModelShape& shape, const std::vector<float>& parameters, HeadIndex at) {
  const ParameterLayout layout(shape);
  const int H = shape.heads[at.layer], D = shape.head_size, C = shape.embed;
  const std::string name = "layers." + std::to_string(at.layer) + ".attention.";
  const auto* weight = parameters.data() + layout.Find(name + "query_key_value.weight").offset;
  const auto* bias = parameters.data() + layout.Find(name + "query_key_value.bias").offset;
  const auto* output = parameters.data() + layout.Find(name + "output.weight").offset;
  std::vector<float> values;
  for (int part = 0; part < 3; ++part)
    for (int d = 0; d < D; ++d) {
      values.push_back(bias[(part * H + at.head) * D + d]);
      for (int c = 0; c < C; ++c) values.push_back(weight[((part * H + at.head) * D + d) * C + c]);
    }
  for (int c = 0; c < C; ++c)
    for (int d = 0; d < D; ++d) values.push_back(output[(c * H + at.head) * D + d]);
  return values;
}

bool OfHeads(const std::string& name) {
  return name.find("query_key_value") != std::string::npos ||
         name.find("attention.output.weight") != std::string::npos;
}

TEST(RemoveHeads, KeepsEveryValueOfTheHeadsThatStayAndOfAllElse) {
  const ModelShape shape = UnevenShape();
  for (unsigned seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto parameters = RandomParameters(shape, random);
    const auto removed = RandomHeads(shape, 0.5, random);
    const PrunedModel pruned = RemoveHeads(shape, parameters, removed);
    const auto kept = KeptHeads(shape, removed);

    ASSERT_EQ(pruned.shape.total_heads(), static_cast<int>(kept.size()));
    ASSERT_EQ(kept.size() + removed.size(), AllHeads(shape).size());
    for (int flat = 0; flat < pruned.shape.total_heads(); ++flat)
      EXPECT_EQ(ValuesOfHead(pruned.shape, pruned.parameters, HeadAt(pruned.shape, flat)),
                ValuesOfHead(shape, parameters, kept[flat]));
    const ParameterLayout from(shape), to(pruned.shape);
    ASSERT_EQ(static_cast<std::int64_t>(pruned.parameters.size()), to.size());
    for (const Parameter& p : to.parameters()) {
      if (OfHeads(p.name)) continue;
      const auto* source = parameters.data() + from.Find(p.name).offset;
      EXPECT_TRUE(std::equal(source, source + p.count, pruned.parameters.data() + p.offset)) << p.name;
    }
  }
}

TEST(RemoveHeads, RemovingNothingChangesNothing) {
  std::mt19937 random(1);
  const ModelShape shape = UnevenShape();
  const auto parameters = RandomParameters(shape, random);
  const PrunedModel same = RemoveHeads(shape, parameters, {});
  EXPECT_EQ(same.shape, shape);
  EXPECT_EQ(same.parameters, parameters);
}

TEST(RemoveHeads, EmptiesALayerAndThenTheWholeModel) {
  std::mt19937 random(2);
  const ModelShape shape = UnevenShape();
  const auto parameters = RandomParameters(shape, random);
  EXPECT_THAT(RemoveHeads(shape, parameters, {{0, 2}, {0, 0}, {0, 1}}).shape.heads, ElementsAre(0, 1, 4));
  const PrunedModel none = RemoveHeads(shape, parameters, AllHeads(shape));
  EXPECT_THAT(none.shape.heads, ElementsAre(0, 0, 0));
  EXPECT_EQ(static_cast<std::int64_t>(none.parameters.size()), ParameterLayout(none.shape).size());
  EXPECT_EQ(RemoveHeads(none.shape, none.parameters, {}).parameters,
            none.parameters);  // nothing left to trip over
}

TEST(RemoveHeads, RemovingInTwoStepsIsRemovingTheUnion) {
  const ModelShape shape = UnevenShape();
  for (unsigned seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto parameters = RandomParameters(shape, random);
    const auto first = RandomHeads(shape, 0.4, random);
    const PrunedModel half = RemoveHeads(shape, parameters, first);
    const auto second = RandomHeads(half.shape, 0.5, random);  // counts heads of the smaller model
    const PrunedModel twice = RemoveHeads(half.shape, half.parameters, second);

    const auto left = KeptHeads(shape, first);
    std::vector<HeadIndex> all = first;
    for (const HeadIndex head : second) all.push_back(left[FlatHead(half.shape, head)]);
    const PrunedModel once = RemoveHeads(shape, parameters, all);
    EXPECT_EQ(twice.shape, once.shape);
    EXPECT_EQ(twice.parameters, once.parameters);
  }
}

TEST(RemoveHeadsDeathTest, RefusesDuplicatesAndStrangers) {
  const ModelShape shape = UnevenShape();
  std::mt19937 random(3);
  const auto parameters = RandomParameters(shape, random);
  EXPECT_DEATH(RemoveHeads(shape, parameters, {{0, 1}, {0, 1}}), "layer 0 head 1 is removed twice");
  EXPECT_DEATH(RemoveHeads(shape, parameters, {{1, 1}}), "layer 1 head 1 is not in this model");
  EXPECT_DEATH(RemoveHeads(shape, parameters, {{3, 0}}), "layer 3 head 0 is not in this model");
  EXPECT_DEATH(RemoveHeads(shape, std::vector<float>(7), {}), "7 parameters were given");
}

TEST(GatesFor, AreZeroExactlyWhereHeadsGo) {
  EXPECT_THAT(GatesFor(UnevenShape(), {{2, 3}, {0, 1}}), ElementsAre(1, 0, 1, 1, 1, 1, 1, 0));
}

TEST(KeptHeads, AreListedInTheFlatOrderOfThePrunedModel) {
  EXPECT_THAT(
      KeptHeads(UnevenShape(), {{1, 0}, {2, 1}, {0, 0}}),
      ElementsAre(HeadIndex{0, 1}, HeadIndex{0, 2}, HeadIndex{2, 0}, HeadIndex{2, 2}, HeadIndex{2, 3}));
}

TEST(HeadMagnitudes, AreTheNormOfAllThatBelongsToAHead) {
  const ModelShape shape = UnevenShape();
  std::mt19937 random(4);
  const auto parameters = RandomParameters(shape, random);
  const auto magnitudes = HeadMagnitudes(shape, parameters);
  ASSERT_EQ(static_cast<int>(magnitudes.size()), shape.total_heads());
  for (int flat = 0; flat < shape.total_heads(); ++flat) {
    double squares = 0;
    for (const float value : ValuesOfHead(shape, parameters, HeadAt(shape, flat)))
      squares += double{value} * value;
    EXPECT_NEAR(magnitudes[flat], std::sqrt(squares), 1e-9) << "head " << flat;
  }
}

TEST(HeadMagnitudes, DoNotChangeWhenOtherHeadsGo) {
  const ModelShape shape = UnevenShape();
  std::mt19937 random(5);
  const auto parameters = RandomParameters(shape, random);
  const std::vector<HeadIndex> removed = {{0, 0}, {1, 0}, {2, 2}};
  const PrunedModel pruned = RemoveHeads(shape, parameters, removed);
  const auto before = HeadMagnitudes(shape, parameters),
             after = HeadMagnitudes(pruned.shape, pruned.parameters);
  const auto kept = KeptHeads(shape, removed);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(after[i], before[FlatHead(shape, kept[i])]);
}

}  // namespace
}  // namespace headsweep
