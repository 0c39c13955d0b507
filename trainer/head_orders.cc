#include "trainer/head_orders.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cluster/base/errors.h"
#include "kernels/philox.h"

namespace headsweep {
namespace {

// Philox stream of random orders: a number that no other user of a seed draws from ("order" in ASCII).
constexpr std::uint64_t kRandomOrderStream = 0x6f72646572;

void CheckScores(const ModelShape& shape, const std::vector<double>& scores) {
  HEADSWEEP_CHECK(static_cast<int>(scores.size()) == shape.total_heads(), "{} scores for {} heads",
                  scores.size(), shape.total_heads());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (std::isfinite(scores[i])) continue;
    const HeadIndex at = HeadAt(shape, static_cast<int>(i));
    throw Error(fmt::format(
        "the score of layer {} head {} is {}: heads of a model whose loss is not a number have no order",
        at.layer, at.head, scores[i]));
  }
}

// How many heads may be removed when every layer keeps at least `keep`.
int RemovableHeads(const ModelShape& shape, int keep) {
  int removable = 0;
  for (const int heads : shape.heads) removable += std::max(0, heads - keep);
  return removable;
}

// Heads in the order of their scores, ties by (layer, head).
std::vector<int> SortedHeads(const std::vector<double>& scores, bool descending) {
  std::vector<int> heads(scores.size());
  std::iota(heads.begin(), heads.end(), 0);
  std::stable_sort(heads.begin(), heads.end(),
                   [&](int a, int b) { return descending ? scores[a] > scores[b] : scores[a] < scores[b]; });
  return heads;
}

// Gives heads out one by one, and knows what `keep` still allows.
class OrderBuilder {
 public:
  OrderBuilder(const ModelShape& shape, int keep) : shape_(shape), keep_(keep), left_(shape.heads) {}

  // Appends up to `count` heads of `candidates`, in their order, leaving out those that went before or must
  // stay.
  void Append(const std::vector<int>& candidates, const std::vector<double>& scores, std::size_t count) {
    for (const int flat : candidates) {
      if (count == 0) return;
      const HeadIndex head = HeadAt(shape_, flat);
      if (Gone(head) || left_[head.layer] <= keep_) continue;
      Push(head, scores[flat]);
      --left_[head.layer];
      --count;
    }
  }
  // Appends all that is not in the order yet, the protected heads.
  void AppendRest(const std::vector<int>& candidates, const std::vector<double>& scores) {
    for (const int flat : candidates) {
      const HeadIndex head = HeadAt(shape_, flat);
      if (!Gone(head)) Push(head, scores[flat]);
    }
  }
  const HeadOrder& order() const { return order_; }

 private:
  bool Gone(HeadIndex head) const {
    return std::find(order_.heads.begin(), order_.heads.end(), head) != order_.heads.end();
  }
  void Push(HeadIndex head, double score) {
    order_.heads.push_back(head);
    order_.scores.push_back(score);
  }

  const ModelShape& shape_;
  int keep_;
  std::vector<int> left_;
  HeadOrder order_;
};

std::vector<double> ImportanceScores(HeadProbe& probe, const PruneConfig& config,
                                     const std::vector<HeadIndex>& removed) {
  std::vector<double> scores = probe.Importance(removed);
  CheckScores(probe.shape(), scores);
  if (config.normalize == "none") return scores;
  if (config.normalize == "layer") return NormalizeByLayer(probe.shape(), std::move(scores));
  throw ConfigError(
      fmt::format("prune.normalize = \"{}\": expected \"layer\" or \"none\"", config.normalize));
}

// --- The orders
// -----------------------------------------------------------------------------------------------------------

HeadOrder ByImportance(HeadProbe& probe, const PruneConfig& config) {
  return OrderByScore(probe.shape(), ImportanceScores(probe, config, {}), config.keep);
}

HeadOrder ByReversedImportance(HeadProbe& probe, const PruneConfig& config) {
  return OrderByScore(probe.shape(), ImportanceScores(probe, config, {}), config.keep, /*descending=*/true);
}

// Scores are computed anew on the pruned model at every point of the curve; they decide which heads go before
// the next one.
HeadOrder ByRescoredImportance(HeadProbe& probe, const PruneConfig& config) {
  const ModelShape& shape = probe.shape();
  OrderBuilder builder(shape, config.keep);
  std::vector<double> scores = ImportanceScores(probe, config, {});
  std::vector<int> candidates = SortedHeads(scores, /*descending=*/false);
  for (const CurvePoint& point : CurvePoints(shape, config.step, config.keep)) {
    const std::size_t done = builder.order().heads.size();
    if (point.heads_removed <= static_cast<int>(done)) continue;
    if (done > 0) {
      scores = ImportanceScores(probe, config, builder.order().heads);
      candidates = SortedHeads(scores, /*descending=*/false);
    }
    builder.Append(candidates, scores, point.heads_removed - done);
  }
  builder.AppendRest(candidates, scores);
  return builder.order();
}

HeadOrder ByAblation(HeadProbe& probe, const PruneConfig& config) {
  return OrderByScore(probe.shape(), probe.AblationLosses(), config.keep);
}

HeadOrder ByMagnitude(HeadProbe& probe, const PruneConfig& config) {
  return OrderByScore(probe.shape(), probe.Magnitudes(), config.keep);
}

// The score is a uniform random number in [0, 1), a function of (seed, flat index of the head) alone.
HeadOrder AtRandom(HeadProbe& probe, const PruneConfig& config) {
  std::vector<double> scores;
  for (int head = 0; head < probe.shape().total_heads(); ++head) {
    const auto position = static_cast<std::uint64_t>(head);
    scores.push_back(RandomBits(config.seed, kRandomOrderStream, position) * 0x1p-32);
  }
  return OrderByScore(probe.shape(), scores, config.keep);
}

}  // namespace

const std::vector<KnownOrder>& KnownOrders() {
  static const std::vector<KnownOrder> orders = {
      {"importance", "least important first: mean |dLoss/dgate|, scored once", false, ByImportance},
      {"importance-rescored", "the same, scored again on the pruned model at every step", false,
       ByRescoredImportance},
      {"ablation", "each head gated off alone, least harmful first", false, ByAblation},
      {"random", "a random permutation, one for each seed", true, AtRandom},
      {"reversed", "most important first", false, ByReversedImportance},
      {"magnitude", "smallest weights first: l2 norm of all weights of a head", false, ByMagnitude},
  };
  return orders;
}

HeadOrder MakeHeadOrder(HeadProbe& probe, const PruneConfig& config) {
  std::string names;
  for (const KnownOrder& known : KnownOrders()) {
    if (known.name == config.order) return known.function(probe, config);
    names += (names.empty() ? "" : ", ") + known.name;
  }
  throw ConfigError(fmt::format("prune.order = \"{}\" is not known; known orders: {}", config.order, names));
}

std::vector<double> NormalizeByLayer(const ModelShape& shape, std::vector<double> scores) {
  auto first = scores.begin();
  for (const int heads : shape.heads) {
    const auto last = first + heads;
    const double norm = std::sqrt(std::inner_product(first, last, first, 0.0));
    if (norm > 0) std::for_each(first, last, [norm](double& score) { score /= norm; });
    first = last;
  }
  return scores;
}

HeadOrder OrderByScore(const ModelShape& shape, const std::vector<double>& scores, int keep,
                       bool descending) {
  CheckScores(shape, scores);
  OrderBuilder builder(shape, keep);
  const std::vector<int> heads = SortedHeads(scores, descending);
  builder.Append(heads, scores, heads.size());
  builder.AppendRest(heads, scores);
  return builder.order();
}

std::vector<CurvePoint> CurvePoints(const ModelShape& shape, double step, int keep) {
  constexpr double kSmallestStep = 0.001;  // more points than heads say nothing new
  if (!(step >= kSmallestStep && step <= 1))
    throw ConfigError(fmt::format("prune.step = {}: expected a fraction from {} to 1", step, kSmallestStep));
  // Fractions are rounded to 12 digits (3 * 0.1 is 0.3, so that curves can be grouped by fraction); the same
  // slack makes a half that arithmetic put a hair too low round up.
  constexpr double kSlack = 1e-9;
  const int total = shape.total_heads();
  const int removable = RemovableHeads(shape, keep);
  std::vector<CurvePoint> points;
  for (int i = 0;; ++i) {
    const double fraction = i * step > 1 - kSlack ? 1.0 : std::round(i * step * 1e12) / 1e12;
    const int heads = static_cast<int>(std::floor(fraction * total + 0.5 + kSlack));
    points.push_back({fraction, std::min(heads, removable)});
    if (fraction == 1.0) return points;
  }
}

}  // namespace headsweep
