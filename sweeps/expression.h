// Expressions of the sweep language, as in head_size = "embed / heads" and when = "heads * head_size > 1024".
// Numbers, key names (dotted, or short where unique), + - * / % ^ ( ), comparisons, && || !, c ? a : b, true,
// false, and the functions min max round floor ceil abs sqrt log log2 exp. Text keys may be compared with ==
// and != to other text keys and to 'quoted text'. muParser stays behind this header. Not thread-safe:
// Evaluate uses the object's own memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sweeps/schema.h"

namespace headsweep {

class Expression {
 public:
  // The compiled expression, or nullptr with *problem set (what is wrong, and where in the expression).
  static std::shared_ptr<Expression> Compile(const std::string& text, std::string* problem);
  ~Expression();

  const std::string& text() const { return text_; }
  const std::vector<int>& keys() const { return keys_; }  // schema indices, each once, in order of appearance

  // value_of(key): the resolved value, or nullptr where it could not be resolved (somebody complained
  // already). nullopt: no finite value. *problem says why, or is empty where value_of gave nullptr.
  using ValueOf = std::function<const Value*(int key)>;
  std::optional<double> Evaluate(const ValueOf& value_of, std::string* problem) const;

 private:
  struct Compiled;
  struct Builder;
  explicit Expression(std::string text);

  std::string text_;
  std::vector<int> keys_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace headsweep
