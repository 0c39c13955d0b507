// AdamW over a model: against the formula in double precision, with clipping and decay of matrices only.
#include "trainer/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/trainer/model_support.h"

namespace headsweep {
namespace {

using testing::GradientScale;
using testing::Norm;
using testing::SampleBatch;
using testing::SampleParameters;
using testing::TestBackend;
using testing::TinyShape;

TEST(Optimizer, ThreeStepsFollowTheFormula) {
  const auto backend = TestBackend();
  const ModelShape shape = TinyShape();
  Model model(*backend, shape, 4, Model::Purpose::kTrain);
  const std::vector<float> start = SampleParameters(shape, 4);
  model.SetParameters(start);
  TrainConfig config;
  config.weight_decay = 0.3;
  config.clip_norm = 0.05;  // below every norm here: clipping is on
  Optimizer optimizer(model, config);
  const Batch batch = SampleBatch(shape, 4, 4);

  std::vector<double> w(start.begin(), start.end()), m(start.size()), v(start.size());
  for (int step = 1; step <= 3; ++step) {
    const double rate = 0.01 * step;
    model.ZeroGradients();
    model.ForwardBackward(batch, {.gradient_scale = GradientScale(batch)});
    const std::vector<float> g = model.GetGradients();
    const double norm = Norm(g.data(), static_cast<std::int64_t>(g.size()));
    EXPECT_NEAR(optimizer.GradientNorm(), norm, 1e-5 * norm);
    ASSERT_GT(norm, config.clip_norm);
    optimizer.Update(rate, step);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double gradient = g[i] * config.clip_norm / norm;
      m[i] = config.beta1 * m[i] + (1 - config.beta1) * gradient;
      v[i] = config.beta2 * v[i] + (1 - config.beta2) * gradient * gradient;
      const double m_hat = m[i] / (1 - std::pow(config.beta1, step)),
                   v_hat = v[i] / (1 - std::pow(config.beta2, step));
      const double decay =
          static_cast<std::int64_t>(i) < model.layout().decaying_size() ? config.weight_decay : 0;
      w[i] -= rate * (m_hat / (std::sqrt(v_hat) + config.epsilon) + decay * w[i]);
    }
  }
  const std::vector<float> parameters = model.GetParameters();
  // A gradient of exactly or nearly 0 makes m/sqrt(v) ill-conditioned; everything else agrees to float32.
  std::size_t compared = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (std::abs(m[i]) < 1e-7) continue;
    ++compared;
    EXPECT_TRUE(std::abs(parameters[i] - w[i]) <= 2e-5) << i << ": " << parameters[i] << ", formula " << w[i];
  }
  EXPECT_GT(compared, w.size() / 2);
}

TEST(Optimizer, MomentsComeBackAsTheyWereSet) {
  const auto backend = TestBackend();
  const ModelShape shape = TinyShape();
  Model model(*backend, shape, 1, Model::Purpose::kTrain);
  Optimizer optimizer(model, TrainConfig{});
  const std::vector<float> m = SampleParameters(shape, 1), v = SampleParameters(shape, 2);
  optimizer.SetMoments(m, v);
  EXPECT_EQ(optimizer.GetM(), m);
  EXPECT_EQ(optimizer.GetV(), v);
}

}  // namespace
}  // namespace headsweep
