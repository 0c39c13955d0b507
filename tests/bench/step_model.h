// The model and the batch that suites measure a training step with, from the sizes of a StepShape.
#pragma once

#include "data/batches.h"
#include "tests/bench/gemm_skeleton.h"
#include "trainer/parameter_layout.h"

namespace headsweep::bench {

inline ModelShape ModelShapeOf(const StepShape& s) {
  ModelShape shape;
  shape.vocabulary = s.V;
  shape.length = s.T;
  shape.embed = s.C;
  shape.head_size = s.D;
  shape.feed_forward = s.F;
  shape.heads.assign(static_cast<std::size_t>(s.L), s.H);
  return shape;
}

// (B, T) random tokens and targets, always the same ones.
inline Batch RandomBatch(const StepShape& s) {
  Batch batch;
  batch.B = s.B;
  batch.T = s.T;
  std::uint32_t state = 12345;
  for (std::int64_t r = 0; r < s.Rows(); ++r) {
    state = state * 1664525 + 1013904223;  // a linear congruential generator is random enough for tokens
    batch.tokens.push_back(static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(s.V)));
    batch.targets.push_back(static_cast<std::int32_t>((state >> 12) % static_cast<std::uint32_t>(s.V)));
  }
  batch.target_count = s.Rows();
  return batch;
}

}  // namespace headsweep::bench
