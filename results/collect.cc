// Collect: reads one stage file at a time (memory does not grow with their number), appends its rows to
// results.h5's long tables, and keeps of each trial only what the grid needs.
#include "results/collect.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "cluster/base/log.h"
#include "results/grid.h"
#include "results/netcdf.h"
#include "results/order_labels.h"
#include "results/schema.h"
#include "results/stage_file.h"
#include "results/table_io.h"
#include "results/trial_columns.h"

namespace headsweep {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Results that the grid shows, as columns of /stages.
const std::vector<std::pair<const char*, double StageRow::*>> kGridReals = {
    {"valid_nll", &StageRow::valid_nll},
    {"valid_perplexity_per_word", &StageRow::valid_perplexity},
    {"test_nll", &StageRow::test_nll},
    {"test_perplexity_per_word", &StageRow::test_perplexity},
    {"flops_per_step", &StageRow::flops_per_step},
    {"train_seconds", &StageRow::train_seconds},
};

// Its file is the one of an attempt that did not end: rows, but no summary.
const char* const kEarlyStopped = "early-stopped";

constexpr std::size_t kRowsAtOnce = 1 << 14;

bool HasResult(const std::string& state) { return state == "finished" || state == "diverged"; }

class Collector {
 public:
  Collector(const CollectInput& input, const std::string& path)
      : input_(input),
        path_(path),
        file_(hdf5::CreateFile(path)),
        labels_(OrderLabels(input.stages)),
        columns_(ChooseTrialColumns(input.stages, StageSchema().Info())) {
    hdf5::WriteAttribute(file_.get(), "format", std::string("headsweep-results"), path_);
    hdf5::WriteAttribute(file_.get(), "schema_version", std::int64_t{kResultsSchemaVersion}, path_);
    MakeLongTable(ProvenanceSchema().Info(LeadingColumns()));
    ForEachTable([&](const auto& schema, auto) { MakeLongTable(schema.Info(LeadingColumns())); });
  }

  CollectOutcome Run() {
    for (const CollectStage& stage : input_.stages) ReadStage(stage);
    for (auto& [name, writer] : long_tables_) writer.Close();
    WriteGrid();
    WriteAxes();
    WritePoints();
    WriteStages();
    WriteTable(AttemptSchema(), input_.attempts);
    WriteTable(ProblemSchema(), problems_);
    SweepRow sweep{.name = input_.sweep_name, .toml = input_.sweep_toml, .partial = Partial()};
    WriteTable(SweepSchema(), std::vector<SweepRow>{sweep});
    hdf5::Check(H5Fflush(file_.get(), H5F_SCOPE_LOCAL), "flush", path_);
    file_.Close();
    return std::move(outcome_);
  }

 private:
  void MakeLongTable(const TableInfo& info) {
    long_tables_.emplace(info.name, hdf5::TableWriter(file_.get(), info, hdf5::Storage::kCompressed, path_));
  }

  void AddProblem(const std::string& path, const std::string& reason) {
    LogWarning("{}: {}; its stage is missing from the results", path, reason);
    problems_.push_back({path, reason});
    outcome_.problems.push_back(fmt::format("{}: {}", path, reason));
  }

  static std::string TrialOf(const CollectStage& stage) {
    return stage.kind == "train" ? stage.id : stage.parent;
  }

  // The stage's file, or nothing: a problem is noted.
  std::optional<StageFile> TryRead(const CollectStage& stage) {
    if (stage.result_path.empty()) {
      if (HasResult(stage.state)) AddProblem("stage " + stage.id, "has no result file");
      return std::nullopt;
    }
    try {
      StageFile file = ReadStageFile(stage.result_path);
      if (file.provenance.stage_id != stage.id) {
        AddProblem(stage.result_path,
                   fmt::format("holds results of stage {}, not {}", file.provenance.stage_id, stage.id));
      } else if (file.summary.outcome.empty() && stage.state != kEarlyStopped) {
        AddProblem(stage.result_path, "was left by an attempt that did not end");
      } else {
        return file;
      }
    } catch (const IoError& error) {
      // "read <path>: reason": the path is said once.
      std::string reason = error.what();
      const auto at = reason.find(stage.result_path + ": ");
      if (at != std::string::npos) reason = reason.substr(at + stage.result_path.size() + 2);
      AddProblem(stage.result_path, reason);
    }
    return std::nullopt;
  }

  void ReadStage(const CollectStage& stage) {
    StageRow row;
    row.outcome = "";
    row.valid_nll = row.valid_perplexity = row.test_nll = row.test_perplexity = kNaN;
    row.flops_per_step = row.train_seconds = kNaN;
    const std::size_t problems_before = problems_.size();
    const std::optional<StageFile> file = TryRead(stage);
    const bool has_summary = file && !file->summary.outcome.empty();
    if (has_summary) static_cast<StageSummary&>(row) = file->summary;
    row.stage = stage.id;
    row.kind = stage.kind;
    row.parent = stage.parent;
    row.state = stage.state;
    row.reason = stage.reason;
    if (problems_.size() > problems_before && row.reason.empty())
      row.reason = "result " + problems_.back().reason;
    if (const auto label = labels_.find(stage.id); label != labels_.end()) row.label = label->second;
    if (file) {
      ++outcome_.stages_read;
      AppendRows(stage, *file);
      if (has_summary) KeepForGrid(stage, row, *file);
    }
    rows_.push_back(std::move(row));
  }

  template <class Row>
  void AppendTo(const TableSchema<Row>& schema, const CollectStage& stage, const std::vector<Row>& rows) {
    hdf5::TableWriter& writer = long_tables_.at(schema.name);
    RowBlock block(schema.Info(LeadingColumns()).columns);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      block.AddText(TrialOf(stage));
      block.AddText(stage.id);
      schema.AddCells(rows[i], block);
      if ((i + 1) % kRowsAtOnce != 0 && i + 1 != rows.size()) continue;
      writer.Append(block);
      block.Clear();
    }
  }

  void AppendRows(const CollectStage& stage, const StageFile& file) {
    AppendTo(ProvenanceSchema(), stage, std::vector<Provenance>{file.provenance});
    ForEachTable([&](const auto& schema, auto member) { AppendTo(schema, stage, file.tables.*member); });
  }

  void KeepForGrid(const CollectStage& stage, const StageRow& row, const StageFile& file) {
    ForGrid& trial = for_grid_[TrialOf(stage)];
    if (stage.kind == "train") {
      trial.results.clear();
      for (const auto& [name, member] : kGridReals) trial.results.push_back(row.*member);
      trial.results.push_back(static_cast<double>(row.parameters));
    }
    for (const PruningRow& point : file.tables.pruning) {
      trial.pruning.push_back({row.label.empty() ? point.order : row.label, point.fraction,
                               static_cast<double>(point.heads_left), point.nll, point.perplexity_per_word,
                               point.loss_increase});
    }
  }

  template <class Row>
  void WriteTable(const TableSchema<Row>& schema, const std::vector<Row>& rows) {
    hdf5::TableWriter writer(file_.get(), schema.Info(), hdf5::Storage::kCompressed, path_,
                             static_cast<std::int64_t>(rows.size()));
    RowBlock block(schema.Info().columns);
    for (const Row& row : rows) schema.AddCells(row, block);
    writer.Append(block);
    writer.Close();
  }

  void WriteAxes() {
    std::vector<AxisRow> rows;
    for (std::size_t a = 0; a < input_.axes.size(); ++a) {
      const GridAxis& axis = input_.axes[a];
      for (std::size_t i = 0; i < axis.values.size(); ++i) {
        rows.push_back({axis_names_[a], axis.key, static_cast<std::int64_t>(i),
                        FormatAxisValue(axis.values[i]), NumberOf(axis.values[i])});
      }
    }
    WriteTable(AxisSchema(), rows);
  }

  void WritePoints() {
    std::vector<PointRow> rows;
    std::int64_t point = 0;
    for (const CollectStage& stage : input_.stages) {
      for (const std::vector<int>& indices : stage.points) {
        HEADSWEEP_CHECK(indices.size() == input_.axes.size(),
                        "stage {} has a point of {} indices for {} axes", stage.id, indices.size(),
                        input_.axes.size());
        for (std::size_t a = 0; a < indices.size(); ++a) {
          rows.push_back({stage.id, point, axis_names_[a], indices[a]});
        }
        ++point;
      }
    }
    WriteTable(PointSchema(), rows);
  }

  // /stages: all of them. /trials: the train stages with the resolved configuration.
  void WriteStages() {
    const auto all = static_cast<std::int64_t>(rows_.size());
    WriteStageRows(StageSchema().Info(), {}, all, [](const StageRow&) { return true; });
    TableInfo info = StageSchema().Info();
    info.name = "trials";
    info.help = "one row a trial (a train stage): what became of it, its results, its resolved configuration";
    for (const TrialColumn& column : columns_) info.columns.push_back(column.column);
    WriteStageRows(info, columns_, -1, [](const StageRow& row) { return row.kind == "train"; });
  }

  // Block by block: what a block holds as text is several times the rows.
  template <class Wanted>
  void WriteStageRows(const TableInfo& info, const std::vector<TrialColumn>& columns, std::int64_t expected, Wanted wanted) {
    hdf5::TableWriter writer(file_.get(), info, hdf5::Storage::kCompressed, path_, expected);
    RowBlock block(info.columns);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (!wanted(rows_[i])) continue;
      StageRow row = rows_[i];
      row.config_json = input_.stages[i].config_json;
      StageSchema().AddCells(row, block);
      for (const TrialColumn& column : columns) column.AddCell(input_.stages[i], block);
      if (block.rows() < static_cast<std::int64_t>(kRowsAtOnce)) continue;
      writer.Append(block);
      block.Clear();
    }
    if (block.rows() > 0) writer.Append(block);
    writer.Close();
  }

  void WriteGrid() {
    std::vector<GridNumber> numbers;
    std::vector<std::size_t> results;  // of the first numbers: their place in ForGrid::results
    for (const Column& column : StageSchema().Info().columns) {
      const auto real = std::find_if(std::begin(kGridReals), std::end(kGridReals),
                                     [&](const auto& known) { return column.name == known.first; });
      if (real == std::end(kGridReals) && column.name != "parameters") continue;
      numbers.push_back({column.name, column.unit, column.help});
      results.push_back(static_cast<std::size_t>(real - std::begin(kGridReals)));
    }
    // The resolved configuration: of an axis of expressions ("embed / heads") the number it came to.
    std::vector<std::string> configuration;  // of the numbers after these: the column
    for (const TrialColumn& column : columns_) {
      if (column.column.type == ColumnType::kText) continue;
      std::string name = column.column.name;
      const auto axis = std::find_if(input_.axes.begin(), input_.axes.end(),
                                     [&](const GridAxis& a) { return a.name == name; });
      if (axis != input_.axes.end()) {
        const bool is_text =
            std::any_of(axis->values.begin(), axis->values.end(),
                        [](const AxisValue& value) { return std::holds_alternative<std::string>(value); });
        if (!is_text) continue;  // the coordinate says it already
        name += "_resolved";
      }
      numbers.push_back({name, "1", "resolved configuration: " + column.source});
      configuration.push_back(column.source);
    }
    std::vector<GridTrial> trials;
    for (const CollectStage& stage : input_.stages) {
      if (stage.kind != "train") continue;
      ForGrid kept = std::move(for_grid_[stage.id]);
      GridTrial trial{.id = stage.id, .state = stage.state, .points = stage.points, .numbers = {}, .pruning = {}};
      trial.pruning = std::move(kept.pruning);
      trial.numbers.reserve(numbers.size());
      for (const std::size_t at : results) trial.numbers.push_back(kept.results.empty() ? kNaN : kept.results[at]);
      for (const std::string& source : configuration) {
        const auto value = stage.columns.find(source);
        trial.numbers.push_back(value != stage.columns.end() ? NumberOf(value->second) : kNaN);
      }
      trials.push_back(std::move(trial));
    }
    for (const GridAxis& axis : input_.axes) axis_names_.push_back(axis.name);
    try {
      const Grid grid = BuildGrid(input_.axes, numbers, trials);
      for (std::size_t a = 0; a < input_.axes.size(); ++a) axis_names_[a] = grid.dimensions[a].name;
      hdf5::WriteNetcdfGroup(file_.get(), "grid", grid, input_.sweep_name, path_);
    } catch (const Unsupported& error) {
      AddProblem("/grid", error.what());
    }
  }

  std::string Partial() const {
    std::size_t missing = 0, early = 0;
    for (const StageRow& row : rows_) (row.state == kEarlyStopped ? early : missing) += row.outcome.empty();
    std::string text;
    if (missing > 0) text = fmt::format("{} of {} stages have no result", missing, rows_.size());
    if (early > 0)
      text += fmt::format("{}{} of {} stages were stopped early, so what is left is no fair sample",
                          text.empty() ? "" : "; ", early, rows_.size());
    if (!problems_.empty())
      text += fmt::format("{}{} problems, see /problems", text.empty() ? "" : "; ", problems_.size());
    return text;
  }

  const CollectInput& input_;
  const std::string path_;
  hdf5::Handle file_;
  const std::map<std::string, std::string> labels_;
  const std::vector<TrialColumn> columns_;
  std::map<std::string, hdf5::TableWriter> long_tables_;
  std::vector<std::string> axis_names_;  // of the grid's dimensions
  std::vector<StageRow> rows_;           // as input_.stages, without their config_json
  struct ForGrid {
    std::vector<double> results;  // those of kGridReals, then the parameters; empty: none
    std::vector<GridPruningPoint> pruning;
  };
  std::map<std::string, ForGrid> for_grid_;  // by trial
  std::vector<ProblemRow> problems_;
  CollectOutcome outcome_;
};

}  // namespace

CollectOutcome Collect(const CollectInput& input, const std::string& results_path) {
  const std::string temporary = fmt::format("{}.tmp-{}", results_path, ::getpid());
  try {
    CollectOutcome outcome = Collector(input, temporary).Run();
    SealInPlace(FileSystem::Real(), temporary, results_path);
    return outcome;
  } catch (...) {
    ::unlink(temporary.c_str());  // derived data: nothing is lost, and no half file stays behind
    throw;
  }
}

}  // namespace headsweep
