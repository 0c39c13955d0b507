// results/SCHEMA.md holds, for every table, the lines that the declarations in results/schema.cc give.
#include "results/schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cluster/base/file_system.h"

namespace headsweep {
namespace {

const char* TypeName(ColumnType type) {
  switch (type) {
    case ColumnType::kInt:
      return "int64";
    case ColumnType::kUnsigned:
      return "uint64";
    case ColumnType::kReal:
      return "float64";
    case ColumnType::kText:
      return "text";
    case ColumnType::kId:
      return "id";
  }
  return "?";
}

std::vector<TableInfo> AllTables() {
  std::vector<TableInfo> tables = {ProvenanceSchema().Info(), SummarySchema().Info()};
  ForEachTable([&](const auto& schema, auto) { tables.push_back(schema.Info()); });
  for (const TableInfo& info : {SweepSchema().Info(), AxisSchema().Info(), PointSchema().Info(),
                                StageSchema().Info(), AttemptSchema().Info(), ProblemSchema().Info()}) {
    tables.push_back(info);
  }
  return tables;
}

std::string Markdown(const TableInfo& table) {
  std::string text = fmt::format("### `/{}`\n\n{}\n\n| column | type | unit | meaning |\n|---|---|---|---|\n",
                                 table.name, table.help);
  for (const Column& column : table.columns) {
    std::string help = column.help;
    for (std::size_t at = 0; (at = help.find('|', at)) != std::string::npos; at += 2) help.insert(at, "\\");
    text += fmt::format("| `{}`{} | {} | {} | {} |\n", column.name, column.timing ? " (t)" : "",
                        TypeName(column.type), column.unit, help);
  }
  return text;
}

TEST(Schema, IsDocumentedWordForWord) {
  const std::string document = FileSystem::Real().ReadFile(HEADSWEEP_SOURCE_DIR "/results/SCHEMA.md");
  for (const TableInfo& table : AllTables()) {
    EXPECT_NE(document.find(Markdown(table)), std::string::npos)
        << "results/SCHEMA.md lacks, or has another text than:\n\n"
        << Markdown(table);
  }
}

TEST(Schema, NamesAreUniqueAndEveryNumberHasAUnit) {
  std::set<std::string> tables;
  for (const TableInfo& table : AllTables()) {
    EXPECT_TRUE(tables.insert(table.name).second) << table.name;
    EXPECT_NE(table.help, "");
    std::set<std::string> columns = {"trial", "stage"};
    if (table.columns[0].name == "stage" || table.name == "points")
      columns.clear();  // not collected with leading columns
    for (const Column& column : table.columns) {
      EXPECT_TRUE(columns.insert(column.name).second) << table.name << "." << column.name;
      EXPECT_EQ(column.unit.empty(), column.type == ColumnType::kText) << table.name << "." << column.name;
      EXPECT_NE(column.help, "") << table.name << "." << column.name;
    }
  }
}

}  // namespace
}  // namespace headsweep
