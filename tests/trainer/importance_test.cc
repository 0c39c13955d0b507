// Head importance is the absolute gradient of each example's mean loss with respect to the head's gate.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/trainer/model_support.h"

namespace headsweep {
namespace {

using testing::SampleBatch;
using testing::SampleParameters;
using testing::Slice;
using testing::TestBackend;
using testing::TinyShape;

// d (mean loss of the one example) / d gate by central differences around `gates`.
double GateDifference(Model& model, const Batch& example, std::vector<float> gates, std::size_t head) {
  const float step = 1e-2f, value = gates[head];
  const auto loss = [&](float gate) {
    gates[head] = gate;
    model.SetGates(gates);
    const LossSum sum = model.Evaluate(example);
    return sum.loss / static_cast<double>(sum.targets);
  };
  return (loss(value + step) - loss(value - step)) / (2.0 * step);
}

void CheckImportance(const std::string& norm, bool padded, bool gates_set) {
  SCOPED_TRACE(norm + (padded ? " padded" : "") + (gates_set ? " gated" : ""));
  const auto backend = TestBackend();
  ModelShape shape = TinyShape();
  shape.norm = norm;
  Model model(*backend, shape, 6, Model::Purpose::kTrain);
  model.SetParameters(SampleParameters(shape, 12));
  const Batch batch = SampleBatch(shape, 6, 3, padded);
  const std::vector<float> gates =
      gates_set ? std::vector<float>{1, 0, 0.5f, 1, 0} : std::vector<float>(5, 1.0f);

  HeadScores scores;
  if (gates_set) model.SetGates(gates);
  // The scale of the gradients must not matter to importance.
  model.ForwardBackward(batch, {.gradient_scale = 0.037f, .scores = &scores});
  ASSERT_EQ(scores.examples, 6);
  ASSERT_EQ(scores.tokens, batch.target_count);

  for (std::size_t head = 0; head < 5; ++head) {
    double absolute = 0, squares = 0;
    for (int b = 0; b < batch.B; ++b) {
      const double difference = GateDifference(model, Slice(batch, b, 1), gates, head);
      absolute += std::abs(difference);
      squares += difference * difference;
    }
    EXPECT_TRUE(std::abs(scores.per_example[head] - absolute) <= 2e-3 + 5e-3 * absolute)
        << "head " << head << ": " << scores.per_example[head] << ", by differences " << absolute;
    EXPECT_TRUE(std::abs(scores.squares[head] - squares) <= 2e-3 + 1e-2 * squares)
        << "head " << head << ": " << scores.squares[head] << ", by differences " << squares;
    EXPECT_GE(scores.per_token[head], scores.per_example[head] * (1 - 1e-5));  // |sum| <= sum of |.|
  }
}

TEST(HeadImportance, IsTheGateGradientOfEachExamplesMeanLoss) {
  for (const char* norm : {"pre", "post"}) {
    for (const bool padded : {false, true}) {
      CheckImportance(norm, padded, /*gates_set=*/false);
      CheckImportance(norm, padded, /*gates_set=*/true);
    }
  }
}

TEST(HeadImportance, AddsUpOverBatchesHoweverTheyAreCut) {
  const auto backend = TestBackend();
  const ModelShape shape = TinyShape();
  Model model(*backend, shape, 6, Model::Purpose::kTrain);
  model.SetParameters(SampleParameters(shape, 12));
  const Batch batch = SampleBatch(shape, 6, 3, true);
  HeadScores whole, parts;
  model.ForwardBackward(batch, {.scores = &whole});
  for (const auto& [first, count] : {std::pair{0, 1}, std::pair{1, 3}, std::pair{4, 2}}) {
    model.ForwardBackward(Slice(batch, first, count), {.gradient_scale = 0.5f, .scores = &parts});
  }
  EXPECT_EQ(whole.examples, parts.examples);
  EXPECT_EQ(whole.tokens, parts.tokens);
  for (std::size_t head = 0; head < 5; ++head) {
    EXPECT_NEAR(whole.per_example[head], parts.per_example[head], 1e-5);
    EXPECT_NEAR(whole.per_token[head], parts.per_token[head], 1e-5);
    EXPECT_NEAR(whole.squares[head], parts.squares[head], 1e-5);
  }
}

}  // namespace
}  // namespace headsweep
