#include "data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SplitSentences, CutsAtLineFeedsOnly) {
  const std::string text = "one\ntwo\xe2\x80\xa8still two\x0b\x0c\xc2\x85\nthree";
  EXPECT_THAT(SplitSentences(text, "f").lines,
              ElementsAre("one", "two\xe2\x80\xa8still two\x0b\x0c\xc2\x85", "three"));
}

TEST(SplitSentences, DropsByteOrderMarkAndCarriageReturns) {
  const Sentences sentences = SplitSentences("\xef\xbb\xbfone\r\ntwo\r\n", "f");
  EXPECT_THAT(sentences.lines, ElementsAre("one", "two"));
  EXPECT_EQ(sentences.empty_lines, 0);
}

TEST(SplitSentences, CountsTheEmptyLinesItDrops) {
  const Sentences sentences = SplitSentences("\none\n\r\n \t\n\xc2\xa0\ntwo\n\n", "f");
  EXPECT_THAT(sentences.lines, ElementsAre("one", "two"));
  EXPECT_EQ(sentences.empty_lines, 5);
}

TEST(SplitSentences, KeepsBlanksInsideAndAround) {
  EXPECT_THAT(SplitSentences("  a  b \n", "f").lines, ElementsAre("  a  b "));
}

TEST(SplitSentences, RefusesWhatIsNotUtf8WithLineAndColumn) {
  const char* broken[] = {"\x80",              // a continuation without a lead
                          "\xc3",              // cut off
                          "\xc3(",             // continuation missing
                          "\xc0\xaf",          // overlong /
                          "\xe0\x80\xaf",      // overlong in three
                          "\xf0\x80\x80\xaf",  // overlong in four
                          "\xed\xa0\x80",      // a surrogate
                          "\xf4\x90\x80\x80",  // beyond U+10FFFF
                          "\xff",
                          "\xe9t\xe9"};  // Latin-1
  for (const std::string bytes : broken) {
    try {
      SplitSentences("fine\nbad " + bytes + "\n", "text.txt");
      FAIL() << "accepted " << ::testing::PrintToString(bytes);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("text.txt:2:5: byte 0x")) << ::testing::PrintToString(bytes);
    }
  }
  EXPECT_THROW(SplitSentences(std::string_view("a\0b\n", 4), "f"), ConfigError);
}

TEST(SplitSentences, AcceptsTheEdgesOfUtf8) {
  const std::string text =
      "\x7f \xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf \xf0\x90\x80\x80 "
      "\xf4\x8f\xbf\xbf";
  EXPECT_EQ(SplitSentences(text, "f").lines.size(), 1u);
}

TEST(SplitSentences, ReportsSeveralBadLinesAtOnce) {
  try {
    SplitSentences("\xff\nok\n\xfe\n", "f");
    FAIL();
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.diagnostics().size(), 2u);
    EXPECT_EQ(error.diagnostics()[1].line, 3);
  }
}

TEST(CountWords, SplitsAtUnicodeWhiteSpace) {
  EXPECT_EQ(CountWords("In the beginning"), 3);
  EXPECT_EQ(CountWords("  a\tb  "), 2);
  EXPECT_EQ(CountWords("10\xc2\xa0"
                       "000"),
            2);  // no-break space
  EXPECT_EQ(CountWords("a\xe3\x80\x80"
                       "b\xe2\x80\xaf"
                       "c"),
            3);                                       // ideographic and narrow no-break space
  EXPECT_EQ(CountWords("zero\xe2\x80\x8bwidth"), 1);  // U+200B is no white space
  EXPECT_EQ(CountWords(""), 0);
}

}  // namespace
}  // namespace headsweep
