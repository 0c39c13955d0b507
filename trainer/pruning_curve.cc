#include "trainer/pruning_curve.h"

#include <algorithm>
#include <cmath>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "data/scores.h"
#include "trainer/model.h"

namespace headsweep {
namespace {

// Examples of the first batch on which masked and removed models are compared at every point. Few: it costs
// two passes.
constexpr int kComparedExamples = 2;

double Now() { return SystemClock().Monotonic(); }

// The first examples of a batch, as a batch.
Batch FirstExamples(const Batch& batch, int count) {
  Batch first = batch;
  first.B = std::min(count, batch.B);
  const std::size_t rows = static_cast<std::size_t>(first.B) * first.T;
  first.tokens.resize(rows);
  first.targets.resize(rows);
  if (!first.lengths.empty()) first.lengths.resize(first.B);
  first.target_count =
      std::count_if(first.targets.begin(), first.targets.end(), [](auto target) { return target >= 0; });
  return first;
}

// float32 paths differ by the order of additions only; bfloat16 by its 8 bits.
double Tolerance(const Backend& backend) { return backend.element_bytes() == sizeof(float) ? 1e-4 : 4e-2; }

}  // namespace

void CheckMaskedEqualsRemoved(const std::vector<float>& masked, const std::vector<float>& removed,
                              double tolerance, int removed_heads) {
  HEADSWEEP_CHECK(masked.size() == removed.size(), "{} losses against {}", masked.size(), removed.size());
  for (std::size_t i = 0; i < masked.size(); ++i) {
    const double scale = std::max(1.0, std::abs(static_cast<double>(masked[i])));
    if (std::abs(static_cast<double>(masked[i]) - removed[i]) <= tolerance * scale) continue;
    throw Error(
        fmt::format("with {} heads removed, target {} of the first test batch has loss {}, but {} with the "
                    "same heads masked: "
                    "either the model's loss is not a number or cutting heads out is broken; please report "
                    "it with this trial's folder",
                    removed_heads, i, removed[i], masked[i]));
  }
}

int CurvePasses(const ModelShape& shape, const PruneConfig& config) {
  int passes = 0, last = -1;
  for (const CurvePoint& point : CurvePoints(shape, config.step, config.keep)) {
    if (point.heads_removed != last) ++passes;
    last = point.heads_removed;
  }
  return passes;
}

std::vector<PruningRow> MeasureCurve(Backend& backend, BatchPasses& passes, const PrunedModel& trained,
                                     const HeadOrder& order, const PruneConfig& config,
                                     std::span<const Batch> batches, const SplitCounts& counts) {
  HEADSWEEP_CHECK(!batches.empty(), "a curve over no examples");
  const Batch compared = FirstExamples(batches.front(), kComparedExamples);
  Model whole(backend, trained.shape, compared.B, Model::Purpose::kEvaluate);
  whole.SetParameters(trained.parameters);

  std::vector<PruningRow> rows;
  for (const CurvePoint& point : CurvePoints(trained.shape, config.step, config.keep)) {
    PruningRow row = rows.empty() ? PruningRow{} : rows.back();
    row.fraction = point.fraction;
    if (rows.empty() || rows.back().heads_removed != point.heads_removed) {
      const std::vector<HeadIndex> removed(order.heads.begin(), order.heads.begin() + point.heads_removed);
      const PrunedModel pruned = RemoveHeads(trained.shape, trained.parameters, removed);
      Model model(backend, pruned.shape, LargestBatch(batches), Model::Purpose::kEvaluate);
      model.SetParameters(pruned.parameters);
      if (!removed.empty()) {
        std::vector<float> masked_losses, removed_losses;
        whole.SetGates(GatesFor(trained.shape, removed));
        whole.Evaluate(compared, &masked_losses);
        model.Evaluate(compared, &removed_losses);
        CheckMaskedEqualsRemoved(masked_losses, removed_losses, Tolerance(backend), point.heads_removed);
      }
      const double start = Now();
      const LossSum sum = passes.Loss(model, batches);
      row.seconds = Now() - start;
      row.order = config.order;
      row.order_seed = config.seed;
      row.heads_removed = point.heads_removed;
      row.heads_left = pruned.shape.total_heads();
      row.nll = sum.loss / static_cast<double>(sum.targets);
      row.perplexity_per_piece = PerplexityPerPiece(sum.loss, sum.targets);
      row.perplexity_per_word = PerplexityPerWord(sum.loss, sum.targets, counts);
      row.loss_increase = rows.empty() ? 0 : row.nll - rows.front().nll;
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace headsweep
