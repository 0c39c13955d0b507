#include "data/scores.h"

#include <cmath>
#include <limits>

namespace headsweep {

double PerplexityPerWord(double nll_sum, std::int64_t evaluated_pieces, const SplitCounts& counts) {
  if (evaluated_pieces <= 0 || counts.pieces <= 0) return std::numeric_limits<double>::quiet_NaN();
  const double share = static_cast<double>(evaluated_pieces) / static_cast<double>(counts.pieces);
  return std::exp(nll_sum / (static_cast<double>(counts.words + counts.sentences) * share));
}

double PerplexityPerPiece(double nll_sum, std::int64_t evaluated_pieces) {
  if (evaluated_pieces <= 0) return std::numeric_limits<double>::quiet_NaN();
  return std::exp(nll_sum / static_cast<double>(evaluated_pieces));
}

}  // namespace headsweep
