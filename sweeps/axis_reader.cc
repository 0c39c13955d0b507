#include "sweeps/axis_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace headsweep {
namespace {

constexpr std::int64_t kMostSeeds = 1'000'000;

// The first key whose values are all written differently, or -1.
int LabelKey(const SweepAxis& axis) {
  for (std::size_t i = 0; i < axis.keys.size(); ++i) {
    std::set<std::string> labels;
    for (const auto& row : axis.rows) labels.insert(Label(row[i]));
    if (labels.size() == axis.rows.size()) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

bool IsSection(const std::string& name) {
  return name == "task" || name == "model" || name == "train" || name == "run" || name == "early_stopping";
}

std::optional<std::int64_t> ReadCount(const RawValue& raw, const char* what, Complaints& complaints) {
  std::optional<std::int64_t> count;
  if (const auto* integer = std::get_if<std::int64_t>(&raw.data)) count = *integer;
  if (const auto* number = std::get_if<double>(&raw.data);
      number != nullptr && *number >= 1 && *number <= kMostSeeds &&
      *number == static_cast<double>(static_cast<std::int64_t>(*number))) {
    count = static_cast<std::int64_t>(*number);
  }
  if (!count || *count < 1 || *count > kMostSeeds) {
    complaints.Add(raw.at, fmt::format("{} must be a whole number from 1 to {}", what, kMostSeeds));
    return std::nullopt;
  }
  return count;
}

template <class Use>
void AxisReader::ForEachKey(const RawTable& table, const std::string& where, Use use,
                            const std::string& prefix) {
  for (const RawEntry& entry : table) {
    const std::string name = prefix.empty() ? entry.key : prefix + "." + entry.key;
    const auto* inner = std::get_if<RawTable>(&entry.value.data);
    if (prefix.empty() && inner != nullptr && (IsSection(name) || name == "prune")) {
      ForEachKey(*inner, where, use, name);
      continue;
    }
    std::vector<std::string> candidates;
    const int key = FindKeyByAnyName(name, &candidates);
    if (key < 0 && candidates.size() > 1) {
      complaints_.Add(entry.at, fmt::format("\"{}\" may mean {}: write the whole name", name,
                                            fmt::join(candidates, " or ")));
    } else if (key < 0 || Key(key).use == KeyUse::kInternal) {
      ComplainUnknownKey(entry.at, name, known_names_, complaints_);
    } else if (Key(key).use == KeyUse::kPruning) {
      complaints_.Add(
          entry.at,
          fmt::format("{} cannot be in {}: pruning is a stage after training; write it under [prune]",
                      Key(key).name, where));
    } else if (Key(key).use == KeyUse::kExecution) {
      complaints_.Add(
          entry.at,
          fmt::format("{} cannot be in {}: it does not change the result, so all its trials would be "
                      "the same",
                      Key(key).name, where));
    } else {
      use(key, entry);
    }
  }
}

// The values of an axis: a list, or one value. nullopt where not even their number is known.
std::optional<std::vector<Setting>> AxisReader::ReadValues(int key, const RawEntry& entry) {
  const KeySpec& spec = Key(key);
  if (spec.name == "seed" && std::holds_alternative<RawTable>(entry.value.data)) return ReadSeeds(entry);
  std::vector<Setting> values;
  if (const auto* items = std::get_if<RawArray>(&entry.value.data)) {
    if (items->empty()) {
      complaints_.Add(entry.value.at, fmt::format("the axis {} is empty", spec.name));
      return std::nullopt;
    }
    for (const RawValue& item : *items) values.push_back(ReadSetting(spec, item, complaints_));
  } else {
    values.push_back(ReadSetting(spec, entry.value, complaints_));
  }
  return values;
}

// { count = 3 }: the sweep's seed and those after it; { values = [3, 5] }.
std::optional<std::vector<Setting>> AxisReader::ReadSeeds(const RawEntry& entry) {
  const auto& table = std::get<RawTable>(entry.value.data);
  const KeySpec& seed = Key(FindKey("seed"));
  if (table.size() == 1 && table[0].key == "values") {
    RawEntry values = table[0];
    if (std::holds_alternative<RawTable>(values.value.data)) values.value.data = RawDate{};
    return ReadValues(FindKey("seed"), values);
  }
  if (table.size() != 1 || table[0].key != "count") {
    complaints_.Add(entry.value.at, "seed takes a number, a list, { count = 3 } or { values = [1, 2, 3] }");
    return std::nullopt;
  }
  const std::optional<std::int64_t> count = ReadCount(table[0].value, "seed.count", complaints_);
  const Value* first = data_.base[static_cast<std::size_t>(FindKey("seed"))]->literal();
  if (!count || first == nullptr) return std::nullopt;
  std::vector<Setting> values;
  for (std::int64_t i = 0; i < *count; ++i) {
    const Value value = std::get<std::int64_t>(*first) + i;
    if (std::string problem = RangeProblem(seed, value); !problem.empty()) {
      complaints_.Add(entry.value.at, problem);
      return std::nullopt;
    }
    values.push_back({table[0].value.at, value});
  }
  return values;
}

// The key as an axis; false: it is one already.
bool AxisReader::Claim(int key, Position at) {
  const auto [found, is_new] = claimed_.try_emplace(key, at);
  if (is_new) return true;
  complaints_.Add(at, fmt::format("{} is an axis already, at line {}, column {}", Key(key).name,
                                  found->second.line, found->second.column));
  return false;
}

void AxisReader::ReadGrid(const RawTable& table) {
  ForEachKey(table, "[grid]", [&](int key, const RawEntry& entry) {
    std::optional<std::vector<Setting>> values = ReadValues(key, entry);
    if (!Claim(key, entry.at) || !values) return;
    SweepAxis axis{"", entry.at, {key}, {}};
    for (Setting& value : *values) AddRow({std::move(value)}, axis);
    data_.axes.push_back(std::move(axis));
  });
}

void AxisReader::ReadZip(const RawTable& table, Position at) {
  SweepAxis axis{"", at, {}, {}};
  std::vector<std::vector<Setting>> columns;
  bool good = true;
  ForEachKey(table, "[[zip]]", [&](int key, const RawEntry& entry) {
    std::optional<std::vector<Setting>> values;
    if (std::holds_alternative<RawArray>(entry.value.data) ||
        std::holds_alternative<RawTable>(entry.value.data)) {
      values = ReadValues(key, entry);
    } else {
      complaints_.Add(entry.value.at, fmt::format("{} in [[zip]] must be a list of values, not {}",
                                                  Key(key).name, TypeName(entry.value)));
    }
    if (!Claim(key, entry.at) || !values) {
      good = false;
      return;
    }
    if (!columns.empty() && values->size() != columns.front().size()) {
      complaints_.Add(
          entry.at,
          fmt::format("the axes of a [[zip]] move together: {} has {} values, but {} has {}", Key(key).name,
                      values->size(), Key(axis.keys.front()).name, columns.front().size()));
      good = false;
      return;
    }
    axis.keys.push_back(key);
    columns.push_back(std::move(*values));
  });
  if (table.empty()) complaints_.Add(at, "[[zip]] is empty");
  if (columns.empty() || !good) return;
  for (std::size_t row = 0; row < columns.front().size(); ++row) {
    std::vector<Setting> settings;
    for (auto& column : columns) settings.push_back(std::move(column[row]));
    AddRow(std::move(settings), axis);
  }
  data_.axes.push_back(std::move(axis));
}

void AxisReader::ReadInclude(const RawTable& table, Position at) {
  IncludeBlock block;
  block.at = at;
  std::set<int> seen;
  if (table.empty()) complaints_.Add(at, "[[include]] is empty");
  ForEachKey(table, "[[include]]", [&](int key, const RawEntry& entry) {
    std::optional<std::vector<Setting>> values = ReadValues(key, entry);
    if (!seen.insert(key).second) {
      complaints_.Add(entry.at, fmt::format("{} is in this [[include]] already", Key(key).name));
      return;
    }
    if (!values) return;
    SweepAxis axis{"", entry.at, {key}, {}};
    for (Setting& value : *values) AddRow({std::move(value)}, axis);
    block.axes.push_back(std::move(axis));
  });
  if (!block.axes.empty()) data_.includes.push_back(std::move(block));
}

// Appends a row unless the axis has one that is written the same: labels of a dimension are unique.
void AxisReader::AddRow(std::vector<Setting> row, SweepAxis& axis) {
  std::string label;
  bool wrong = false;
  for (std::size_t i = 0; i < row.size(); ++i) {
    label += fmt::format("{}{} = {}", label.empty() ? "" : ", ", Key(axis.keys[i]).name, Label(row[i]));
    wrong = wrong || std::holds_alternative<std::monostate>(row[i].value);
  }
  if (!wrong && !rows_seen_[axis.at].insert(label).second) {
    data_.Warn(row.front().at, fmt::format("{} is on this axis already", label));
    return;
  }
  axis.rows.push_back(std::move(row));
}

// An axis is called after its key; a [[zip]] after its first key whose values are all different, else after
// all of them.
void AxisReader::NameAxes() {
  std::set<std::string> taken;
  for (SweepAxis& axis : data_.axes) {
    axis.label_key = LabelKey(axis);
    axis.name = ShortName(Key(axis.keys[static_cast<std::size_t>(std::max(0, axis.label_key))]));
    if (!taken.insert(axis.name).second) {
      axis.name = Key(axis.keys.front()).name;
      std::replace(axis.name.begin(), axis.name.end(), '.', '_');
      taken.insert(axis.name);
    }
  }
}

}  // namespace headsweep
