#include "results/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace headsweep::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Html, EscapesWhatHasAMeaning) {
  EXPECT_EQ(Escape("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(Escape("größer ± ∂"), "größer ± ∂");
}

TEST(Html, JsonInAScriptCannotEndIt) {
  const nlohmann::json value = {{"</script><!--", "\u2028\u2029 é"}, {"n", {1.5, std::nan(""), INFINITY}}};
  const std::string script = ScriptJson(value);
  EXPECT_THAT(script, Not(HasSubstr("<")));
  EXPECT_THAT(script, Not(HasSubstr("\u2028")));
  const nlohmann::json back = nlohmann::json::parse(script);
  EXPECT_EQ(back["</script><!--"], "\u2028\u2029 é");
  EXPECT_TRUE(back["n"][1].is_null());
}

TEST(Html, JsonOfBytesThatAreNotUtf8IsStillJson) {
  EXPECT_EQ(nlohmann::json::parse(ScriptJson(nlohmann::json("a\xFFz"))), "a\uFFFDz");
}

TEST(Html, TablesHoldTheirCells) {
  Table table("caption <1>", /*sortable=*/true);
  table.AddColumn("name");
  table.AddColumn("value", Table::Kind::kNumber);
  table.BeginRow();
  table.Cell("a<b");
  table.Number(1.25, 1);
  table.BeginRow();
  table.Cell("c", "state bad");
  table.Number(std::nan(""), 1);
  EXPECT_THAT(table.Html(), HasSubstr("<caption>caption &lt;1&gt;</caption>"));
  EXPECT_THAT(table.Html(), HasSubstr("<td>a&lt;b</td><td class=\"number\" data-value=\"1.25\">1.2</td>"));
  EXPECT_THAT(table.Html(), HasSubstr("<td class=\"state bad\">c</td><td class=\"number\">–</td>"));
}

TEST(Html, DurationsAndCountsReadWell) {
  EXPECT_EQ(FormatSeconds(4.26), "4.3 s");
  EXPECT_EQ(FormatSeconds(59.6), "1 min 00 s");
  EXPECT_EQ(FormatSeconds(3599.9), "1 h 00 min");
  EXPECT_EQ(FormatSeconds(NAN), "–");
  EXPECT_EQ(FormatCount(1234567), "1\u202F234\u202F567");
  EXPECT_EQ(FormatCount(-1000), "-1\u202F000");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatTime(0), "–");
  EXPECT_EQ(FormatTime(1700000000), "2023-11-14 22:13 UTC");
}

}  // namespace
}  // namespace headsweep::report
