// AdamW over a model: gradient norm, clipping and update, all on the device. State: two moments of each
// parameter that it updates, all of them or one process's shard (ZeRO-1; Rajbhandari et al. 2020). Decaying
// parameters lie first in the layout, so an update is two calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sweeps/stage_config.h"
#include "trainer/model.h"

namespace headsweep {

class Optimizer {
 public:
  // Updates the parameters [begin, end) of the layout. Takes its memory here (two floats each); nothing
  // later. The model must outlive it.
  Optimizer(Model& model, const TrainConfig& config, std::int64_t begin, std::int64_t end);
  Optimizer(Model& model, const TrainConfig& config) : Optimizer(model, config, 0, model.layout().size()) {}
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  static std::int64_t PlannedBytes(std::int64_t parameters);

  // l2 norm of the model's gradients, before clipping; waits for the device. Not finite: the run has
  // diverged, do not Update.
  double GradientNorm();
  // One step with the clipping factor of the last GradientNorm(). step counts from 1.
  void Update(double learning_rate, std::int64_t step);

  // Moments, host side: of all parameters in layout order, zero where others update.
  std::vector<float> GetM() const;
  std::vector<float> GetV() const;
  void SetMoments(std::span<const float> m, std::span<const float> v);

 private:
  std::vector<float> Whole(const float* part) const;

  Model& model_;
  Backend& backend_;
  TrainConfig config_;
  const std::int64_t begin_, end_;
  void* memory_ = nullptr;
  float* m_ = nullptr;  // of parameter begin_ first
  float* v_ = nullptr;
  float* sum_of_squares_ = nullptr;
  float* norm_ = nullptr;
  float* clip_scale_ = nullptr;
};

}  // namespace headsweep
