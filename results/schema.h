// Every table and column that headsweep writes to HDF5, declared once: name, unit, type, meaning, whether it
// is a timing, and the member of the C++ struct that it is read from and written to. Writers, readers,
// digests and the check of SCHEMA.md all go through these declarations; nothing else knows a column's name on
// disk.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "results/collect.h"
#include "results/rows.h"
#include "results/stage_file.h"
#include "results/tables.h"

namespace headsweep {

// Changes whenever a stage file or results.h5 of before can no longer be read. DO NOT reuse a number: they
// are on disk.
inline constexpr int kStageSchemaVersion = 1;
inline constexpr int kResultsSchemaVersion = 1;

template <class Row>
struct Field {
  using Member =
      std::variant<int Row::*, std::int64_t Row::*, std::uint64_t Row::*, double Row::*, std::string Row::*>;
  Column column;
  Member member;
};

template <class Row>
struct TableSchema {
  std::string name;
  std::string help;
  std::vector<Field<Row>> fields;

  // leading: columns before those of Row (collected tables: which stage a row is from).
  TableInfo Info(const std::vector<Column>& leading = {}) const {
    TableInfo info{name, help, leading};
    for (const Field<Row>& field : fields) info.columns.push_back(field.column);
    return info;
  }
  void AddCells(const Row& row, RowBlock& block) const;
  // first_column: how many leading columns block has.
  Row RowAt(const RowBlock& block, std::int64_t index, int first_column = 0) const;
};

// --- Tables of a stage file, in the order of the file ---
const TableSchema<Provenance>& ProvenanceSchema();  // one row
const TableSchema<StageSummary>&
SummarySchema();  // one row; none in the live file of an attempt that has not ended
const TableSchema<StepRow>& StepSchema();
const TableSchema<EvaluationRow>& EvaluationSchema();
const TableSchema<ImportanceRow>& ImportanceSchema();
const TableSchema<PruningRow>& PruningSchema();
const TableSchema<AblationRow>& AblationSchema();
const TableSchema<RemovalRow>& RemovalSchema();

// Calls visit(schema, member of StageTables) for each long table, in the order above.
template <class Visit>
void ForEachTable(Visit visit) {
  visit(StepSchema(), &StageTables::steps);
  visit(EvaluationSchema(), &StageTables::evaluations);
  visit(ImportanceSchema(), &StageTables::importance);
  visit(PruningSchema(), &StageTables::pruning);
  visit(AblationSchema(), &StageTables::ablation);
  visit(RemovalSchema(), &StageTables::removal);
}

// --- Tables of results.h5 ---
struct SweepRow {
  std::string name, toml;
  std::string partial;  // "" or why the results are not complete
};
struct AxisRow {  // one value of one axis
  std::string axis, key;
  std::int64_t position = 0;
  std::string label;  // as written
  double number = 0;  // NaN for a text
};
struct PointRow {  // where a trial lies in the grid: one row an axis; a merged duplicate has several points
  std::string trial;
  std::int64_t point = 0;
  std::string axis;
  std::int64_t position = 0;
};
struct StageRow : StageSummary {  // every stage; /trials: train stages, with the resolved configuration after
                                  // these columns
  std::string stage, kind, parent, state, reason;
  std::string label;  // of a prune stage: its order, with the settings in which it differs from others of the
                      // same order
  std::string config_json;
};
struct ProblemRow {
  std::string path, reason;
};

const TableSchema<SweepRow>& SweepSchema();
const TableSchema<AxisRow>& AxisSchema();
const TableSchema<PointRow>& PointSchema();
const TableSchema<ProblemRow>& ProblemSchema();
const TableSchema<AttemptRecord>& AttemptSchema();
const TableSchema<StageRow>& StageSchema();

// What leads every row of a collected long table: "trial" (the train stage, also for rows measured by its
// prune stages) and "stage" (who measured it).
std::vector<Column> LeadingColumns();

// --- Implementation ---
template <class Row>
void TableSchema<Row>::AddCells(const Row& row, RowBlock& block) const {
  struct Add {
    const Row& row;
    RowBlock& block;
    void operator()(int Row::*m) const { block.AddInt(row.*m); }
    void operator()(std::int64_t Row::*m) const { block.AddInt(row.*m); }
    void operator()(std::uint64_t Row::*m) const { block.AddUnsigned(row.*m); }
    void operator()(double Row::*m) const { block.AddReal(row.*m); }
    void operator()(std::string Row::*m) const { block.AddText(row.*m); }
  };
  for (const Field<Row>& field : fields) std::visit(Add{row, block}, field.member);
}

template <class Row>
Row TableSchema<Row>::RowAt(const RowBlock& block, std::int64_t index, int first_column) const {
  struct Get {
    Row& row;
    const RowBlock& block;
    std::int64_t index;
    int column;
    void operator()(int Row::*m) const { row.*m = static_cast<int>(block.Int(index, column)); }
    void operator()(std::int64_t Row::*m) const { row.*m = block.Int(index, column); }
    void operator()(std::uint64_t Row::*m) const { row.*m = block.Unsigned(index, column); }
    void operator()(double Row::*m) const { row.*m = block.Real(index, column); }
    void operator()(std::string Row::*m) const { row.*m = block.Text(index, column); }
  };
  Row row;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::visit(Get{row, block, index, first_column + static_cast<int>(i)}, fields[i].member);
  }
  return row;
}

}  // namespace headsweep
