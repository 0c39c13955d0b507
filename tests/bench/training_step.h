// A whole training step on any backend, with random tokens.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "tests/bench/gemm_skeleton.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"

namespace headsweep::bench {

// A model, its optimiser and a batch of random tokens; Step() is what the training loop does.
class TrainingStep {
 public:
  TrainingStep(const StepShape& s, const BackendOptions& options)
      : backend_(MakeBackend(options)),
        model_(*backend_, Shape(s), s.B, Model::Purpose::kTrain),
        optimizer_(model_, TrainConfig{}) {
    model_.Initialize(1);
    batch_.B = s.B;
    batch_.T = s.T;
    std::uint32_t state = 12345;
    for (std::int64_t r = 0; r < s.Rows(); ++r) {
      state = state * 1664525 + 1013904223;  // a linear congruential generator is random enough for tokens
      batch_.tokens.push_back(static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(s.V)));
      batch_.targets.push_back(static_cast<std::int32_t>((state >> 12) % static_cast<std::uint32_t>(s.V)));
    }
    batch_.target_count = s.Rows();
  }

  void Step() {
    ++step_;
    ForwardBackwardOptions options;
    options.gradient_scale = 1.0f / static_cast<float>(batch_.target_count);
    options.step = step_;
    model_.ZeroGradients();
    model_.ForwardBackward(batch_, options);
    optimizer_.GradientNorm();
    optimizer_.Update(1e-4, step_);
  }

  Backend& backend() { return *backend_; }

  static ModelShape Shape(const StepShape& s) {
    ModelShape shape;
    shape.vocabulary = s.V;
    shape.length = s.T;
    shape.embed = s.C;
    shape.head_size = s.D;
    shape.feed_forward = s.F;
    shape.heads.assign(static_cast<std::size_t>(s.L), s.H);
    return shape;
  }

 private:
  std::unique_ptr<Backend> backend_;
  Model model_;
  Optimizer optimizer_;
  Batch batch_;
  std::int64_t step_ = 0;
};

}  // namespace headsweep::bench
