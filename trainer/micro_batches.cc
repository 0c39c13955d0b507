#include "trainer/micro_batches.h"

#include <algorithm>

#include "cluster/base/errors.h"

namespace headsweep {

void CutBatch(const Batch& batch, int first, int count, Batch& part) {
  HEADSWEEP_CHECK(first >= 0 && count >= 0 && first + count <= batch.B, "rows {} to {} of a batch of {}",
                  first, first + count, batch.B);
  const auto begin = static_cast<std::ptrdiff_t>(first) * batch.T;
  const auto end = begin + static_cast<std::ptrdiff_t>(count) * batch.T;
  part.B = count;
  part.T = batch.T;
  part.tokens.assign(batch.tokens.begin() + begin, batch.tokens.begin() + end);
  part.targets.assign(batch.targets.begin() + begin, batch.targets.begin() + end);
  part.lengths.clear();
  if (!batch.lengths.empty()) {
    part.lengths.assign(batch.lengths.begin() + first, batch.lengths.begin() + first + count);
  }
  part.target_count =
      std::count_if(part.targets.begin(), part.targets.end(), [](std::int32_t t) { return t >= 0; });
  part.first_example = batch.first_example + first;
}

std::vector<Batch> CutBatches(std::span<const Batch> batches, int max_examples) {
  HEADSWEEP_CHECK(max_examples > 0, "batches of {} examples", max_examples);
  std::vector<Batch> parts;
  for (const Batch& batch : batches) {
    for (int first = 0; first < batch.B; first += max_examples) {
      CutBatch(batch, first, std::min(max_examples, batch.B - first), parts.emplace_back());
    }
  }
  return parts;
}

}  // namespace headsweep
