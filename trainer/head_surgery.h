// Removing heads for real: a smaller ModelShape and the parameters that stay. Pure host functions on flat
// parameter vectors. Gating a head to 0 and removing it give the same outputs; a layer may lose all its heads
// (attention is skipped then, its output bias and the residual stay). Safe to repeat: indices always refer to
// the model that is passed in; KeptHeads maps the indices of what is left back. Source: Michel, Levy & Neubig
// 2019, sections 2.3 and 4.4.
#pragma once

#include <vector>

#include "trainer/parameter_layout.h"

namespace headsweep {

struct PrunedModel {
  ModelShape shape;
  std::vector<float> parameters;  // layout order of `shape`
};
// removed: heads of `shape`, any order, no duplicates (checked). parameters: ParameterLayout(shape).size()
// values (checked). What stays is copied bit by bit: nothing is rescaled.
PrunedModel RemoveHeads(const ModelShape& shape, const std::vector<float>& parameters,
                        const std::vector<HeadIndex>& removed);

// The heads that stay, in the flat order of the pruned model: its head i is head KeptHeads(...)[i] of
// `shape`.
std::vector<HeadIndex> KeptHeads(const ModelShape& shape, const std::vector<HeadIndex>& removed);

// Gates with 0 at `removed` and 1 elsewhere, flat over layers.
std::vector<float> GatesFor(const ModelShape& shape, const std::vector<HeadIndex>& removed);

// l2 norm of all weights that belong to each head (query, key, value rows and biases, output columns), flat
// over layers.
std::vector<double> HeadMagnitudes(const ModelShape& shape, const std::vector<float>& parameters);

}  // namespace headsweep
