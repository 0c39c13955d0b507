// Pruning orders: which attention head goes first. Pure: what an order wants to know about the model it asks
// a HeadProbe. Not here: cutting heads out (head_surgery.h), measuring the curve along an order (pruning.h).
//
// To add an order: write a function (HeadProbe&, const PruneConfig&) -> HeadOrder in head_orders.cc and name
// it in the table of KnownOrders() there; name it among the choices of prune.order in sweeps/schema_table.cc
// (a test compares the two). It usually ends in OrderByScore(), which keeps the rules that hold for every
// order:
//   - the result is a permutation of all heads of the trained model;
//   - ties go by (layer, head), so an order is a function of its scores;
//   - with `keep` = k the last k heads of every layer come after all others, so that they are never removed.
//
// Sources. importance: Michel, Levy & Neubig 2019, section 4.1; normalisation by layer: the same, after
// Molchanov et al. 2017.
#pragma once

#include <string>
#include <vector>

#include "sweeps/stage_config.h"
#include "trainer/parameter_layout.h"

namespace headsweep {

// What orders may ask about the trained model. Vectors are flat over its layers (FlatHead); `removed` counts
// in it too.
class HeadProbe {
 public:
  virtual ~HeadProbe() = default;
  virtual const ModelShape& shape() const = 0;
  // Mean of |dLoss/dgate| (over examples or tokens, as the stage is configured) when `removed` are really
  // gone; not normalised; 0 for heads that are gone.
  virtual std::vector<double> Importance(const std::vector<HeadIndex>& removed) = 0;
  // Loss with one head gated off alone, minus the loss with all heads. Nats per piece.
  virtual std::vector<double> AblationLosses() = 0;
  // l2 norm of each head's weights.
  virtual std::vector<double> Magnitudes() = 0;
};

struct HeadOrder {
  std::vector<HeadIndex> heads;  // first = removed first; a permutation of all heads
  std::vector<double> scores;    // of heads[i], as the order used it; its meaning depends on the order
};

using OrderFunction = HeadOrder (*)(HeadProbe& probe, const PruneConfig& config);

struct KnownOrder {
  std::string name;         // PruneConfig::order
  std::string description;  // one line
  bool uses_seed = false;   // PruneConfig::seed matters
  OrderFunction function = nullptr;
};
const std::vector<KnownOrder>& KnownOrders();

// Runs the order config.order. Throws ConfigError for a name that is not known (says which are), Error when a
// score is not a number. Deterministic.
HeadOrder MakeHeadOrder(HeadProbe& probe, const PruneConfig& config);

// --- Parts that orders are made of
// ---------------------------------------------------------------------------------------

// scores / l2 norm of their layer's scores; a layer whose scores are all 0 stays as it is.
std::vector<double> NormalizeByLayer(const ModelShape& shape, std::vector<double> scores);

// Lowest score first (highest first if descending), under the rules above. scores: flat, one per head.
HeadOrder OrderByScore(const ModelShape& shape, const std::vector<double>& scores, int keep,
                       bool descending = false);

// --- The curve
// ------------------------------------------------------------------------------------------------------------

struct CurvePoint {
  double fraction =
      0;  // asked for: 0, step, 2 step, …, 1 (1 is always the last, also where step does not divide it)
  int heads_removed = 0;  // fraction * heads rounded to the nearest, halves up; never more than `keep` allows
};
// Several fractions may share one number of heads. Throws ConfigError unless 0.001 <= step <= 1.
std::vector<CurvePoint> CurvePoints(const ModelShape& shape, double step, int keep);

}  // namespace headsweep
