// Expressions: names, operators, text comparisons, and what is refused.
#include "sweeps/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headsweep {
namespace {

using ::testing::HasSubstr;

// embed 128, heads 4, head_size 32, tied, norm "pre", everything else 10.
const Value* Lookup(int key) {
  static const Value embed = std::int64_t{128}, heads = std::vector<std::int64_t>{4},
                     head_size = std::int64_t{32}, tied = true, text = std::string("pre"),
                     other = std::int64_t{10};
  const std::string& name = Key(key).name;
  if (name == "model.embed") return &embed;
  if (name == "model.heads") return &heads;
  if (name == "model.head_size") return &head_size;
  if (name == "model.tied") return &tied;
  return Key(key).type == KeyType::kText ? &text : &other;
}

double ValueOf(const std::string& text) {
  std::string problem;
  const auto expression = Expression::Compile(text, &problem);
  if (expression == nullptr) {
    ADD_FAILURE() << text << ": " << problem;
    return 0;
  }
  return expression->Evaluate(Lookup, &problem).value_or(-12345);
}

std::string ProblemOf(const std::string& text) {
  std::string problem;
  const auto expression = Expression::Compile(text, &problem);
  if (expression != nullptr) {
    EXPECT_FALSE(expression->Evaluate(Lookup, &problem).has_value()) << text;
  }
  return problem;
}

TEST(Expression, KnowsArithmeticNamesAndFunctions) {
  EXPECT_EQ(ValueOf("embed / heads"), 32);
  EXPECT_EQ(ValueOf("model.embed / model.heads"), 32);
  EXPECT_EQ(ValueOf("2 + 3 * 4 - -1"), 15);
  EXPECT_EQ(ValueOf("2^3^1"), 8);
  EXPECT_EQ(ValueOf("embed % 100"), 28);
  EXPECT_EQ(ValueOf("embed%-100"), -72);
  EXPECT_EQ(ValueOf("1e3 + 2.5E-1 + .5"), 1000.75);
  EXPECT_EQ(ValueOf("min(heads, 3, 9) + max(1, 2)"), 5);
  EXPECT_EQ(ValueOf("round(2.6) + floor(2.6) + ceil(2.1) + abs(-1) + sqrt(9) + log2(8) + log(exp(1))"), 16);
  EXPECT_EQ(ValueOf("train.evaluate_examples"), 10);
  EXPECT_EQ(ValueOf("evaluate_examples"), 10);
}

TEST(Expression, KnowsConditions) {
  EXPECT_EQ(ValueOf("heads * head_size > 100 && embed <= 128"), 1);
  EXPECT_EQ(ValueOf("heads != 4 || !(embed == 128)"), 0);
  EXPECT_EQ(ValueOf("!tied"), 0);
  EXPECT_EQ(ValueOf("tied == true"), 1);
  EXPECT_EQ(ValueOf("heads > 2 ? 7 : 8"), 7);
}

TEST(Expression, ComparesText) {
  EXPECT_EQ(ValueOf("norm == 'pre'"), 1);
  EXPECT_EQ(ValueOf("norm != \"pre\""), 0);
  EXPECT_EQ(ValueOf("'post' == norm || heads == 4"), 1);
  EXPECT_EQ(ValueOf("corpus=='a b=c'"), 0);
  EXPECT_EQ(ValueOf("norm == 'pre' && norm != 'post' && embed > 1"), 1);
}

TEST(Expression, SaysWhatIsWrong) {
  EXPECT_THAT(ProblemOf("embd / heads"), HasSubstr("unknown name \"embd\"; did you mean \"embed\"?"));
  EXPECT_THAT(ProblemOf("mni(1, 2)"), HasSubstr("unknown function \"mni\"; did you mean \"min\"?"));
  EXPECT_THAT(ProblemOf("heads = 4"), HasSubstr("compare with \"==\""));
  EXPECT_THAT(ProblemOf("2x"), HasSubstr("cannot read \"2x\""));
  EXPECT_THAT(ProblemOf(""), HasSubstr("empty"));
  EXPECT_THAT(ProblemOf("   "), HasSubstr("empty"));
  EXPECT_THAT(ProblemOf("1 +"), ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(ProblemOf("(1"), ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(ProblemOf("1, 2"), ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(ProblemOf("min()"), ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(ProblemOf("norm + 1"), HasSubstr("only be compared"));
  EXPECT_THAT(ProblemOf("norm == 1"), HasSubstr("only be compared"));
  EXPECT_THAT(ProblemOf("norm == 'pots'"), HasSubstr("never 'pots'; it is one of: pre, post"));
  EXPECT_THAT(ProblemOf("prune.order == 'random'"), HasSubstr("cannot be used"));
  EXPECT_THAT(ProblemOf("'open"), HasSubstr("cannot read"));
  EXPECT_THAT(ProblemOf("embed $ 2"), HasSubstr("cannot read \"$\""));
  EXPECT_THAT(ProblemOf("embed / (heads - 4)"), HasSubstr("finite"));
  EXPECT_THAT(ProblemOf("sqrt(-1)"), HasSubstr("finite"));
  EXPECT_THAT(ProblemOf("task.fingerprint == 'x'"), HasSubstr("unknown name"));
}

}  // namespace
}  // namespace headsweep
