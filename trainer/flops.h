// Floating-point operations of a training step, matrix products only (a multiply and an add count as two).
// Attention is counted in full, causal or not, as the usual formulas do.
#pragma once

#include <cstdint>

#include "trainer/parameter_layout.h"

namespace headsweep {

// Forward pass over `examples` rows of shape.length tokens.
double ForwardFlops(const ModelShape& shape, std::int64_t examples);
// Forward and backward: three times as much.
double TrainingStepFlops(const ModelShape& shape, std::int64_t examples);

}  // namespace headsweep
