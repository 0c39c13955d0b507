// What orders learn about a real model: importance against finite differences, ablation of planted heads.
#include "trainer/head_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cluster/base/errors.h"
#include "kernels/backend.h"
#include "tests/trainer/head_samples.h"
#include "trainer/batch_passes.h"
#include "trainer/collective.h"
#include "trainer/head_orders.h"
#include "trainer/head_surgery.h"
#include "trainer/model.h"

namespace headsweep {
namespace {

using head_samples::AllHeads;
using head_samples::RandomBatch;
using head_samples::RandomParameters;
using head_samples::UnevenShape;

class HeadProbeTest : public ::testing::Test {
 protected:
  ModelProbe Probe(const std::vector<Batch>& sample, const std::string& per = "example") {
    return ModelProbe(*backend_, passes_, shape_, parameters_, sample, per);
  }

  // Mean over examples of |d(mean loss of the example)/d(gate)|, by central differences: one example at a
  // time.
  std::vector<double> DifferenceImportance(const std::vector<Batch>& sample,
                                           const std::vector<HeadIndex>& removed) {
    constexpr float kStep = 0.02f;
    Model model(*backend_, shape_, 1, Model::Purpose::kEvaluate);
    model.SetParameters(parameters_);
    std::vector<double> importance(shape_.total_heads(), 0.0);
    int examples = 0;
    for (const Batch& batch : sample) {
      for (int b = 0; b < batch.B; ++b, ++examples) {
        const Batch example = OneExample(batch, b);
        for (int head = 0; head < shape_.total_heads(); ++head) {
          const auto loss = [&](float gate) {
            std::vector<float> gates = GatesFor(shape_, removed);
            if (gates[head] != 0) gates[head] = gate;
            model.SetGates(gates);
            const LossSum sum = model.Evaluate(example);
            return sum.loss / static_cast<double>(sum.targets);
          };
          importance[head] += std::abs(loss(1 + kStep) - loss(1 - kStep)) / (2 * kStep);
        }
      }
    }
    for (double& score : importance) score /= examples;
    return importance;
  }

  static Batch OneExample(const Batch& batch, int b) {
    Batch one;
    one.B = 1;
    one.T = batch.T;
    const auto row = static_cast<std::ptrdiff_t>(b) * batch.T;
    one.tokens.assign(batch.tokens.begin() + row, batch.tokens.begin() + row + batch.T);
    one.targets.assign(batch.targets.begin() + row, batch.targets.begin() + row + batch.T);
    if (!batch.lengths.empty()) one.lengths = {batch.lengths[b]};
    one.target_count =
        std::count_if(one.targets.begin(), one.targets.end(), [](auto target) { return target >= 0; });
    return one;
  }

  // Cuts row b of the batch to `length` tokens.
  static void Shorten(Batch& batch, int b, int length) {
    if (batch.lengths.empty()) batch.lengths.assign(batch.B, batch.T);
    batch.lengths[b] = length;
    for (int t = length; t < batch.T; ++t) {
      batch.tokens[b * batch.T + t] = 0;
      batch.targets[b * batch.T + t] = -1;
    }
    batch.target_count =
        std::count_if(batch.targets.begin(), batch.targets.end(), [](auto target) { return target >= 0; });
  }

  void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
      EXPECT_TRUE(std::abs(actual[i] - expected[i]) <= tolerance * (0.05 + expected[i]))
          << "head " << i << ": " << actual[i] << ", expected " << expected[i];
  }

  std::mt19937 random_{11};
  ModelShape shape_ = UnevenShape();
  std::vector<float> parameters_ = RandomParameters(shape_, random_);
  std::unique_ptr<Backend> backend_ = MakeBackend({});
  std::unique_ptr<Collective> alone_ = MakeSingleProcessCollective();
  std::atomic<bool> stop_{false};
  std::vector<PassProgress> reported_;
  BatchPasses passes_{*alone_, stop_,
                      [this](const PassProgress& progress) { reported_.push_back(progress); }};
};

TEST_F(HeadProbeTest, ImportanceIsTheMeanAbsoluteSlopeOfTheLossAlongEachGate) {
  const std::vector<Batch> sample = {RandomBatch(shape_, 4, random_), RandomBatch(shape_, 3, random_)};
  ExpectNear(Probe(sample).Importance({}), DifferenceImportance(sample, {}), 5e-3);
}

TEST_F(HeadProbeTest, EveryExampleWeighsTheSameHoweverLongItIs) {
  std::vector<Batch> sample = {RandomBatch(shape_, 4, random_)};
  Shorten(sample[0], 0, 1);
  Shorten(sample[0], 2, 4);
  ExpectNear(Probe(sample).Importance({}), DifferenceImportance(sample, {}), 5e-3);
}

TEST_F(HeadProbeTest, ImportanceOfThePrunedModelIsMappedBackToTheTrainedOne) {
  const std::vector<Batch> sample = {RandomBatch(shape_, 4, random_)};
  const std::vector<HeadIndex> removed = {{0, 1}, {1, 0}, {2, 0}, {2, 2}};
  const auto scores = Probe(sample).Importance(removed);
  ExpectNear(scores, DifferenceImportance(sample, removed), 5e-3);
  for (const HeadIndex head : removed) EXPECT_EQ(scores[FlatHead(shape_, head)], 0);
  EXPECT_GT(scores[FlatHead(shape_, {2, 3})], 0);
}

TEST_F(HeadProbeTest, ImportanceDoesNotDependOnHowTheSampleIsCutIntoBatches) {
  const Batch all = RandomBatch(shape_, 6, random_);
  std::vector<Batch> ones;
  for (int b = 0; b < all.B; ++b) ones.push_back(OneExample(all, b));
  ExpectNear(Probe({all}).Importance({}), Probe(ones).Importance({}), 1e-4);
}

TEST_F(HeadProbeTest, PerTokenAndPerExampleDifferWhereSignsCancelAndOnlyThere) {
  const std::vector<Batch> sample = {RandomBatch(shape_, 5, random_)};
  ModelProbe probe = Probe(sample);
  probe.Importance({});
  for (const ImportanceRow& row : probe.importance()) {
    // Sums over tokens of |.| can only be larger; a random model has both signs in every example.
    const double tokens_per_example = shape_.length;
    EXPECT_GT(row.per_token * tokens_per_example, row.per_example * 1.01) << row.layer << "/" << row.head;
  }
  const auto by_token = Probe(sample, "token").Importance({});
  for (const ImportanceRow& row : probe.importance())
    EXPECT_EQ(by_token[FlatHead(shape_, {row.layer, row.head})], row.per_token);

  std::vector<Batch> single = sample;  // one target each: nothing can cancel
  for (int b = 0; b < single[0].B; ++b) Shorten(single[0], b, 1);
  ModelProbe alike = Probe(single);
  alike.Importance({});
  for (const ImportanceRow& row : alike.importance()) EXPECT_NEAR(row.per_token, row.per_example, 1e-6);
}

TEST_F(HeadProbeTest, RefusesAnUnknownPer) {
  const std::vector<Batch> sample = {RandomBatch(shape_, 1, random_)};
  EXPECT_THROW(Probe(sample, "word"), ConfigError);
}

// A model that is sure of its predictions, and right: any head that it uses is missed when it is gone.
class PlantedHeads : public HeadProbeTest {
 protected:
  const HeadIndex useless_{2, 1}, vital_{0, 2};

  void SetUp() override {
    shape_.tied = false;
    parameters_ = RandomParameters(shape_, random_);
    const ParameterLayout layout(shape_);
    const Parameter& output = layout.Find("output.weight");
    for (std::int64_t i = 0; i < output.count; ++i) parameters_[output.offset + i] *= 200;
    for (const HeadIndex head : AllHeads(shape_))
      ScaleOutput(head, head == vital_ ? 12.0f : head == useless_ ? 0.0f : 3.0f);
    Batch batch = RandomBatch(shape_, 24, random_);
    Model model(*backend_, shape_, batch.B, Model::Purpose::kEvaluate);
    model.SetParameters(parameters_);
    const std::vector<float> logits = model.Logits(batch);
    for (std::size_t r = 0; r < batch.targets.size(); ++r) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(r) * shape_.vocabulary;
      batch.targets[r] = static_cast<std::int32_t>(std::max_element(row, row + shape_.vocabulary) - row);
    }
    sample_ = {batch};
  }

  void ScaleOutput(HeadIndex at, float factor) {
    const ParameterLayout layout(shape_);
    const Parameter& output = layout.Find("layers." + std::to_string(at.layer) + ".attention.output.weight");
    const int H = shape_.heads[at.layer], D = shape_.head_size;
    for (int c = 0; c < shape_.embed; ++c)
      for (int d = 0; d < D; ++d) parameters_[output.offset + (c * H + at.head) * D + d] *= factor;
  }

  PruneConfig Config(const std::string& order) {
    PruneConfig config;
    config.order = order;
    return config;
  }

  std::vector<Batch> sample_;
};

TEST_F(PlantedHeads, AblationPutsTheUselessOneFirstAndTheVitalOneLast) {
  ModelProbe probe = Probe(sample_);
  const HeadOrder order = MakeHeadOrder(probe, Config("ablation"));
  EXPECT_EQ(order.heads.front(), useless_);
  EXPECT_NEAR(order.scores.front(), 0, 1e-6);
  EXPECT_EQ(order.heads.back(), vital_);
  ASSERT_EQ(probe.ablation().size(), AllHeads(shape_).size());
  for (const AblationRow& row : probe.ablation()) {
    const auto place = std::find(order.heads.begin(), order.heads.end(), HeadIndex{row.layer, row.head});
    EXPECT_EQ(order.scores[place - order.heads.begin()], row.loss_increase);
  }
}

TEST_F(PlantedHeads, ImportancePutsTheUselessOneFirst) {
  ModelProbe probe = Probe(sample_);
  const HeadOrder order = MakeHeadOrder(probe, Config("importance"));
  EXPECT_EQ(order.heads.front(), useless_);
  EXPECT_EQ(order.scores.front(), 0);
}

TEST_F(PlantedHeads, AblationLossIsTheLossOfTheModelWithoutTheHead) {
  ModelProbe probe = Probe(sample_);
  const auto increases = probe.AblationLosses();
  Model whole(*backend_, shape_, 24, Model::Purpose::kEvaluate);
  whole.SetParameters(parameters_);
  const LossSum all = whole.Evaluate(sample_[0]);
  for (const HeadIndex head : AllHeads(shape_)) {
    const PrunedModel pruned = RemoveHeads(shape_, parameters_, {head});
    Model model(*backend_, pruned.shape, 24, Model::Purpose::kEvaluate);
    model.SetParameters(pruned.parameters);
    const double increase = (model.Evaluate(sample_[0]).loss - all.loss) / static_cast<double>(all.targets);
    EXPECT_NEAR(increases[FlatHead(shape_, head)], increase, 1e-4 * (1 + std::abs(increase)))
        << head.layer << "/" << head.head;
  }
}

TEST_F(HeadProbeTest, ReportsEveryBatchAndStopsWhenAsked) {
  const std::vector<Batch> sample = {RandomBatch(shape_, 2, random_), RandomBatch(shape_, 1, random_)};
  ModelProbe probe = Probe(sample);
  probe.AblationLosses();
  ASSERT_EQ(reported_.size(), 2u * (shape_.total_heads() + 1));
  EXPECT_EQ(reported_.front().batches_done, 1);
  EXPECT_EQ(reported_.front().batches_known, static_cast<std::int64_t>(reported_.size()));
  EXPECT_EQ(reported_.back().batches_done, reported_.back().batches_known);
  EXPECT_EQ(reported_.back().tokens, 3 * shape_.length * (shape_.total_heads() + 1));
  stop_ = true;
  EXPECT_THROW(probe.AblationLosses(), PassesStopped);
  EXPECT_THROW(probe.Importance({}), PassesStopped);
}

}  // namespace
}  // namespace headsweep
