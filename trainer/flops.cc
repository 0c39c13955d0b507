#include "trainer/flops.h"

namespace headsweep {

double ForwardFlops(const ModelShape& shape, std::int64_t examples) {
  const double T = shape.length, C = shape.embed, D = shape.head_size, F = shape.feed_forward,
               V = shape.vocabulary;
  const double tokens = static_cast<double>(examples) * T;
  double flops = 2 * tokens * C * V;
  for (const int H : shape.heads) {
    const double projections = 3 * C * H * D + H * D * C, feed_forward = 2 * C * F;
    const double scores_and_values = 2 * T * H * D;  // per token: q.k and p.v over T keys
    flops += 2 * tokens * (projections + feed_forward + scores_and_values);
  }
  return flops;
}

double TrainingStepFlops(const ModelShape& shape, std::int64_t examples) {
  return 3 * ForwardFlops(shape, examples);
}

}  // namespace headsweep
