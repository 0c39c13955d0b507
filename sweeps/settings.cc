#include "sweeps/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace headsweep {
namespace {

// Kinds of the design that this version cannot run: named, so that nobody takes them for a spelling mistake.
constexpr const char* kLaterKinds[] = {"translation", "classification", "span", "attention-fit"};

std::string Expected(const KeySpec& key) {
  switch (key.type) {
    case KeyType::kInteger:
      return "a whole number or an expression";
    case KeyType::kNumber:
      return "a number or an expression";
    case KeyType::kBoolean:
      return "true or false";
    case KeyType::kText:
      return "text";
    case KeyType::kHeads:
      return "a whole number, an expression, or a list with one whole number a layer";
  }
  return "";
}

void ComplainType(const KeySpec& key, const RawValue& raw, Complaints& complaints) {
  std::string hint;
  if (std::holds_alternative<RawArray>(raw.data) && key.may_be_axis())
    hint = "; to try several values put it under [grid]";
  if (key.type == KeyType::kBoolean && std::holds_alternative<std::string>(raw.data))
    hint = ", without quotes";
  complaints.Add(raw.at,
                 fmt::format("{} must be {}{}, not {}", key.name, Expected(key), hint, TypeName(raw)));
}

std::string TextProblem(const KeySpec& key, const std::string& text) {
  if (!key.choices.empty()) {
    if (std::find(key.choices.begin(), key.choices.end(), text) != key.choices.end()) return "";
    if (key.name == "task.kind" &&
        std::find(std::begin(kLaterKinds), std::end(kLaterKinds), text) != std::end(kLaterKinds)) {
      return fmt::format("task kind {} is not available in this version; available: {}", QuoteToml(text),
                         fmt::join(key.choices, ", "));
    }
    const std::string nearest = Nearest(text, key.choices);
    return fmt::format("{} cannot be {}; it is {}{}", key.name, QuoteToml(text), DescribeRange(key),
                       nearest.empty() ? "" : " (did you mean \"" + nearest + "\"?)");
  }
  return text.empty() && key.use != KeyUse::kInternal ? key.name + " must not be empty" : "";
}

std::string NumberProblem(const KeySpec& key, double number) {
  if (key.range.Contains(number)) return "";
  return fmt::format("{} = {} is out of range: {}", key.name, FormatNumber(number), DescribeRange(key));
}

// A plain number of the file as a value of a numeric key.
std::optional<Value> ReadNumber(const KeySpec& key, const RawValue& raw, Complaints& complaints) {
  if (const auto* integer = std::get_if<std::int64_t>(&raw.data)) {
    if (key.type == KeyType::kNumber) return Value(static_cast<double>(*integer));
    if (key.type == KeyType::kHeads) return Value(std::vector<std::int64_t>{*integer});
    return Value(*integer);
  }
  const double number = std::get<double>(raw.data);
  if (!std::isfinite(number)) {
    complaints.Add(raw.at, fmt::format("{} must be a finite number", key.name));
    return std::nullopt;
  }
  std::optional<Value> value = ToNumericValue(key, number, 0);
  if (!value) {
    complaints.Add(raw.at, fmt::format("{} must be a whole number, not {}", key.name, FormatNumber(number)));
  }
  return value;
}

std::optional<Value> ReadHeadList(const KeySpec& key, const RawValue& raw, Complaints& complaints) {
  std::vector<std::int64_t> heads;
  const auto& items = std::get<RawArray>(raw.data);
  if (items.empty()) {
    complaints.Add(raw.at, fmt::format("{} is an empty list; it needs one number a layer", key.name));
    return std::nullopt;
  }
  for (const RawValue& item : items) {
    if (!std::holds_alternative<std::int64_t>(item.data) && !std::holds_alternative<double>(item.data)) {
      complaints.Add(item.at,
                     fmt::format("{} of a layer must be a whole number, not {}", key.name, TypeName(item)));
      return std::nullopt;
    }
    const std::optional<Value> value = ReadNumber(key, item, complaints);
    if (!value) return std::nullopt;
    heads.push_back(std::get<std::vector<std::int64_t>>(*value).front());
  }
  return Value(std::move(heads));
}

Setting ReadExpression(const KeySpec& key, const RawValue& raw, Complaints& complaints) {
  const auto& text = std::get<std::string>(raw.data);
  std::string problem;
  std::shared_ptr<const Expression> expression = Expression::Compile(text, &problem);
  if (expression == nullptr) {
    complaints.Add(raw.at, fmt::format("{} = {}: {}", key.name, QuoteToml(text), problem));
    return {raw.at, std::monostate{}};
  }
  return {raw.at, std::move(expression)};
}

std::vector<Setting> MakeDefaults() {
  std::vector<Setting> defaults;
  for (const KeySpec& key : AllKeys()) {
    Setting setting;
    if (key.type == KeyType::kText) {
      setting.value = Value(key.fallback);
    } else {
      std::string problem;
      std::shared_ptr<const Expression> expression = Expression::Compile(key.fallback, &problem);
      HEADSWEEP_CHECK(expression != nullptr, "default of {}: {}", key.name, problem);
      if (!expression->keys().empty()) {
        setting.value = std::move(expression);
      } else {
        const double number = expression->Evaluate(nullptr, &problem).value();
        if (key.type == KeyType::kBoolean) {
          setting.value = Value(number != 0);
        } else {
          setting.value = ToNumericValue(key, number, 0).value();
        }
      }
    }
    defaults.push_back(std::move(setting));
  }
  return defaults;
}

}  // namespace

std::string RangeProblem(const KeySpec& key, const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return TextProblem(key, *text);
  if (const auto* integer = std::get_if<std::int64_t>(&value))
    return NumberProblem(key, static_cast<double>(*integer));
  if (const auto* number = std::get_if<double>(&value)) return NumberProblem(key, *number);
  if (const auto* heads = std::get_if<std::vector<std::int64_t>>(&value)) {
    for (const std::int64_t h : *heads) {
      if (std::string problem = NumberProblem(key, static_cast<double>(h)); !problem.empty()) return problem;
    }
  }
  return "";
}

std::optional<Value> ToNumericValue(const KeySpec& key, double number, double slack) {
  if (key.type == KeyType::kNumber) return Value(number + 0.0);
  const double whole = std::round(number);
  if (!(std::abs(number - whole) <= slack * std::max(1.0, std::abs(number))) || !(std::abs(whole) < 9.2e18)) {
    return std::nullopt;
  }
  const auto integer = static_cast<std::int64_t>(whole);
  if (key.type == KeyType::kHeads) return Value(std::vector<std::int64_t>{integer});
  return Value(integer);
}

Setting ReadSetting(const KeySpec& key, const RawValue& raw, Complaints& complaints) {
  const bool is_text = std::holds_alternative<std::string>(raw.data);
  const bool is_number =
      std::holds_alternative<std::int64_t>(raw.data) || std::holds_alternative<double>(raw.data);
  std::optional<Value> value;
  if (key.is_numeric() && is_text) return ReadExpression(key, raw, complaints);
  if (key.is_numeric() && is_number) {
    value = ReadNumber(key, raw, complaints);
  } else if (key.type == KeyType::kHeads && std::holds_alternative<RawArray>(raw.data)) {
    value = ReadHeadList(key, raw, complaints);
  } else if (key.type == KeyType::kText && is_text) {
    value = Value(std::get<std::string>(raw.data));
  } else if (key.type == KeyType::kBoolean && std::holds_alternative<bool>(raw.data)) {
    value = Value(std::get<bool>(raw.data));
  } else {
    ComplainType(key, raw, complaints);
  }
  if (!value) return {raw.at, std::monostate{}};
  if (std::string problem = RangeProblem(key, *value); !problem.empty()) {
    complaints.Add(raw.at, std::move(problem));
    return {raw.at, std::monostate{}};
  }
  return {raw.at, std::move(*value)};
}

std::string Label(const Setting& setting) {
  if (const Expression* expression = setting.expression()) return expression->text();
  if (setting.literal() == nullptr) return "?";
  const auto* text = std::get_if<std::string>(setting.literal());
  return text != nullptr ? *text : FormatValue(*setting.literal());
}

const Setting& DefaultSetting(int key) {
  static const std::vector<Setting> defaults = MakeDefaults();
  return defaults[static_cast<std::size_t>(key)];
}

void ComplainUnknownKey(Position at, const std::string& name, std::span<const std::string> known,
                        Complaints& complaints) {
  const std::string nearest = Nearest(name, known);
  complaints.Add(at, fmt::format("unknown key \"{}\"{}", name,
                                 nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

}  // namespace headsweep
