// Cutting an effective batch into the pieces that fit into memory, and fixed batches into smaller ones.
#pragma once

#include <span>
#include <vector>

#include "data/batches.h"

namespace headsweep {

// part = rows [first, first + count) of batch, with first_example set so that dropout draws the masks of the
// whole batch. Reuses part's memory.
void CutBatch(const Batch& batch, int first, int count, Batch& part);

// The same rows in batches of at most max_examples.
std::vector<Batch> CutBatches(std::span<const Batch> batches, int max_examples);

}  // namespace headsweep
