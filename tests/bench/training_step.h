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

// A model, its optimiser and a batch of random tokens; Step() is what the training loop does (trainer/step_runner.h).
class TrainingStep {
 public:
  TrainingStep(const StepShape& s, const BackendOptions& options)
      : backend_(MakeBackend(options)),
        model_(*backend_, ModelShapeOf(s), s.B, Model::Purpose::kTrain),
        optimizer_(model_, TrainConfig{}),
        batch_(RandomBatch(s)) {
    model_.Initialize(1);
    for (auto& numbers : numbers_) numbers = backend_->MakeMailbox(Rows() + 1);
  }

  void Step() {
    ++step_;
    ForwardBackwardOptions options;
    options.gradient_scale = 1.0f / static_cast<float>(batch_.target_count);
    options.step = step_;
    Backend::Mailbox& numbers = *numbers_[step_ % 2];
    model_.ZeroGradients();
    model_.ForwardBackward(batch_, options, numbers, 0);
    numbers.Post(Rows(), optimizer_.Clip(), 1);
    optimizer_.Update(1e-4, step_);
    numbers_[(step_ + 1) % 2]->Wait();  // of the step before
  }

  Backend& backend() { return *backend_; }

 private:
  std::int64_t Rows() const { return std::int64_t{batch_.B} * batch_.T; }

  std::unique_ptr<Backend> backend_;
  Model model_;
  Optimizer optimizer_;
  Batch batch_;
  std::unique_ptr<Backend::Mailbox> numbers_[2];  // losses and gradient norm of a step
  std::int64_t step_ = 0;
};

}  // namespace headsweep::bench
