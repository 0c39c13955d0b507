// The table of every key of the sweep language and of config.toml: one row a key, one place. Parsing,
// defaults, ranges, hints for misspelt keys, canonical JSON, config.toml and `headsweep expand --keys` are
// all driven by it. To add a key: a field in stage_config.h and a row in schema_table.cc.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sweeps/stage_config.h"

namespace headsweep {

enum class KeyType {
  kInteger,  // int or uint64 field; TOML integer, or a float without a fraction, or an expression
  kNumber,   // double field; TOML number or expression
  kBoolean,  // true or false
  kText,     // text; with choices: one of them
  kHeads,    // head count of every layer: one number, an expression, or a list with one number a layer
};

// A resolved value. kInteger: int64; kNumber: double; kHeads: list of one number (every layer) or of one a
// layer.
using Value = std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>>;

using FieldPointer = std::variant<int*, std::uint64_t*, double*, bool*, std::string*, std::vector<int>*>;

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;          // low itself is not allowed
  bool below_high = false;         // high itself is not allowed
  bool Contains(double x) const {  // false for NaN
    return (above_low ? x > low : x >= low) && (below_high ? x < high : x <= high);
  }
};

enum class KeyUse {
  kIdentity,       // part of a stage's identity; may be an axis
  kLaterIdentity,  // the same, but its default means what was done before there was the key, and leaves the
                   // identity as it was
  kDataName,       // may be an axis; the fingerprint of the data stands for it in the identity
  kExecution,      // how to run, not what is computed: no axis, not in the identity
  kPruning,        // [prune]: part of a prune stage's identity; no axis of [grid]
  kInternal,       // only in config.toml, in the identity
};

struct KeySpec {
  std::string name;  // "model.head_size"
  KeyType type;
  std::string fallback;  // the default: text, or an expression ("embed / heads"); prune.order: "" = none
  Range range;           // of numbers
  std::vector<std::string> choices;  // of text; empty = any
  KeyUse use;
  std::string help;  // one line
  FieldPointer (*field)(StageConfig&);

  bool is_numeric() const {
    return type == KeyType::kInteger || type == KeyType::kNumber || type == KeyType::kHeads;
  }
  bool in_identity() const {
    return use == KeyUse::kIdentity || use == KeyUse::kLaterIdentity || use == KeyUse::kPruning ||
           use == KeyUse::kInternal;
  }
  bool may_be_axis() const {
    return use == KeyUse::kIdentity || use == KeyUse::kLaterIdentity || use == KeyUse::kDataName;
  }
};

std::vector<KeySpec> MakeKeyTable();  // schema_table.cc; use AllKeys()
std::span<const KeySpec> AllKeys();
inline int KeyCount() { return static_cast<int>(AllKeys().size()); }
inline const KeySpec& Key(int index) { return AllKeys()[static_cast<std::size_t>(index)]; }

// Index of a key by its dotted name, or -1.
int FindKey(std::string_view dotted);
// By dotted name, or by its last part where only one key (or only one outside [prune] and [run]) ends so. -1:
// unknown; ambiguous: two or more candidates are listed in *candidates.
int FindKeyByAnyName(std::string_view name, std::vector<std::string>* candidates = nullptr);

std::string ShortName(const KeySpec& key);      // "head_size"
std::string DescribeRange(const KeySpec& key);  // "1 to 512", "above 0", "one of: pre, post"; "" = anything

// The nearest of `known` for a misspelt word (Damerau-Levenshtein distance at most a third of its length), or
// "".
std::string Nearest(std::string_view word, std::span<const std::string> known);
std::vector<std::string> KeyNames();  // dotted and short ones, for hints

// A field's value and back. Set expects a value of the key's type and within int for int fields (already
// checked).
Value GetField(const KeySpec& key, const StageConfig& config);
void SetField(const KeySpec& key, const Value& value, StageConfig& config);

// Shortest text that reads back as the same number; whole numbers without a fraction. -0 is written 0.
std::string FormatNumber(double number);
std::string FormatValue(const Value& value);  // for messages and TOML: 32, 0.1, true, "text", [4, 2]

}  // namespace headsweep
