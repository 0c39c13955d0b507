#include "data/scores.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headsweep {
namespace {

// 3 sentences, 7 words, 12 pieces; 20 nats: exp(20 / 10) per word, exp(20 / 12) per piece.
const SplitCounts kCounts{.sentences = 3, .words = 7, .pieces = 12};

TEST(Scores, PerplexityPerWordCountsWordsAndSentenceEnds) {
  EXPECT_NEAR(PerplexityPerWord(20, 12, kCounts), 7.38905609893065, 1e-12);
}

TEST(Scores, PerplexityPerPieceCountsPieces) {
  EXPECT_NEAR(PerplexityPerPiece(20, 12), 5.294490050470291, 1e-12);
}

TEST(Scores, TheTwoAreConnectedByPiecesPerWord) {
  const double per_piece = PerplexityPerPiece(31.4, 12);
  EXPECT_NEAR(PerplexityPerWord(31.4, 12, kCounts), std::pow(per_piece, 12.0 / 10.0), 1e-9);
}

TEST(Scores, APartOfTheSplitCountsItsShareOfTheWords) {
  // Half the pieces with half the loss is the same text quality.
  EXPECT_NEAR(PerplexityPerWord(10, 6, kCounts), PerplexityPerWord(20, 12, kCounts), 1e-12);
}

TEST(Scores, AUniformModelScoresItsVocabulary) {
  EXPECT_NEAR(PerplexityPerPiece(12 * std::log(4000.0), 12), 4000, 1e-8);
}

TEST(Scores, NothingEvaluatedIsNotANumber) {
  EXPECT_TRUE(std::isnan(PerplexityPerWord(0, 0, kCounts)));
  EXPECT_TRUE(std::isnan(PerplexityPerPiece(0, 0)));
  EXPECT_TRUE(std::isnan(PerplexityPerPiece(std::nan(""), 5)));
}

}  // namespace
}  // namespace headsweep
