#include "sweeps/expression.h"

#include <fmt/format.h>
#include <muParser.h>

#include <algorithm>
#include <cmath>

namespace headsweep {
namespace {

using Operand = std::variant<int, std::string>;  // a text key's index, or quoted text

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The part of a text a token stands on.
struct Token {
  enum Kind { kNumber, kName, kFunction, kQuoted, kOperator, kBad } kind;
  std::size_t begin, end;
};

// Splits text into tokens; blanks are skipped.
std::vector<Token> Tokenize(const std::string& text) {
  std::vector<Token> tokens;
  std::size_t i = 0;
  const auto at = [&](std::size_t k) { return k < text.size() ? text[k] : '\0'; };
  while (i < text.size()) {
    const char c = text[i];
    const std::size_t begin = i;
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++i;
      continue;
    }
    if (IsNameStart(c)) {
      while (IsNameStart(at(i)) || IsDigit(at(i)) || (at(i) == '.' && IsNameStart(at(i + 1)))) ++i;
      std::size_t next = i;
      while (at(next) == ' ') ++next;
      tokens.push_back({at(next) == '(' ? Token::kFunction : Token::kName, begin, i});
    } else if (IsDigit(c) || (c == '.' && IsDigit(at(i + 1)))) {
      while (IsDigit(at(i)) || at(i) == '.') ++i;
      if ((at(i) == 'e' || at(i) == 'E') &&
          (IsDigit(at(i + 1)) || ((at(i + 1) == '+' || at(i + 1) == '-') && IsDigit(at(i + 2))))) {
        i += 2;
        while (IsDigit(at(i))) ++i;
      }
      // "2x" is one bad token, not 2 times x.
      const bool glued = IsNameStart(at(i));
      while (IsNameStart(at(i)) || IsDigit(at(i))) ++i;
      tokens.push_back({glued ? Token::kBad : Token::kNumber, begin, i});
    } else if (c == '\'' || c == '"') {
      const std::size_t close = text.find(c, i + 1);
      i = close == std::string::npos ? text.size() : close + 1;
      tokens.push_back({close == std::string::npos ? Token::kBad : Token::kQuoted, begin, i});
    } else {
      static constexpr const char* kTwo[] = {"==", "!=", "<=", ">=", "&&", "||"};
      const bool two = std::any_of(std::begin(kTwo), std::end(kTwo),
                                   [&](const char* op) { return text.compare(i, 2, op) == 0; });
      i += two ? 2 : 1;
      const bool known = two || std::string_view("+-*/%^()<>!?:,").find(c) != std::string_view::npos;
      tokens.push_back({known ? Token::kOperator : Token::kBad, begin, i});
    }
  }
  return tokens;
}

double Modulo(double a, double b) { return a - b * std::floor(a / b); }
double Not(double x) { return x == 0 ? 1 : 0; }
double Minimum(const double* x, int n) { return *std::min_element(x, x + n); }
double Maximum(const double* x, int n) { return *std::max_element(x, x + n); }
double Round(double x) { return std::round(x); }
double Floor(double x) { return std::floor(x); }
double Ceil(double x) { return std::ceil(x); }
double Absolute(double x) { return std::abs(x); }
double SquareRoot(double x) { return std::sqrt(x); }
double Logarithm(double x) { return std::log(x); }
double BinaryLogarithm(double x) { return std::log2(x); }
double Exponential(double x) { return std::exp(x); }

const std::vector<std::string>& FunctionNames() {
  static const std::vector<std::string> names = {"min", "max",  "round", "floor", "ceil",
                                                 "abs", "sqrt", "log",   "log2",  "exp"};
  return names;
}

// A parser that knows our functions and operators and nothing else.
void SetUp(mu::Parser& parser) {
  parser.ClearFun();
  parser.ClearConst();
  parser.DefineNameChars("0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.");
  parser.DefineOprtChars("+-*^/?<>=!%&|");
  parser.DefineInfixOprtChars("+-!");
  parser.DefineFun("min", Minimum);
  parser.DefineFun("max", Maximum);
  parser.DefineFun("round", Round);
  parser.DefineFun("floor", Floor);
  parser.DefineFun("ceil", Ceil);
  parser.DefineFun("abs", Absolute);
  parser.DefineFun("sqrt", SquareRoot);
  parser.DefineFun("log", Logarithm);
  parser.DefineFun("log2", BinaryLogarithm);
  parser.DefineFun("exp", Exponential);
  parser.DefineOprt("%", Modulo, mu::prMUL_DIV, mu::oaLEFT);
  parser.DefineInfixOprt("!", Not);
  parser.DefineConst("true", 1);
  parser.DefineConst("false", 0);
}

std::string NameProblem(const std::string& name, const std::vector<std::string>& candidates) {
  if (candidates.size() > 1) {
    return fmt::format("\"{}\" may mean {} or {}: write the whole name", name, candidates[0], candidates[1]);
  }
  std::vector<std::string> numbers = KeyNames();
  std::erase_if(numbers, [](const std::string& key) {
    const int known = FindKeyByAnyName(key);
    return known >= 0 && AllKeys()[static_cast<std::size_t>(known)].type == KeyType::kText;
  });
  const std::string nearest = Nearest(name, numbers);
  return fmt::format("unknown name \"{}\"{}", name,
                     nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?");
}

}  // namespace

struct Expression::Compiled {
  struct NumberSlot {
    int key;
    double value = 0;
  };
  struct Comparison {  // of two texts; becomes a variable that is 0 or 1
    Operand left, right;
    bool equal;  // == or !=
    double value = 0;
  };
  mu::Parser parser;
  std::vector<std::unique_ptr<NumberSlot>> numbers;  // stable addresses: muParser keeps pointers to value
  std::vector<std::unique_ptr<Comparison>> comparisons;
};

// One compilation: rewrites text comparisons to variables, binds names, checks everything muParser would
// report badly.
struct Expression::Builder {
  Expression& expression;
  std::string source;  // of the same length as the text, so that muParser's positions stay right
  std::vector<Token> tokens;
  std::vector<std::optional<Operand>> operands;  // of each token: a text key or quoted text
  std::string problem;

  std::string Part(std::size_t i) const {
    return expression.text_.substr(tokens[i].begin, tokens[i].end - tokens[i].begin);
  }

  void NoteKey(int key) {
    auto& keys = expression.keys_;
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }

  bool BindName(std::size_t i) {
    const std::string name = Part(i);
    if (name == "true" || name == "false") return true;
    std::vector<std::string> candidates;
    const int key = FindKeyByAnyName(name, &candidates);
    if (key < 0 || Key(key).use == KeyUse::kInternal) {
      problem = NameProblem(name, candidates);
      return false;
    }
    if (Key(key).name == "prune.order" || Key(key).name == "prune.seed") {
      problem =
          fmt::format("\"{}\" cannot be used in an expression: a trial is pruned in several orders", name);
      return false;
    }
    NoteKey(key);
    if (Key(key).type == KeyType::kText) {
      operands[i] = key;
      return true;
    }
    for (const auto& slot : expression.compiled_->numbers) {
      if (slot->key == key) return DefineVariable(name, &slot->value);
    }
    expression.compiled_->numbers.push_back(
        std::make_unique<Compiled::NumberSlot>(Compiled::NumberSlot{key}));
    return DefineVariable(name, &expression.compiled_->numbers.back()->value);
  }

  bool DefineVariable(const std::string& name, double* value) {
    expression.compiled_->parser.DefineVar(name, value);
    return true;
  }

  bool CheckTokens() {
    operands.resize(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::string part = Part(i);
      switch (tokens[i].kind) {
        case Token::kBad:
          problem = part == "=" ? "\"=\" is no operator; compare with \"==\""
                                : fmt::format("cannot read \"{}\"", part);
          return false;
        case Token::kFunction: {
          const auto& names = FunctionNames();
          if (std::find(names.begin(), names.end(), part) == names.end()) {
            const std::string nearest = Nearest(part, names);
            problem = fmt::format("unknown function \"{}\"{}", part,
                                  nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?");
            return false;
          }
          break;
        }
        case Token::kName:
          if (!BindName(i)) return false;
          break;
        case Token::kQuoted:
          operands[i] = part.substr(1, part.size() - 2);
          break;
        default:
          break;
      }
    }
    return true;
  }

  // Text operands occur only as `text == text` or `text != text`.
  bool RewriteComparisons() {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (!operands[i]) continue;
      const bool complete =
          i + 2 < tokens.size() && operands[i + 2] && (Part(i + 1) == "==" || Part(i + 1) == "!=");
      if (!complete) {
        problem = fmt::format("{} is text: it can only be compared with == or != to other text", Part(i));
        return false;
      }
      if (!CheckChoice(i, i + 2) || !CheckChoice(i + 2, i)) return false;
      auto comparison = std::make_unique<Compiled::Comparison>(
          Compiled::Comparison{*operands[i], *operands[i + 2], Part(i + 1) == "=="});
      auto& all = expression.compiled_->comparisons;
      const std::string name = fmt::format("t{}", all.size());
      const std::size_t begin = tokens[i].begin, length = tokens[i + 2].end - begin;
      if (name.size() > length) {
        problem = "too many comparisons";
        return false;
      }
      DefineVariable(name, &comparison->value);
      source.replace(begin, length, name + std::string(length - name.size(), ' '));
      all.push_back(std::move(comparison));
      i += 2;
    }
    return true;
  }

  // `norm == 'pots'` is always false: a mistake worth telling.
  bool CheckChoice(std::size_t key_token, std::size_t text_token) {
    const int* key = std::get_if<int>(&*operands[key_token]);
    const std::string* text = std::get_if<std::string>(&*operands[text_token]);
    if (key == nullptr || text == nullptr || Key(*key).choices.empty()) return true;
    const auto& choices = Key(*key).choices;
    if (std::find(choices.begin(), choices.end(), *text) != choices.end()) return true;
    problem = fmt::format("{} is never '{}'; it is {}", Key(*key).name, *text, DescribeRange(Key(*key)));
    return false;
  }

  bool Build() {
    SetUp(expression.compiled_->parser);
    tokens = Tokenize(expression.text_);
    if (tokens.empty()) {
      problem = "the expression is empty";
      return false;
    }
    if (!CheckTokens() || !RewriteComparisons()) return false;
    try {
      expression.compiled_->parser.SetExpr(source);
      expression.compiled_->parser.Eval();  // compiles; the value is of no interest
      if (expression.compiled_->parser.GetNumResults() != 1) {
        problem = "several values, separated by commas";
        return false;
      }
    } catch (const mu::ParserError& error) {
      problem = error.GetMsg();
      return false;
    }
    return true;
  }
};

Expression::Expression(std::string text) : text_(std::move(text)), compiled_(std::make_unique<Compiled>()) {}
Expression::~Expression() = default;

std::shared_ptr<Expression> Expression::Compile(const std::string& text, std::string* problem) {
  std::shared_ptr<Expression> expression(new Expression(text));
  Builder builder{*expression, text, {}, {}, {}};
  if (builder.Build()) return expression;
  *problem = builder.problem;
  return nullptr;
}

std::optional<double> Expression::Evaluate(const ValueOf& value_of, std::string* problem) const {
  for (const auto& slot : compiled_->numbers) {
    const Value* value = value_of(slot->key);
    if (value == nullptr) return std::nullopt;
    if (const auto* i = std::get_if<std::int64_t>(value)) {
      slot->value = static_cast<double>(*i);
    } else if (const auto* d = std::get_if<double>(value)) {
      slot->value = *d;
    } else if (const auto* b = std::get_if<bool>(value)) {
      slot->value = *b ? 1 : 0;
    } else if (const auto* heads = std::get_if<std::vector<std::int64_t>>(value)) {
      if (std::adjacent_find(heads->begin(), heads->end(), std::not_equal_to<>()) != heads->end()) {
        *problem = fmt::format("uses {}, which differs from layer to layer here: {}", Key(slot->key).name,
                               FormatValue(*value));
        return std::nullopt;
      }
      slot->value = static_cast<double>(heads->front());
    }
  }
  for (const auto& comparison : compiled_->comparisons) {
    const std::string* sides[2];
    const Operand* operands[2] = {&comparison->left, &comparison->right};
    for (int side = 0; side < 2; ++side) {
      if (const int* key = std::get_if<int>(operands[side])) {
        const Value* value = value_of(*key);
        if (value == nullptr) return std::nullopt;
        sides[side] = &std::get<std::string>(*value);
      } else {
        sides[side] = &std::get<std::string>(*operands[side]);
      }
    }
    comparison->value = (*sides[0] == *sides[1]) == comparison->equal ? 1 : 0;
  }
  double result = 0;
  try {
    result = compiled_->parser.Eval();
  } catch (const mu::ParserError& error) {
    *problem = error.GetMsg();
    return std::nullopt;
  }
  if (!std::isfinite(result)) {
    *problem = "is not a finite number (a division by zero?)";
    return std::nullopt;
  }
  return result;
}

}  // namespace headsweep
