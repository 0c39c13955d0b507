// AdamW over a whole model: gradient norm, clipping and update, all on the device. State: two moments, as
// long as the parameters. Decaying parameters lie first in the layout, so an update is two calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sweeps/stage_config.h"
#include "trainer/model.h"

namespace headsweep {

class Optimizer {
 public:
  // Takes its memory here (two floats a parameter); nothing later. The model must outlive it.
  Optimizer(Model& model, const TrainConfig& config);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  static std::int64_t PlannedBytes(const ParameterLayout& layout);

  // l2 norm of the model's gradients, before clipping; waits for the device. Not finite: the run has
  // diverged, do not Update.
  double GradientNorm();
  // One step with the clipping factor of the last GradientNorm(). step counts from 1.
  void Update(double learning_rate, std::int64_t step);

  // Moments, host side, layout order.
  std::vector<float> GetM() const;
  std::vector<float> GetV() const;
  void SetMoments(std::span<const float> m, std::span<const float> v);

 private:
  Model& model_;
  Backend& backend_;
  TrainConfig config_;
  void* memory_ = nullptr;
  float* m_ = nullptr;
  float* v_ = nullptr;
  float* sum_of_squares_ = nullptr;
  float* norm_ = nullptr;
  float* clip_scale_ = nullptr;
};

}  // namespace headsweep
