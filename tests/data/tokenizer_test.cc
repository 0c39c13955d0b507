#include "data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "data/text.h"
#include "data/token_format.h"
#include "tests/data/data_support.h"
#include "tests/support/corpora.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;
using testing::MadeUpText;

TEST(Tokenizer, TrainsTheSameBytesTwice) {
  const std::string text = MadeUpText(300);
  const auto lines = SplitSentences(text, "t").lines;
  const std::string model = TrainTokenizer(lines, 120, "t");
  EXPECT_EQ(model, TrainTokenizer(lines, 120, "t"));
  const std::string elsewhere = MadeUpText(300);  // other addresses, same text
  EXPECT_EQ(model, TrainTokenizer(SplitSentences(elsewhere, "u").lines, 120, "u"));
  EXPECT_EQ(Tokenizer(model).vocabulary(), 120);
}

TEST(Tokenizer, SpecialIdsAreWhereTokenFilesExpectThem) {
  const std::string text = MadeUpText(300);
  const Tokenizer tokenizer(TrainTokenizer(SplitSentences(text, "t").lines, 120, "t"));
  EXPECT_EQ(tokenizer.Piece(kPadToken), "<pad>");
  EXPECT_EQ(tokenizer.Piece(kUnknownToken), "<unk>");
  EXPECT_EQ(tokenizer.Piece(kBeginToken), "<s>");
  EXPECT_EQ(tokenizer.Piece(kEndToken), "</s>");
}

TEST(Tokenizer, GivesEveryLineBack) {
  const std::string text =
      MadeUpText(300) +
      "  two leading,  double and trailing blanks  \nthe naïve ½ ﬁ king in année 7\n1 < 2 > 0 / 3\n";
  const auto lines = SplitSentences(text, "t").lines;
  const Tokenizer tokenizer(TrainTokenizer(lines, 200, "t"));
  for (const std::string_view line : lines) {
    std::vector<std::int32_t> ids;
    tokenizer.Encode(line, ids);
    for (const std::int32_t id : ids) ASSERT_GT(id, kEndToken) << line;
    ASSERT_EQ(tokenizer.Decode(ids), line);
  }
}

TEST(Tokenizer, TextThatLooksLikeASpecialPieceIsText) {
  const std::string text = MadeUpText(300) + "1 < 2 > 0 / 3\n";
  const Tokenizer tokenizer(TrainTokenizer(SplitSentences(text, "t").lines, 120, "t"));
  std::vector<std::int32_t> ids;
  tokenizer.Encode("<s> </s> <pad>", ids);
  for (const std::int32_t id : ids) EXPECT_GT(id, kEndToken);
  EXPECT_EQ(tokenizer.Decode(ids), "<s> </s> <pad>");
}

TEST(Tokenizer, UnseenCharactersBecomeUnknown) {
  const std::string text = MadeUpText(300);
  const Tokenizer tokenizer(TrainTokenizer(SplitSentences(text, "t").lines, 120, "t"));
  std::vector<std::int32_t> ids;
  tokenizer.Encode("the 王 city", ids);
  EXPECT_THAT(ids, ::testing::Contains(kUnknownToken).Times(1));
  ids.clear();
  tokenizer.Encode("the\tcity", ids);  // SentencePiece keeps TAB for itself
  EXPECT_THAT(ids, ::testing::Contains(kUnknownToken).Times(1));
}

TEST(Tokenizer, ATinyTextGivesFewerPiecesThanAskedFor) {
  const std::string text = "a b\nb a\na a\n";
  const Tokenizer tokenizer(TrainTokenizer(SplitSentences(text, "t").lines, 4000, "t"));
  EXPECT_LT(tokenizer.vocabulary(), 40);
  EXPECT_GT(tokenizer.vocabulary(), 6);
}

TEST(Tokenizer, LongLinesAreNotSkipped) {
  std::string text = "x";
  for (int i = 0; i < 5000; ++i) text += " yz";
  const Tokenizer tokenizer(TrainTokenizer({text}, 20, "t"));
  std::vector<std::int32_t> ids;
  tokenizer.Encode("yz", ids);
  EXPECT_THAT(ids, ::testing::Not(::testing::Contains(kUnknownToken)));
}

TEST(Tokenizer, AVocabularyTooSmallForTheCharactersIsExplained) {
  const std::string text = MadeUpText(300);
  const auto lines = SplitSentences(text, "t").lines;
  for (const int vocabulary : {-1, 0, 7, 12, 1000001}) {
    try {
      TrainTokenizer(lines, vocabulary, "my.txt");
      FAIL() << vocabulary;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(vocabulary == 12 ? "corpus my.txt: no tokenizer of 12 pieces" : "vocabulary"));
    }
  }
}

TEST(Tokenizer, GarbageIsNoModel) { EXPECT_THROW(Tokenizer("garbage"), ConfigError); }

TEST(Tokenizer, RestoresEverySentenceOfARealText) {
  const std::string path = testing::CorpusFile("lm-austen/austen.sents.txt");
  if (path.empty()) GTEST_SKIP() << "lm-austen/austen.sents.txt not found; set HEADSWEEP_CORPORA";
  const std::string text = FileSystem::Real().ReadFile(path);
  const auto lines = SplitSentences(text, path).lines;
  const std::vector<std::string_view> some(lines.begin(), lines.begin() + 4000);
  const Tokenizer tokenizer(TrainTokenizer(some, 1000, path));
  std::vector<std::int32_t> ids;
  for (const std::string_view line : some) {
    ids.clear();
    tokenizer.Encode(line, ids);
    ASSERT_EQ(tokenizer.Decode(ids), line);
  }
}

}  // namespace
}  // namespace headsweep
