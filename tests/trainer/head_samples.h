// What the tests of heads share: shapes worth trying, parameters that are all different, random sets of
// heads.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "data/batches.h"
#include "trainer/parameter_layout.h"

namespace headsweep::head_samples {

// Three layers with unlike head counts; 3 * 5 != 12: head size times heads is not the width, and 5 does not
// divide it.
inline ModelShape UnevenShape() {
  ModelShape shape;
  shape.vocabulary = 23;
  shape.length = 9;
  shape.embed = 12;
  shape.head_size = 5;
  shape.feed_forward = 20;
  shape.heads = {3, 1, 4};
  return shape;
}

inline std::vector<float> RandomParameters(const ModelShape& shape, std::mt19937& random,
                                           float deviation = 0.3f) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> parameters(ParameterLayout(shape).size());
  for (float& value : parameters) value = normal(random);
  return parameters;
}

inline std::vector<HeadIndex> AllHeads(const ModelShape& shape) {
  std::vector<HeadIndex> heads;
  for (int flat = 0; flat < shape.total_heads(); ++flat) heads.push_back(HeadAt(shape, flat));
  return heads;
}

// B full rows of random tokens, each with a random target.
inline Batch RandomBatch(const ModelShape& shape, int B, std::mt19937& random) {
  std::uniform_int_distribution<std::int32_t> token(0, shape.vocabulary - 1);
  Batch batch;
  batch.B = B;
  batch.T = shape.length;
  for (int r = 0; r < B * shape.length; ++r) {
    batch.tokens.push_back(token(random));
    batch.targets.push_back(token(random));
  }
  batch.target_count = B * shape.length;
  return batch;
}

// Each head with probability `share`, in a random order.
inline std::vector<HeadIndex> RandomHeads(const ModelShape& shape, double share, std::mt19937& random) {
  std::bernoulli_distribution chosen(share);
  std::vector<HeadIndex> heads;
  for (const HeadIndex head : AllHeads(shape))
    if (chosen(random)) heads.push_back(head);
  std::shuffle(heads.begin(), heads.end(), random);
  return heads;
}

}  // namespace headsweep::head_samples
