// Settings: what a file says about one key, checked against the table as far as that is possible without the
// other keys.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "sweeps/document.h"
#include "sweeps/expression.h"
#include "sweeps/schema.h"

namespace headsweep {

struct Setting {
  Position at;
  // monostate: what was written is wrong and has been complained about; nothing that needs it is checked.
  std::variant<Value, std::shared_ptr<const Expression>, std::monostate> value;

  const Value* literal() const { return std::get_if<Value>(&value); }
  const Expression* expression() const {
    const auto* held = std::get_if<std::shared_ptr<const Expression>>(&value);
    return held == nullptr ? nullptr : held->get();
  }
};

// The value of `key` as written at `raw`. If its type, range or spelling is wrong: complains and holds
// monostate.
Setting ReadSetting(const KeySpec& key, const RawValue& raw, Complaints& complaints);

// As written, for axes and messages: 32, 0.1, "embed / heads" (without quotes), [4, 2].
std::string Label(const Setting& setting);

// Why `value` is not allowed for `key`, or "".
std::string RangeProblem(const KeySpec& key, const Value& value);

// `number` as a value of a numeric key; nullopt if the key wants a whole number and it is none (1e-9 relative
// slack, for the rounding of expressions), or one too large.
std::optional<Value> ToNumericValue(const KeySpec& key, double number, double slack);

// The default of a key; prune.order: "".
const Setting& DefaultSetting(int key);

// Complains about a key that is not in the table, with the nearest one that is.
void ComplainUnknownKey(Position at, const std::string& name, std::span<const std::string> known,
                        Complaints& complaints);

}  // namespace headsweep
