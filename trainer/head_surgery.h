// Removing heads for real: a smaller ModelShape and the parameters that stay. Pure host functions on flat parameter vectors.
// Gating a head to 0 and removing it give the same outputs; a layer may lose all its heads (attention is skipped then, its
// output bias and the residual stay). Safe to repeat: indices always refer to the model that is passed in.
#pragma once

#include <vector>

#include "trainer/parameter_layout.h"

namespace headsweep {

struct PrunedModel {
  ModelShape shape;
  std::vector<float> parameters;
};
// removed: heads of `shape`, any order, no duplicates (checked).
PrunedModel RemoveHeads(const ModelShape& shape, const std::vector<float>& parameters,
                        const std::vector<HeadIndex>& removed);

// Gates with 0 at `removed` and 1 elsewhere, flat over layers.
std::vector<float> GatesFor(const ModelShape& shape, const std::vector<HeadIndex>& removed);

// l2 norm of all weights that belong to each head (query, key, value rows and biases, output columns), flat over layers.
std::vector<double> HeadMagnitudes(const ModelShape& shape, const std::vector<float>& parameters);

}  // namespace headsweep
