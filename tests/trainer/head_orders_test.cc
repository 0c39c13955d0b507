// Pruning orders from given scores: a fake model answers the orders' questions.
#include "trainer/head_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "cluster/base/errors.h"
#include "sweeps/schema.h"
#include "tests/trainer/head_samples.h"

namespace headsweep {

void PrintTo(const HeadIndex& head, std::ostream* out) {
  *out << "(" << head.layer << ", " << head.head << ")";
}

namespace {

using head_samples::AllHeads;
using head_samples::UnevenShape;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::UnorderedElementsAreArray;

ModelShape ShapeWith(std::vector<int> heads) {
  ModelShape shape = UnevenShape();
  shape.heads = std::move(heads);
  return shape;
}

PruneConfig Config(const std::string& order) {
  PruneConfig config;
  config.order = order;
  return config;
}

// Answers from tables. Importance may depend on what is gone, as in a real model.
class FakeProbe final : public HeadProbe {
 public:
  explicit FakeProbe(ModelShape shape) : shape_(std::move(shape)) {}
  const ModelShape& shape() const override { return shape_; }
  std::vector<double> Importance(const std::vector<HeadIndex>& removed) override {
    asked.push_back(removed);
    std::vector<double> scores = importance;
    if (!removed.empty() && !importance_later.empty()) scores = importance_later;
    for (const HeadIndex head : removed) scores[FlatHead(shape_, head)] = 0;
    return scores;
  }
  std::vector<double> AblationLosses() override { return ablation; }
  std::vector<double> Magnitudes() override { return magnitudes; }

  std::vector<double> importance, importance_later, ablation, magnitudes;
  std::vector<std::vector<HeadIndex>> asked;

 private:
  ModelShape shape_;
};

FakeProbe RandomProbe(const ModelShape& shape, std::mt19937& random) {
  FakeProbe probe(shape);
  // Few distinct values, so that ties happen.
  std::uniform_int_distribution<int> value(0, 3);
  for (auto* scores : {&probe.importance, &probe.importance_later, &probe.ablation, &probe.magnitudes})
    for (int i = 0; i < shape.total_heads(); ++i) scores->push_back(value(random) * 0.25);
  return probe;
}

ModelShape RandomShape(std::mt19937& random) {
  std::vector<int> heads(std::uniform_int_distribution<int>(1, 5)(random));
  for (int& count : heads) count = std::uniform_int_distribution<int>(0, 6)(random);
  return ShapeWith(heads);
}

TEST(HeadOrders, EveryOrderIsAPermutationThatKeepsWhatItMustAndRepeats) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const ModelShape shape = RandomShape(random);
    FakeProbe probe = RandomProbe(shape, random);
    for (const KnownOrder& known : KnownOrders()) {
      PruneConfig config = Config(known.name);
      config.keep = std::uniform_int_distribution<int>(0, 3)(random);
      config.normalize = seed % 2 == 0 ? "layer" : "none";
      config.step = seed % 3 == 0 ? 0.1 : 0.3;
      config.seed = seed;
      SCOPED_TRACE(::testing::Message()
                   << "seed " << seed << ", order " << known.name << ", keep " << config.keep);

      const HeadOrder order = MakeHeadOrder(probe, config);
      EXPECT_THAT(order.heads, UnorderedElementsAreArray(AllHeads(shape)));
      EXPECT_EQ(order.scores.size(), order.heads.size());
      const HeadOrder again = MakeHeadOrder(probe, config);
      EXPECT_EQ(again.heads, order.heads);
      EXPECT_EQ(again.scores, order.scores);

      const auto points = CurvePoints(shape, config.step, config.keep);
      std::vector<int> left = shape.heads;
      for (int i = 0; i < points.back().heads_removed; ++i) --left[order.heads[i].layer];
      for (int layer = 0; layer < shape.layers(); ++layer)
        EXPECT_EQ(left[layer], std::min(config.keep, shape.heads[layer])) << "layer " << layer;
    }
  }
}

TEST(HeadOrders, LowestScoreGoesFirstAndTiesGoByLayerThenHead) {
  const HeadOrder order = OrderByScore(ShapeWith({2, 2}), {0.5, 0.1, 0.1, 0.5}, 0);
  EXPECT_THAT(order.heads, ElementsAre(HeadIndex{0, 1}, HeadIndex{1, 0}, HeadIndex{0, 0}, HeadIndex{1, 1}));
  EXPECT_THAT(order.scores, ElementsAre(0.1, 0.1, 0.5, 0.5));
  EXPECT_THAT(OrderByScore(ShapeWith({2, 2}), {0.5, 0.1, 0.1, 0.5}, 0, /*descending=*/true).heads,
              ElementsAre(HeadIndex{0, 0}, HeadIndex{1, 1}, HeadIndex{0, 1}, HeadIndex{1, 0}));
}

TEST(HeadOrders, KeptHeadsAreTheBestOfTheirLayerAndComeLast) {
  const HeadOrder order = OrderByScore(ShapeWith({2, 3}), {0.1, 0.2, 0.9, 0.3, 0.4}, 1);
  EXPECT_THAT(order.heads, ElementsAre(HeadIndex{0, 0}, HeadIndex{1, 1}, HeadIndex{1, 2}, HeadIndex{0, 1},
                                       HeadIndex{1, 0}));
}

TEST(HeadOrders, NormalizingDividesByTheNormOfTheLayer) {
  const auto scores = NormalizeByLayer(ShapeWith({2, 0, 1, 2}), {3, 4, 7, 0, 0});
  EXPECT_THAT(scores, Pointwise(DoubleNear(1e-15), std::vector<double>{0.6, 0.8, 1, 0, 0}));
}

TEST(HeadOrders, NormalizingDecidesBetweenLayers) {
  FakeProbe probe(ShapeWith({2, 2}));
  probe.importance = {1.0, 2.0, 30.0, 31.0};  // normalised: 0.447 0.894 0.695 0.719
  PruneConfig config = Config("importance");
  EXPECT_THAT(MakeHeadOrder(probe, config).heads,
              ElementsAre(HeadIndex{0, 0}, HeadIndex{1, 0}, HeadIndex{1, 1}, HeadIndex{0, 1}));
  config.normalize = "none";
  EXPECT_THAT(MakeHeadOrder(probe, config).heads,
              ElementsAre(HeadIndex{0, 0}, HeadIndex{0, 1}, HeadIndex{1, 0}, HeadIndex{1, 1}));
}

TEST(HeadOrders, ReversedIsImportanceBackwards) {
  FakeProbe probe(ShapeWith({2, 2}));
  probe.importance = {1.0, 2.0, 30.0, 31.0};
  auto backwards = MakeHeadOrder(probe, Config("importance")).heads;
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(MakeHeadOrder(probe, Config("reversed")).heads, backwards);
}

TEST(HeadOrders, AblationAndMagnitudeUseTheirOwnScoresUnnormalized) {
  FakeProbe probe(ShapeWith({1, 2}));
  probe.ablation = {0.3, -0.1, 0.2};  // a head may hurt
  probe.magnitudes = {5, 7, 6};
  EXPECT_THAT(MakeHeadOrder(probe, Config("ablation")).scores, ElementsAre(-0.1, 0.2, 0.3));
  EXPECT_THAT(MakeHeadOrder(probe, Config("magnitude")).scores, ElementsAre(5, 6, 7));
  EXPECT_TRUE(probe.asked.empty()) << "neither needs a backward pass";
}

TEST(HeadOrders, RescoringAsksForThePrunedModelAtEveryStepAndFollowsIt) {
  FakeProbe probe(ShapeWith({4}));
  probe.importance = {0.1, 0.2, 0.3, 0.4};
  probe.importance_later = {0.1, 0.9, 0.8, 0.7};  // once head 0 is gone, head 1 carries its work
  PruneConfig config = Config("importance-rescored");
  config.step = 0.25;
  config.normalize = "none";
  const HeadOrder order = MakeHeadOrder(probe, config);
  EXPECT_THAT(order.heads, ElementsAre(HeadIndex{0, 0}, HeadIndex{0, 3}, HeadIndex{0, 2}, HeadIndex{0, 1}));
  EXPECT_THAT(order.scores, ElementsAre(0.1, 0.7, 0.8, 0.9));
  ASSERT_EQ(probe.asked.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(probe.asked[i], std::vector<HeadIndex>(order.heads.begin(), order.heads.begin() + i));
  EXPECT_THAT(MakeHeadOrder(probe, Config("importance")).heads,
              ElementsAre(HeadIndex{0, 0}, HeadIndex{0, 1}, HeadIndex{0, 2}, HeadIndex{0, 3}));
}

TEST(HeadOrders, RandomDependsOnTheSeedAndOnNothingElse) {
  FakeProbe probe(ShapeWith({8, 8})), other(ShapeWith({8, 8}));
  other.importance = std::vector<double>(16, 1.0);
  PruneConfig config = Config("random");
  config.seed = 7;
  const HeadOrder seven = MakeHeadOrder(probe, config);
  config.step = 0.5;
  config.score_examples = 1;
  config.per = "token";
  EXPECT_EQ(MakeHeadOrder(other, config).heads, seven.heads);
  config.seed = 8;
  EXPECT_NE(MakeHeadOrder(probe, config).heads, seven.heads);
}

TEST(HeadOrders, RandomPutsEveryHeadFirstEquallyOften) {
  FakeProbe probe(ShapeWith({2, 2}));
  std::vector<int> first(4, 0);
  PruneConfig config = Config("random");
  for (config.seed = 1; config.seed <= 4000; ++config.seed)
    ++first[FlatHead(probe.shape(), MakeHeadOrder(probe, config).heads[0])];
  for (const int count : first) EXPECT_NEAR(count, 1000, 140);  // five standard deviations
}

TEST(HeadOrders, AreThoseThatASweepMayName) {
  std::vector<std::string> names;
  for (const KnownOrder& known : KnownOrders()) names.push_back(known.name);
  EXPECT_THAT(Key(FindKey("prune.order")).choices, UnorderedElementsAreArray(names));
}

TEST(HeadOrders, UnknownNamesAndScoresThatAreNoNumbersAreErrors) {
  FakeProbe probe(ShapeWith({1, 1}));
  try {
    MakeHeadOrder(probe, Config("importence"));
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("importance, importance-rescored, ablation, random, reversed, magnitude"));
  }
  PruneConfig config = Config("importance");
  config.normalize = "row";
  probe.importance = {1, 1};
  EXPECT_THROW(MakeHeadOrder(probe, config), ConfigError);
  probe.ablation = {1, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_THROW(MakeHeadOrder(probe, Config("ablation")), Error);
}

std::vector<double> Fractions(const std::vector<CurvePoint>& points) {
  std::vector<double> fractions;
  for (const CurvePoint& point : points) fractions.push_back(point.fraction);
  return fractions;
}

std::vector<int> Counts(const std::vector<CurvePoint>& points) {
  std::vector<int> counts;
  for (const CurvePoint& point : points) counts.push_back(point.heads_removed);
  return counts;
}

TEST(CurvePoints, GoFromNothingToEverythingAndRoundHalvesUp) {
  const auto points = CurvePoints(ShapeWith({2, 3}), 0.1, 0);  // exactly these numbers, not their neighbours
  EXPECT_THAT(Fractions(points), ElementsAre(0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0));
  EXPECT_THAT(Counts(points), ElementsAre(0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5));
}

TEST(CurvePoints, EndAtOneWhereTheStepDoesNotDivideIt) {
  EXPECT_THAT(Fractions(CurvePoints(ShapeWith({10}), 0.3, 0)), ElementsAre(0, 0.3, 0.6, 0.9, 1.0));
  EXPECT_THAT(Fractions(CurvePoints(ShapeWith({10}), 1, 0)), ElementsAre(0, 1));
  EXPECT_EQ(CurvePoints(ShapeWith({10}), 1.0 / 3, 0).size(), 4u);
}

TEST(CurvePoints, StopRemovingWhereKeepSaysSo) {
  EXPECT_THAT(Counts(CurvePoints(ShapeWith({4, 0, 1}), 0.25, 1)), ElementsAre(0, 1, 3, 3, 3));
}

TEST(CurvePoints, AModelWithoutHeadsHasAFlatCurve) {
  EXPECT_THAT(Counts(CurvePoints(ShapeWith({0, 0}), 0.5, 0)), ElementsAre(0, 0, 0));
}

TEST(CurvePoints, RefuseAStepThatIsNoFraction) {
  for (const double step : {0.0, -0.1, 1e-9, 1.1, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(CurvePoints(UnevenShape(), step, 0), ConfigError) << step;
}

}  // namespace
}  // namespace headsweep
