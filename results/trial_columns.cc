#include "results/trial_columns.h"

#include <limits>
#include <set>

#include "results/grid.h"

namespace headsweep {
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

void TrialColumns::Look(const CollectStage& stage) {
  if (stage.kind != "train") return;
  ++trials_;
  for (const auto& [key, value] : stage.columns) {
    Seen& seen = seen_[key];
    ++seen.trials;
    seen.text |= std::holds_alternative<std::string>(value);
    seen.real |= std::holds_alternative<double>(value);
  }
}

std::vector<TrialColumn> TrialColumns::Choose(const TableInfo& fixed) const {
  std::set<std::string> taken;
  for (const Column& column : fixed.columns) taken.insert(column.name);
  std::vector<TrialColumn> columns;
  for (const auto& [key, seen] : seen_) {
    std::string name = ValidUtf8(key);
    while (!taken.insert(name).second) name = "config_" + name;
    const bool integers = !seen.real && seen.trials == trials_;
    const ColumnType type = seen.text ? ColumnType::kText : integers ? ColumnType::kInt : ColumnType::kReal;
    columns.push_back({key, Column{name, type, "", "resolved configuration: " + key}});
  }
  return columns;
}

}  // namespace headsweep
