#include "results/trial_columns.h"

#include <algorithm>
#include <limits>
#include <set>

#include "results/grid.h"

namespace headsweep {
namespace {

ColumnType TypeFor(const std::vector<CollectStage>& stages, const std::string& key) {
  bool integers = true;
  for (const CollectStage& stage : stages) {
    if (stage.kind != "train") continue;
    const auto value = stage.columns.find(key);
    if (value == stage.columns.end()) {
      integers = false;
      continue;
    }
    if (std::holds_alternative<std::string>(value->second)) return ColumnType::kText;
    integers = integers && std::holds_alternative<std::int64_t>(value->second);
  }
  return integers ? ColumnType::kInt : ColumnType::kReal;
}

}  // namespace

void TrialColumn::AddCell(const CollectStage& stage, RowBlock& block) const {
  const auto found = stage.columns.find(source);
  const bool has = found != stage.columns.end();
  switch (column.type) {
    case ColumnType::kInt:
      return block.AddInt(std::get<std::int64_t>(found->second));
    case ColumnType::kReal:
      return block.AddReal(has ? NumberOf(found->second) : std::numeric_limits<double>::quiet_NaN());
    default:
      return block.AddText(has ? FormatAxisValue(found->second) : "");
  }
}

std::vector<TrialColumn> ChooseTrialColumns(const std::vector<CollectStage>& stages, const TableInfo& fixed) {
  std::set<std::string> keys, taken;
  for (const CollectStage& stage : stages) {
    if (stage.kind != "train") continue;
    for (const auto& [key, value] : stage.columns) keys.insert(key);
  }
  for (const Column& column : fixed.columns) taken.insert(column.name);
  std::vector<TrialColumn> columns;
  for (const std::string& key : keys) {
    std::string name = ValidUtf8(key);
    while (!taken.insert(name).second) name = "config_" + name;
    columns.push_back({key, Column{name, TypeFor(stages, key), "", "resolved configuration: " + key}});
  }
  return columns;
}

}  // namespace headsweep
