// Optimiser steps over effective batches: gradients by micro-batches, exchange, clipping, update. A step is
// enqueued, and looked at when its numbers have come: one process on a device that runs behind
// (Backend::RunsBehind) looks at a step while the next one runs, and waits for nothing. A step whose loss or
// gradient norm is not a finite number changes no weights, nor does any after it: the device knows it from
// the norm (Backend::ClipScale).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "cluster/base/clock.h"
#include "data/batches.h"
#include "results/tables.h"
#include "trainer/gradient_exchange.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/stage.h"

namespace headsweep {

class StepRunner {
 public:
  // Everything must outlive this object.
  StepRunner(const StageContext& context, BatchSource& source, Model& model, Optimizer& optimizer,
             int micro_batch);

  // Steps that should be left enqueued while the caller looks at earlier ones: 0 or 1.
  int ahead() const { return ahead_; }

  // Enqueues step `step` (from 1) on the next effective batch. before_update is called when all but the
  // change of weights is enqueued.
  void Enqueue(std::int64_t step, const std::function<void()>& before_update);
  int pending() const { return enqueued_ - collected_; }
  // Of the oldest pending step; waits for it. Numbers that are not finite are as the device gave them, NaN of
  // one kind.
  StepRow Collect();

  // Of several processes: one had been asked to stop when the last collected step ended. The same on all
  // ranks.
  bool stop_agreed() const { return stop_agreed_; }

 private:
  struct Step {
    StepRow row;
    int B = 0, T = 0;  // this process's share
    double started = 0;
    std::unique_ptr<Backend::Mailbox> numbers;  // losses of the share's targets, then the gradient norm
  };

  int World() const { return context_.collective.world_size(); }
  std::int64_t ReadShare();
  void EnqueueGradients(Step& step);
  double SumOfLosses(const Step& step, const float* losses) const;

  const StageContext& context_;
  const TrainConfig& config_;
  BatchSource& source_;
  Model& model_;
  Optimizer& optimizer_;
  GradientExchange exchange_;
  const int micro_batch_;
  const int ahead_;
  Step steps_[2];  // step n of this object is in place n mod 2
  int enqueued_ = 0, collected_ = 0;
  double last_collected_ = 0;
  bool stop_agreed_ = false;
  Batch batch_, part_;
  SystemClock clock_;
};

}  // namespace headsweep
