// Scores of the tasks, from sums. FORMATS: perplexity per word counts words of the original text plus one
// </s> a sentence; perplexity per piece is another number, PPL_word = PPL_piece^(pieces / (words +
// sentences)).
#pragma once

#include "data/corpus.h"

namespace headsweep {

// nll_sum: total negative log-likelihood in nats of all pieces of the split, </s> included. If only part of a
// split was evaluated (evaluated_pieces < counts.pieces) words are scaled in proportion.
double PerplexityPerWord(double nll_sum, std::int64_t evaluated_pieces, const SplitCounts& counts);
double PerplexityPerPiece(double nll_sum, std::int64_t evaluated_pieces);

}  // namespace headsweep
