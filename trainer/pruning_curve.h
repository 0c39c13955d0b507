// Measuring a pruning curve: the heads of an order are cut out point by point, and what is left is evaluated.
// RunPruneStage, which puts a whole prune stage together, is declared in stage.h.
// Not here: which head goes first (head_orders.h), cutting heads out (head_surgery.h).
#pragma once

#include <span>
#include <vector>

#include "data/batches.h"
#include "data/corpus.h"
#include "kernels/backend.h"
#include "results/tables.h"
#include "sweeps/stage_config.h"
#include "trainer/batch_passes.h"
#include "trainer/head_orders.h"
#include "trainer/head_surgery.h"

namespace headsweep {

// Passes over the batches that a curve takes: points that remove equally many heads share one.
int CurvePasses(const ModelShape& shape, const PruneConfig& config);

// One row for each of CurvePoints(trained.shape, config.step, config.keep); points that remove equally many
// heads are measured once. Heads are really removed: every point is a smaller model without gates. On the
// first examples of the first batch it is compared with the trained model under gates; Error (with the place
// and both losses) if they differ by more than rounding.
//   counts: of the split that `batches` come from, for perplexity per word.
std::vector<PruningRow> MeasureCurve(Backend& backend, BatchPasses& passes, const PrunedModel& trained,
                                     const HeadOrder& order, const PruneConfig& config,
                                     std::span<const Batch> batches, const SplitCounts& counts);

// Throws Error unless the losses of every target are the same up to rounding. Public for its test.
//   masked, removed: per target, as Model::Evaluate gives them; removed_heads: for the message
void CheckMaskedEqualsRemoved(const std::vector<float>& masked, const std::vector<float>& removed,
                              double tolerance, int removed_heads);

}  // namespace headsweep
