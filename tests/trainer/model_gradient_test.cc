// Gradients of every parameter against central differences of the loss, for every kind of model.
#include <gtest/gtest.h>

#include <random>

#include "tests/trainer/model_support.h"

namespace headsweep {
namespace {

using testing::GradientScale;
using testing::Norm;
using testing::SampleBatch;
using testing::SampleParameters;
using testing::TestBackend;
using testing::TinyShape;

struct Variant {
  std::string norm = "pre", activation = "gelu", positions = "learned";
  bool tied = true, gates = false, padded = false;
  float dropout = 0, smoothing = 0;
};

std::ostream& operator<<(std::ostream& out, const Variant& v) {
  return out << v.norm << ' ' << v.activation << ' ' << v.positions << (v.tied ? " tied" : " free")
             << (v.gates ? " gates" : "") << (v.padded ? " padded" : "") << " dropout " << v.dropout
             << " smoothing " << v.smoothing;
}

class Gradient : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    const Variant& variant = GetParam();
    shape_ = TinyShape();
    shape_.norm = variant.norm;
    shape_.activation = variant.activation;
    shape_.positions = variant.positions;
    shape_.tied = variant.tied;
    batch_ = SampleBatch(shape_, 3, kSeed, variant.padded);
    model_ = std::make_unique<Model>(*backend_, shape_, 4, Model::Purpose::kTrain);
    parameters_ = SampleParameters(shape_, kSeed);
    if (variant.gates) model_->SetGates(std::vector<float>{0.5f, 1.0f, -0.7f, 0.0f, 1.3f});
    options_.gradient_scale = GradientScale(batch_);
    options_.dropout = variant.dropout;
    options_.label_smoothing = variant.smoothing;
    options_.seed = kSeed;
    options_.step = 7;
  }

  double LossAt(const std::vector<float>& parameters) {
    model_->SetParameters(parameters);
    return model_->ForwardBackward(batch_, options_).loss / static_cast<double>(batch_.target_count);
  }

  // d loss / d direction by central differences; parameters + step * direction must be float32 all along.
  double Difference(const Parameter& parameter, const std::vector<float>& direction, float step) {
    std::vector<float> there = parameters_, back = parameters_;
    double moved = 0, count = 0;  // the step that float32 really took
    for (std::int64_t i = 0; i < parameter.count; ++i) {
      const auto at = static_cast<std::size_t>(parameter.offset + i);
      const float d = direction[static_cast<std::size_t>(i)];
      there[at] += step * d;
      back[at] -= step * d;
      if (d != 0) {
        moved += (static_cast<double>(there[at]) - back[at]) / d;
        ++count;
      }
    }
    return (LossAt(there) - LossAt(back)) / (moved / count);
  }

  static constexpr std::uint64_t kSeed = 20240613;
  std::unique_ptr<Backend> backend_ = TestBackend();
  ModelShape shape_;
  Batch batch_;
  std::unique_ptr<Model> model_;
  std::vector<float> parameters_;
  ForwardBackwardOptions options_;
};

TEST_P(Gradient, OfEveryParameterIsTheCentralDifferenceOfTheLoss) {
  model_->SetParameters(parameters_);
  model_->ZeroGradients();
  model_->ForwardBackward(batch_, options_);
  const std::vector<float> gradients = model_->GetGradients();

  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  for (const Parameter& parameter : model_->layout().parameters()) {
    if (parameter.count == 0) continue;
    const float* gradient = gradients.data() + parameter.offset;
    const double size = Norm(gradient, parameter.count);
    // Weighted sums over the whole tensor, and a few single values.
    for (int trial = 0; trial < 7; ++trial) {
      std::vector<float> direction(static_cast<std::size_t>(parameter.count), 0.0f);
      if (trial < 3) {
        for (float& d : direction) d = normal(random);
        const double length = Norm(direction.data(), parameter.count);
        for (float& d : direction) d /= static_cast<float>(length);
      } else {
        direction[random() % direction.size()] = 1;
      }
      double expected = 0;
      for (std::size_t i = 0; i < direction.size(); ++i)
        expected += static_cast<double>(direction[i]) * gradient[i];
      // float32 losses are good to about 2e-7 of 3; a step of 4e-3 leaves 1e-4 of that in the difference.
      const double measured = Difference(parameter, direction, 4e-3f);
      const double tolerance = 3e-4 + 4e-3 * size;
      EXPECT_TRUE(std::abs(measured - expected) <= tolerance)
          << parameter.name << ", trial " << trial << ": measured " << measured << ", gradient " << expected
          << ", norm of its tensor " << size << ", seed " << kSeed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Gradient,
    ::testing::Values(Variant{}, Variant{.norm = "post"}, Variant{.positions = "sinusoidal", .tied = false},
                      Variant{.norm = "post", .positions = "sinusoidal", .tied = false},
                      Variant{.gates = true}, Variant{.norm = "post", .gates = true}, Variant{.padded = true},
                      Variant{.norm = "post", .padded = true, .smoothing = 0.1f},
                      Variant{.dropout = 0.3f, .smoothing = 0.2f},
                      Variant{.norm = "post", .gates = true, .padded = true, .dropout = 0.3f}));

// ReLU has kinks, at which a difference quotient is between the two slopes; a smaller step misses them all
// for this seed.
TEST(GradientOfRelu, IsTheCentralDifferenceOfTheLoss) {
  const auto backend = TestBackend();
  ModelShape shape = TinyShape();
  shape.activation = "relu";
  const Batch batch = SampleBatch(shape, 3, 5);
  Model model(*backend, shape, 3, Model::Purpose::kTrain);
  std::vector<float> parameters = SampleParameters(shape, 5);
  model.SetParameters(parameters);
  model.ZeroGradients();
  model.ForwardBackward(batch, {.gradient_scale = GradientScale(batch)});
  const std::vector<float> gradients = model.GetGradients();
  for (const char* name : {"layers.0.feed_forward.up.weight", "layers.1.feed_forward.up.bias"}) {
    const Parameter& parameter = model.layout().Find(name);
    for (std::int64_t i = 0; i < parameter.count; ++i) {
      const auto at = static_cast<std::size_t>(parameter.offset + i);
      const float value = parameters[at], step = 1e-3f;
      const auto loss = [&](float x) {
        parameters[at] = x;
        model.SetParameters(parameters);
        parameters[at] = value;
        return model.Evaluate(batch).loss / static_cast<double>(batch.target_count);
      };
      const double measured = (loss(value + step) - loss(value - step)) / (2 * step);
      EXPECT_TRUE(std::abs(measured - gradients[at]) <= 1e-3)
          << name << "[" << i << "]: measured " << measured << ", gradient " << gradients[at];
    }
  }
}

}  // namespace
}  // namespace headsweep
