// AdamW over a model: gradient norm, clipping and update, all on the device. State: two moments of each
// parameter that it updates, all of them or one process's shard (ZeRO-1; Rajbhandari et al. 2020). Decaying
// parameters lie first in the layout, so an update is two calls.
#pragma once

#include <cstdint>
#include <memory>
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

  // l2 norm of the model's gradients, before clipping, and from it the factor of clipping. Not finite: the
  // run has diverged, and this and all later Updates change nothing. Returns the norm in device memory.
  const float* Clip();
  double GradientNorm();  // Clip(), waits and tells
  // One step with the factor of the last Clip(). step counts from 1.
  void Update(double learning_rate, std::int64_t step);

  // Moments, host side: of all parameters in layout order, zero where others update.
  std::vector<float> GetM(AsOf when = AsOf::kNow) const { return Whole(m_, when); }
  std::vector<float> GetV(AsOf when = AsOf::kNow) const { return Whole(v_, when); }
  void SetMoments(std::span<const float> m, std::span<const float> v);

 private:
  std::vector<float> Whole(const float* part, AsOf when) const;
  Backend::AdamW Adam(double weight_decay) const;
  // The parameters of the layout's range [from, to) that are updated here.
  void UpdateRange(std::int64_t from, std::int64_t to, double weight_decay);

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
  float* rates_ = nullptr;  // AdamW::Rates
  std::unique_ptr<Backend::Recording> clipping_, update_;
};

}  // namespace headsweep
