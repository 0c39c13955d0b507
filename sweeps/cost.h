// What a stage will cost, from its configuration alone: parameters, floating-point operations, memory, disk,
// time. Operations count matrix products only (a multiply and an add are two), attention in full although it
// is causal. Per step, with R = batch * T rows, H heads of its own in each layer:
//   forward = sum over layers of 2R (3 C HD + HD C + 2 T HD + 2 C F)  +  2R C V;   a training step is 3 x
//   forward.
// V is task.vocabulary; a tokenizer of a tiny text may have fewer pieces.
#pragma once

#include <cstdint>

#include "sweeps/stage_config.h"

namespace headsweep {

struct CostModel {
  double flops_per_second = 0;  // of one process; see thread_flops_per_second below. 0: seconds stay 0
  // Examples in an evaluation of "all" (evaluate_examples = 0); the size of a split is not known before the
  // data is read.
  std::int64_t examples_of_all = 500;
};

struct StageCost {
  std::int64_t parameters = 0;    // of the (unpruned) model
  double flops_per_step = 0;      // train: one optimiser step; prune: one point of the curve
  double flops = 0;               // the whole stage: steps and evaluations, or scoring and the curve
  std::int64_t memory_bytes = 0;  // of one process on its device (cpu: all of it): parameters, gradients, Adam, activations of a
                                  // micro-batch
  std::int64_t checkpoint_bytes = 0;  // on disk: weights and, of a train stage, both moments
  double seconds = 0;                 // flops / (flops_per_second * devices)
};

std::int64_t CountParameters(const StageConfig& config);
double ForwardFlopsOf(const StageConfig& config, double examples);
StageCost EstimateCost(const StageConfig& config, const CostModel& model);

// Matrix products on this machine with one thread: a 30 ms measurement of fused multiply-adds (float32),
// times kMatrixEfficiency. A model's step reaches about that with shapes of a laptop experiment; larger ones
// do better.
inline constexpr double kMatrixEfficiency = 0.5;
double MeasureThreadFlopsPerSecond();

}  // namespace headsweep
