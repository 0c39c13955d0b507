// Small models and made-up batches for the tests of trainer/.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "data/batches.h"
#include "kernels/backend.h"
#include "trainer/model.h"

namespace headsweep::testing {

// C = 6 is neither H*D = 12 nor 8; the layer in the middle has no heads.
inline ModelShape TinyShape() {
  ModelShape shape;
  shape.vocabulary = 11;
  shape.length = 5;
  shape.embed = 6;
  shape.head_size = 4;
  shape.feed_forward = 7;
  shape.heads = {3, 0, 2};
  return shape;
}

inline std::unique_ptr<Backend> TestBackend(int threads = 1) { return MakeBackend({"cpu", threads}); }

// Random tokens and targets; `padded`: rows of different lengths, targets -1 behind them.
inline Batch SampleBatch(const ModelShape& shape, int B, std::uint64_t seed, bool padded = false) {
  std::mt19937_64 random(seed);
  Batch batch;
  batch.B = B;
  batch.T = shape.length;
  for (int b = 0; b < B; ++b) {
    const int length =
        padded ? 1 + static_cast<int>(random() % static_cast<unsigned>(shape.length)) : shape.length;
    if (padded) batch.lengths.push_back(length);
    for (int t = 0; t < shape.length; ++t) {
      const auto draw = [&] {
        return static_cast<std::int32_t>(random() % static_cast<unsigned>(shape.vocabulary));
      };
      batch.tokens.push_back(t < length ? draw() : 0);
      batch.targets.push_back(t < length ? draw() : -1);
      batch.target_count += t < length ? 1 : 0;
    }
  }
  return batch;
}

// Rows [first, first + count) of a batch, as a micro-batch.
inline Batch Slice(const Batch& batch, int first, int count) {
  Batch part;
  part.B = count;
  part.T = batch.T;
  part.first_example = batch.first_example + first;
  const auto begin = static_cast<std::ptrdiff_t>(first) * batch.T,
             end = begin + static_cast<std::ptrdiff_t>(count) * batch.T;
  part.tokens.assign(batch.tokens.begin() + begin, batch.tokens.begin() + end);
  part.targets.assign(batch.targets.begin() + begin, batch.targets.begin() + end);
  if (!batch.lengths.empty())
    part.lengths.assign(batch.lengths.begin() + first, batch.lengths.begin() + first + count);
  for (const std::int32_t target : part.targets) part.target_count += target >= 0 ? 1 : 0;
  return part;
}

// Every parameter random, large enough that nothing is linear; norms' weights around 1.
inline std::vector<float> SampleParameters(const ModelShape& shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.4f);
  const ParameterLayout layout(shape);
  std::vector<float> values(static_cast<std::size_t>(layout.size()));
  for (const Parameter& parameter : layout.parameters()) {
    for (std::int64_t i = 0; i < parameter.count; ++i) {
      values[static_cast<std::size_t>(parameter.offset + i)] =
          normal(random) + (parameter.initialization == Initialization::kOne ? 1.0f : 0.0f);
    }
  }
  return values;
}

inline float GradientScale(const Batch& batch) { return 1.0f / static_cast<float>(batch.target_count); }

inline double Norm(const float* x, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

}  // namespace headsweep::testing
