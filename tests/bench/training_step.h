// A whole training step on any backend, with random tokens.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "tests/bench/gemm_skeleton.h"
#include "tests/bench/step_model.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"

namespace headsweep::bench {

// A model, its optimiser and a batch of random tokens; Step() is what the training loop does.
class TrainingStep {
 public:
  TrainingStep(const StepShape& s, const BackendOptions& options)
      : backend_(MakeBackend(options)),
        model_(*backend_, ModelShapeOf(s), s.B, Model::Purpose::kTrain),
        optimizer_(model_, TrainConfig{}),
        batch_(RandomBatch(s)) {
    model_.Initialize(1);
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

 private:
  std::unique_ptr<Backend> backend_;
  Model model_;
  Optimizer optimizer_;
  Batch batch_;
  std::int64_t step_ = 0;
};

}  // namespace headsweep::bench
