// What a model does as a whole: losses, evaluation, micro-batches, dropout, memory.
#include "trainer/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/allocations.h"
#include "tests/trainer/model_support.h"
#include "trainer/optimizer.h"

namespace headsweep {
namespace {

using testing::GradientScale;
using testing::SampleBatch;
using testing::SampleParameters;
using testing::Slice;
using testing::TestBackend;
using testing::TinyShape;

// A shape with enough heads, rows and pieces for the loss to be a mean over many.
ModelShape MiddlingShape() {
  ModelShape shape = TinyShape();
  shape.vocabulary = 131;
  shape.length = 17;
  shape.embed = 24;
  shape.head_size = 8;
  shape.feed_forward = 50;
  return shape;
}

double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= worst)) worst = difference;  // NaN sticks
  }
  return worst;
}

std::vector<float> GradientsOf(Model& model, const std::vector<Batch>& parts,
                               ForwardBackwardOptions options) {
  model.ZeroGradients();
  for (const Batch& part : parts) model.ForwardBackward(part, options);
  return model.GetGradients();
}

TEST(Model, UntrainedLossIsAboutTheLogarithmOfTheVocabulary) {
  const auto backend = TestBackend();
  for (const char* norm : {"pre", "post"}) {
    for (const char* positions : {"learned", "sinusoidal"}) {
      ModelShape shape = MiddlingShape();
      shape.norm = norm;
      shape.positions = positions;
      Model model(*backend, shape, 8, Model::Purpose::kEvaluate);
      model.Initialize(3);
      const LossSum sum = model.Evaluate(SampleBatch(shape, 8, 1));
      EXPECT_EQ(sum.targets, 8 * 17);
      EXPECT_NEAR(sum.loss / static_cast<double>(sum.targets), std::log(131.0), 0.15)
          << norm << ' ' << positions;
    }
  }
}

TEST(Model, InitialisationDependsOnSeedAndNameAlone) {
  const auto backend = TestBackend();
  ModelShape shape = MiddlingShape();
  Model first(*backend, shape, 1, Model::Purpose::kEvaluate);
  first.Initialize(3);
  const std::vector<float> parameters = first.GetParameters();
  shape.heads = {3, 2, 2};  // another layer's heads change nothing elsewhere
  Model second(*backend, shape, 1, Model::Purpose::kTrain);
  second.Initialize(3);
  const std::vector<float> others = second.GetParameters();
  for (const char* name : {"token_embedding.weight", "layers.2.attention.query_key_value.weight"}) {
    const Parameter &a = first.layout().Find(name), &b = second.layout().Find(name);
    ASSERT_EQ(a.count, b.count);
    for (std::int64_t i = 0; i < a.count; ++i) {
      ASSERT_EQ(parameters[static_cast<std::size_t>(a.offset + i)],
                others[static_cast<std::size_t>(b.offset + i)]);
    }
  }
  second.Initialize(4);
  EXPECT_NE(second.GetParameters(), others);
}

TEST(Model, EvaluationIsTheSumOverLogitsByHand) {
  const auto backend = TestBackend();
  const ModelShape shape = MiddlingShape();
  Model model(*backend, shape, 4, Model::Purpose::kEvaluate);
  model.SetParameters(SampleParameters(shape, 1));
  const Batch batch = SampleBatch(shape, 3, 2, /*padded=*/true);
  std::vector<float> per_target;
  const LossSum sum = model.Evaluate(batch, &per_target);
  const std::vector<float> logits = model.Logits(batch);
  ASSERT_EQ(per_target.size(), batch.targets.size());
  double loss = 0;
  const auto V = static_cast<std::size_t>(shape.vocabulary);
  for (std::size_t r = 0; r < batch.targets.size(); ++r) {
    if (batch.targets[r] < 0) {
      EXPECT_EQ(per_target[r], 0);
      continue;
    }
    double sum_of_exponentials = 0;
    for (std::size_t v = 0; v < V; ++v)
      sum_of_exponentials += std::exp(static_cast<double>(logits[r * V + v]));
    const double row =
        std::log(sum_of_exponentials) - logits[r * V + static_cast<std::size_t>(batch.targets[r])];
    EXPECT_NEAR(per_target[r], row, 1e-5 * std::max(1.0, row));
    loss += row;
  }
  EXPECT_NEAR(sum.loss, loss, 1e-5 * loss);
  EXPECT_EQ(sum.targets, batch.target_count);
}

TEST(Model, TrainingAndEvaluationModelsGiveTheSameLossInEveryVariant) {
  const auto backend = TestBackend();
  for (const char* norm : {"pre", "post"}) {
    for (const bool gates : {false, true}) {
      ModelShape shape = MiddlingShape();
      shape.norm = norm;
      Model train(*backend, shape, 5, Model::Purpose::kTrain),
          evaluate(*backend, shape, 3, Model::Purpose::kEvaluate);
      for (Model* model : {&train, &evaluate}) {
        model->SetParameters(SampleParameters(shape, 9));
        if (gates) model->SetGates(std::vector<float>{1, 0, 1, 0.5f, 1});
      }
      const Batch batch = SampleBatch(shape, 3, 4, true);
      const double expected = evaluate.Evaluate(batch).loss;
      EXPECT_EQ(train.Evaluate(batch).loss, expected);
      EXPECT_EQ(train.ForwardBackward(batch, {}).loss, expected);
      EXPECT_LT(evaluate.memory_bytes(), train.memory_bytes());
      EXPECT_EQ(train.memory_bytes(), Model::PlannedBytes(*backend, shape, 5, Model::Purpose::kTrain));
    }
  }
}

TEST(Model, PaddingAndShorterBatchesChangeNothing) {
  const auto backend = TestBackend();
  const ModelShape shape = MiddlingShape();
  Model model(*backend, shape, 4, Model::Purpose::kEvaluate);
  model.SetParameters(SampleParameters(shape, 1));
  Batch padded = SampleBatch(shape, 1, 8);
  const int length = 6;
  padded.lengths = {length};
  for (int t = length; t < shape.length; ++t) padded.targets[static_cast<std::size_t>(t)] = -1;
  Batch cut;
  cut.B = 1;
  cut.T = length;
  cut.tokens.assign(padded.tokens.begin(), padded.tokens.begin() + length);
  cut.targets.assign(padded.targets.begin(), padded.targets.begin() + length);
  cut.target_count = length;
  EXPECT_NEAR(model.Evaluate(padded).loss, model.Evaluate(cut).loss, 1e-4);
  EXPECT_EQ(model.Evaluate(padded).targets, length);
}

TEST(Model, TheFutureIsNotSeen) {
  const auto backend = TestBackend();
  const ModelShape shape = MiddlingShape();
  Model model(*backend, shape, 1, Model::Purpose::kEvaluate);
  model.SetParameters(SampleParameters(shape, 1));
  Batch batch = SampleBatch(shape, 1, 8);
  std::vector<float> before, after;
  model.Evaluate(batch, &before);
  batch.tokens[9] = (batch.tokens[9] + 1) % shape.vocabulary;
  model.Evaluate(batch, &after);
  for (std::size_t t = 0; t < 17; ++t) {
    EXPECT_EQ(before[t] == after[t], t < 9) << t;
  }
}

TEST(Model, MicroBatchesAddUpToTheGradientOfTheWholeBatch) {
  const auto backend = TestBackend();
  for (const bool padded : {false, true}) {
    const ModelShape shape = MiddlingShape();
    Model model(*backend, shape, 8, Model::Purpose::kTrain);
    model.SetParameters(SampleParameters(shape, 1));
    const Batch batch = SampleBatch(shape, 8, 2, padded);
    const ForwardBackwardOptions options{.gradient_scale = GradientScale(batch), .label_smoothing = 0.1f};
    const auto whole = GradientsOf(model, {batch}, options);
    const auto parts =
        GradientsOf(model, {Slice(batch, 0, 3), Slice(batch, 3, 3), Slice(batch, 6, 2)}, options);
    EXPECT_TRUE(MaxDifference(whole, parts) <= 1e-5) << MaxDifference(whole, parts);
  }
}

TEST(Model, DropoutMasksDoNotDependOnHowTheBatchIsCut) {
  const auto backend = TestBackend();
  const ModelShape shape = MiddlingShape();
  Model model(*backend, shape, 8, Model::Purpose::kTrain);
  model.SetParameters(SampleParameters(shape, 1));
  const Batch batch = SampleBatch(shape, 8, 2);
  ForwardBackwardOptions options{
      .gradient_scale = GradientScale(batch), .dropout = 0.4f, .seed = 5, .step = 3};
  const auto whole = GradientsOf(model, {batch}, options);
  const auto parts =
      GradientsOf(model, {Slice(batch, 0, 1), Slice(batch, 1, 5), Slice(batch, 6, 2)}, options);
  EXPECT_TRUE(MaxDifference(whole, parts) <= 1e-5) << MaxDifference(whole, parts);
  options.step = 4;
  EXPECT_GT(MaxDifference(whole, GradientsOf(model, {batch}, options)), 1e-3);  // another step, other masks
  options.step = 3;
  options.seed = 6;
  EXPECT_GT(MaxDifference(whole, GradientsOf(model, {batch}, options)), 1e-3);
}

TEST(Model, TheSameStepGivesTheSameBitsTwice) {
  const auto backend = TestBackend(2);
  const ModelShape shape = MiddlingShape();
  Model model(*backend, shape, 8, Model::Purpose::kTrain);
  model.SetParameters(SampleParameters(shape, 1));
  const Batch batch = SampleBatch(shape, 8, 2);
  const ForwardBackwardOptions options{.gradient_scale = GradientScale(batch), .dropout = 0.1f};
  EXPECT_EQ(GradientsOf(model, {batch}, options), GradientsOf(model, {batch}, options));
}

TEST(Model, AGateOfZeroIsTheModelWithoutThatHeadsOutput) {
  const auto backend = TestBackend();
  const ModelShape shape = MiddlingShape();
  Model gated(*backend, shape, 4, Model::Purpose::kEvaluate),
      cut(*backend, shape, 4, Model::Purpose::kEvaluate);
  std::vector<float> parameters = SampleParameters(shape, 1);
  gated.SetParameters(parameters);
  const Batch batch = SampleBatch(shape, 4, 2);
  const double ungated = gated.Evaluate(batch).loss;
  gated.SetGates(std::vector<float>{1, 0, 1, 1, 1});
  // The columns (c, head 1, d) of layer 0's output projection, zeroed.
  const Parameter& projection = cut.layout().Find("layers.0.attention.output.weight");
  for (std::int64_t c = 0; c < shape.embed; ++c) {
    for (std::int64_t d = 0; d < shape.head_size; ++d) {
      parameters[static_cast<std::size_t>(projection.offset + (c * 3 + 1) * shape.head_size + d)] = 0;
    }
  }
  cut.SetParameters(parameters);
  EXPECT_NEAR(gated.Evaluate(batch).loss, cut.Evaluate(batch).loss, 1e-3);
  EXPECT_GT(std::abs(gated.Evaluate(batch).loss - ungated), 1e-2);
  gated.ClearGates();
  EXPECT_EQ(gated.Evaluate(batch).loss, ungated);
}

TEST(Model, UnevenHeadsLearnOneBatchByHeart) {
  const auto backend = TestBackend();
  for (const char* norm : {"pre", "post"}) {
    for (const bool tied : {true, false}) {
      ModelShape shape = MiddlingShape();
      shape.norm = norm;
      shape.tied = tied;
      Model model(*backend, shape, 4, Model::Purpose::kTrain);
      model.Initialize(1);
      TrainConfig config;
      config.weight_decay = 0;
      Optimizer optimizer(model, config);
      const Batch batch = SampleBatch(shape, 2, 6);
      double loss = 0;
      for (int step = 1; step <= 200; ++step) {
        model.ZeroGradients();
        loss = model.ForwardBackward(batch, {.gradient_scale = GradientScale(batch)}).loss /
               static_cast<double>(batch.target_count);
        optimizer.GradientNorm();
        optimizer.Update(6e-3, step);
      }
      EXPECT_TRUE(loss < 0.05) << norm << (tied ? " tied" : " free") << ": loss " << loss;
    }
  }
}

TEST(Model, ASteadyStepAllocatesNothing) {
  const auto backend = TestBackend(2);
  const ModelShape shape = MiddlingShape();
  Model model(*backend, shape, 4, Model::Purpose::kTrain);
  model.Initialize(1);
  Optimizer optimizer(model, TrainConfig{});
  const Batch batch = SampleBatch(shape, 4, 6, true);
  const auto step = [&](std::int64_t s) {
    model.ZeroGradients();
    model.ForwardBackward(batch, {.gradient_scale = GradientScale(batch), .dropout = 0.1f, .step = s});
    optimizer.GradientNorm();
    optimizer.Update(1e-3, s);
  };
  step(1);  // the backend may grow its scratch once
  const std::int64_t before = testing::CountAllocations().allocations;
  step(2);
  step(3);
  EXPECT_EQ(testing::CountAllocations().allocations - before, 0);
}

}  // namespace
}  // namespace headsweep
