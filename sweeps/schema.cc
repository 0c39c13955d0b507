#include "sweeps/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cluster/base/errors.h"
#include "sweeps/document.h"

namespace headsweep {
namespace {

const std::vector<KeySpec>& Table() {
  static const std::vector<KeySpec> table = MakeKeyTable();
  return table;
}

std::string_view LastPart(std::string_view dotted) {
  const std::size_t dot = dotted.rfind('.');
  return dot == std::string_view::npos ? dotted : dotted.substr(dot + 1);
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours cost 1.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::span<const KeySpec> AllKeys() { return Table(); }

int FindKey(std::string_view dotted) {
  const auto& table = Table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].name == dotted) return static_cast<int>(i);
  }
  return -1;
}

int FindKeyByAnyName(std::string_view name, std::vector<std::string>* candidates) {
  if (const int exact = FindKey(name); exact >= 0) return exact;
  const auto& table = Table();
  std::vector<int> all, settable;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (LastPart(table[i].name) != name || table[i].use == KeyUse::kInternal) continue;
    all.push_back(static_cast<int>(i));
    if (table[i].may_be_axis()) settable.push_back(static_cast<int>(i));
  }
  if (all.size() == 1) return all.front();
  if (settable.size() == 1) return settable.front();
  if (candidates != nullptr) {
    for (const int i : all) candidates->push_back(Key(i).name);
  }
  return -1;
}

std::string ShortName(const KeySpec& key) { return std::string(LastPart(key.name)); }

std::string DescribeRange(const KeySpec& key) {
  if (!key.choices.empty()) return fmt::format("one of: {}", fmt::join(key.choices, ", "));
  if (key.type == KeyType::kBoolean) return "true or false";
  if (!key.is_numeric()) return "";
  const Range& range = key.range;
  const std::string low = fmt::format("{}{}", range.above_low ? "above " : "", FormatNumber(range.low));
  if (range.high >= 1e9) return range.above_low ? low : "at least " + low;
  return fmt::format("{} to {}{}", low, range.below_high ? "below " : "", FormatNumber(range.high));
}

std::string Nearest(std::string_view word, std::span<const std::string> known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    if (candidate.size() > word.size() + best_distance || word.size() > candidate.size() + best_distance)
      continue;
    const std::size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string> KeyNames() {
  std::vector<std::string> names;
  for (const KeySpec& key : Table()) {
    if (key.use != KeyUse::kInternal) names.push_back(key.name);
  }
  const std::size_t dotted = names.size();
  for (std::size_t i = 0; i < dotted; ++i) {
    const std::string last(LastPart(names[i]));
    if (FindKeyByAnyName(last) >= 0) names.push_back(last);
  }
  return names;
}

Value GetField(const KeySpec& key, const StageConfig& config) {
  const FieldPointer field = key.field(const_cast<StageConfig&>(config));  // only read below
  if (auto* const* p = std::get_if<int*>(&field)) return static_cast<std::int64_t>(**p);
  if (auto* const* p = std::get_if<std::uint64_t*>(&field)) return static_cast<std::int64_t>(**p);
  if (auto* const* p = std::get_if<double*>(&field)) return **p;
  if (auto* const* p = std::get_if<bool*>(&field)) return **p;
  if (auto* const* p = std::get_if<std::string*>(&field)) return **p;
  const std::vector<int>& heads = **std::get_if<std::vector<int>*>(&field);
  return std::vector<std::int64_t>(heads.begin(), heads.end());
}

void SetField(const KeySpec& key, const Value& value, StageConfig& config) {
  const FieldPointer field = key.field(config);
  if (auto* const* p = std::get_if<int*>(&field)) {
    **p = static_cast<int>(std::get<std::int64_t>(value));
  } else if (auto* const* u = std::get_if<std::uint64_t*>(&field)) {
    **u = static_cast<std::uint64_t>(std::get<std::int64_t>(value));
  } else if (auto* const* d = std::get_if<double*>(&field)) {
    **d = std::get<double>(value);
  } else if (auto* const* b = std::get_if<bool*>(&field)) {
    **b = std::get<bool>(value);
  } else if (auto* const* s = std::get_if<std::string*>(&field)) {
    **s = std::get<std::string>(value);
  } else {
    const auto& heads = std::get<std::vector<std::int64_t>>(value);
    auto& to = **std::get_if<std::vector<int>*>(&field);
    to.assign(heads.begin(), heads.end());
  }
}

std::string FormatNumber(double number) {
  number += 0.0;  // -0 becomes 0
  if (number == std::floor(number) && std::abs(number) < 1e15) {
    return fmt::format("{}", static_cast<std::int64_t>(number));
  }
  return fmt::format("{}", number);
}

std::string FormatValue(const Value& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&value)) return FormatNumber(*d);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* s = std::get_if<std::string>(&value)) return QuoteToml(*s);
  const auto& heads = std::get<std::vector<std::int64_t>>(value);
  if (!heads.empty() && std::all_of(heads.begin(), heads.end(), [&](auto h) { return h == heads.front(); })) {
    return fmt::format("{}", heads.front());
  }
  return fmt::format("[{}]", fmt::join(heads, ", "));
}

}  // namespace headsweep
