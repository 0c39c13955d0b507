// Learning-rate schedules: pure functions of the step. Steps count from 1, as optimiser steps do.
// With w = warmup_steps, n = steps, r = learning_rate, f = final_learning_rate:
//   every schedule     step <= w:  r * step / w
//   "linear"           step >  w:  r * (1 - (1 - f) * p),                       p = (step - w) / (n - w)
//   "cosine"           step >  w:  r * (f + (1 - f) * (1 + cos(pi * p)) / 2),   Loshchilov & Hutter 2017
//   "inverse-sqrt"     step >  w:  r * sqrt(max(w, 1) / step),                  Vaswani et al. 2017, eq. 3,
//   scaled so that the
//                                                                               highest rate is r; f does not
//                                                                               matter
#pragma once

#include <cstdint>

#include "sweeps/stage_config.h"

namespace headsweep {

// Throws ConfigError for a schedule that is not known.
double LearningRate(const TrainConfig& config, std::int64_t step);

}  // namespace headsweep
