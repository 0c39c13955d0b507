// Collect: reads one stage file at a time, appends its rows to the tables of results.h5, and leaves what the grid needs of a
// trial in a file (GridBuilder). Nothing here grows with the number of stages but the list of problems.
#include "results/collect.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

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

constexpr std::size_t kBlockBytes = 1 << 18;

bool HasResult(const std::string& state) { return state == "finished" || state == "diverged"; }

// A table to which rows are added one by one; they are written a block at a time.
class BlockedTable {
 public:
  // rows: how many there will be, -1 = not known.
  BlockedTable(hid_t file, const TableInfo& info, const std::string& path, std::int64_t rows = -1)
      : writer_(file, info, hdf5::Storage::kCompressed, path, rows), block_(info.columns) {}

  template <class Row>
  void Add(const TableSchema<Row>& schema, const Row& row) {
    schema.AddCells(row, block_);
    EndRow();
  }
  RowBlock& block() { return block_; }  // for a row that is made of several parts; then EndRow
  void EndRow() {
    if (block_.bytes() >= kBlockBytes) Flush();
  }
  void Close() {
    Flush();
    writer_.Close();
  }

 private:
  void Flush() {
    if (block_.rows() == 0) return;
    writer_.Append(block_);
    block_.Clear();
  }

  hdf5::TableWriter writer_;
  RowBlock block_;
};

class Collector {
 public:
  Collector(const CollectSource& source, const std::string& path)
      : source_(source), path_(path), file_(hdf5::CreateFile(path)) {
    hdf5::WriteAttribute(file_.get(), "format", std::string("headsweep-results"), path_);
    hdf5::WriteAttribute(file_.get(), "schema_version", std::int64_t{kResultsSchemaVersion}, path_);
    MakeLongTable(ProvenanceSchema().Info(LeadingColumns()));
    ForEachTable([&](const auto& schema, auto) { MakeLongTable(schema.Info(LeadingColumns())); });
    LookAtAll();
  }

  CollectOutcome Run() {
    source_.for_each_stage([&](const CollectStage& stage) { ReadStage(stage); });
    EndTrial();
    for (auto& [name, table] : long_tables_) table.Close();
    for (auto* table : {&*points_, &*stages_, &*trials_}) table->Close();
    WriteGrid();
    WriteAxes();
    WriteAttempts();
    WriteTable(ProblemSchema(), problems_);
    SweepRow sweep{.name = source_.sweep_name, .toml = source_.sweep_toml, .partial = Partial()};
    WriteTable(SweepSchema(), std::vector<SweepRow>{sweep});
    hdf5::Check(H5Fflush(file_.get(), H5F_SCOPE_LOCAL), "flush", path_);
    file_.Close();
    return std::move(outcome_);
  }

 private:
  void MakeLongTable(const TableInfo& info) {
    long_tables_.emplace(info.name, BlockedTable(file_.get(), info, path_));
  }

  // The first time through: what the columns and the labels are, and how many rows there will be.
  void LookAtAll() {
    TrialColumns columns;
    std::int64_t trials = 0, points = 0;
    source_.for_each_stage([&](const CollectStage& stage) {
      ++outcome_.stages;
      labels_.Look(stage);
      columns.Look(stage);
      trials += stage.kind == "train";
      points += static_cast<std::int64_t>(stage.points.size());
    });
    columns_ = columns.Choose(StageSchema().Info());
    MakeGrid();
    points_.emplace(file_.get(), PointSchema().Info(), path_, points * static_cast<std::int64_t>(source_.axes.size()));
    stages_.emplace(file_.get(), StageSchema().Info(), path_, outcome_.stages);
    TableInfo info = StageSchema().Info();
    info.name = "trials";
    info.help = "one row a trial (a train stage): what became of it, its results, its resolved configuration";
    for (const TrialColumn& column : columns_) info.columns.push_back(column.column);
    trials_.emplace(file_.get(), info, path_, trials);
  }

  void AddProblem(const std::string& path, const std::string& reason) {
    LogWarning("{}: {}; its stage is missing from the results", path, reason);
    problems_.push_back({path, reason});
    outcome_.problems.push_back(fmt::format("{}: {}", path, reason));
  }

  static const std::string& TrialOf(const CollectStage& stage) {
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
    row.label = labels_.Of(stage);
    row.config_json = stage.config_json;
    if (row.outcome.empty()) ++(row.state == kEarlyStopped ? early_ : missing_);
    if (file) {
      ++outcome_.stages_read;
      AppendRows(stage, *file);
    }
    AddToGrid(stage, row, has_summary ? &file->tables.pruning : nullptr);
    stages_->Add(StageSchema(), row);
    if (stage.kind != "train") return;
    StageSchema().AddCells(row, trials_->block());
    for (const TrialColumn& column : columns_) column.AddCell(stage, trials_->block());
    trials_->EndRow();
    AddPoints(stage);
  }

  template <class Row>
  void AppendTo(const TableSchema<Row>& schema, const CollectStage& stage, const Row& row) {
    BlockedTable& table = long_tables_.at(schema.name);
    table.block().AddText(TrialOf(stage));
    table.block().AddText(stage.id);
    table.Add(schema, row);
  }

  void AppendRows(const CollectStage& stage, const StageFile& file) {
    AppendTo(ProvenanceSchema(), stage, file.provenance);
    ForEachTable([&](const auto& schema, auto member) {
      for (const auto& row : file.tables.*member) AppendTo(schema, stage, row);
    });
  }

  void AddPoints(const CollectStage& stage) {
    for (const std::vector<int>& indices : stage.points) {
      HEADSWEEP_CHECK(indices.size() == source_.axes.size(), "stage {} has a point of {} indices for {} axes", stage.id,
                      indices.size(), source_.axes.size());
      for (std::size_t a = 0; a < indices.size(); ++a)
        points_->Add(PointSchema(), PointRow{stage.id, next_point_, axis_names_[a], indices[a]});
      ++next_point_;
    }
  }

  template <class Row>
  void WriteTable(const TableSchema<Row>& schema, const std::vector<Row>& rows) {
    BlockedTable table(file_.get(), schema.Info(), path_, static_cast<std::int64_t>(rows.size()));
    for (const Row& row : rows) table.Add(schema, row);
    table.Close();
  }

  void WriteAttempts() {
    std::int64_t count = 0;
    source_.for_each_attempt([&](const AttemptRecord&) { ++count; });
    BlockedTable table(file_.get(), AttemptSchema().Info(), path_, count);
    source_.for_each_attempt([&](const AttemptRecord& attempt) { table.Add(AttemptSchema(), attempt); });
    table.Close();
  }

  void WriteAxes() {
    std::vector<AxisRow> rows;
    for (std::size_t a = 0; a < source_.axes.size(); ++a) {
      const GridAxis& axis = source_.axes[a];
      for (std::size_t i = 0; i < axis.values.size(); ++i) {
        rows.push_back({axis_names_[a], axis.key, static_cast<std::int64_t>(i),
                        FormatAxisValue(axis.values[i]), NumberOf(axis.values[i])});
      }
    }
    WriteTable(AxisSchema(), rows);
  }

  // --- The grid
  void MakeGrid() {
    std::vector<GridNumber> numbers;
    for (const Column& column : StageSchema().Info().columns) {
      const auto real = std::find_if(std::begin(kGridReals), std::end(kGridReals),
                                     [&](const auto& known) { return column.name == known.first; });
      if (real == std::end(kGridReals) && column.name != "parameters") continue;
      numbers.push_back({column.name, column.unit, column.help});
      grid_results_.push_back(static_cast<std::size_t>(real - std::begin(kGridReals)));
    }
    // The resolved configuration: of an axis of expressions ("embed / heads") the number it came to.
    for (const TrialColumn& column : columns_) {
      if (column.column.type == ColumnType::kText) continue;
      std::string name = column.column.name;
      const auto axis = std::find_if(source_.axes.begin(), source_.axes.end(),
                                     [&](const GridAxis& a) { return a.name == name; });
      if (axis != source_.axes.end()) {
        const bool is_text =
            std::any_of(axis->values.begin(), axis->values.end(),
                        [](const AxisValue& value) { return std::holds_alternative<std::string>(value); });
        if (!is_text) continue;  // the coordinate says it already
        name += "_resolved";
      }
      numbers.push_back({name, "1", "resolved configuration: " + column.source});
      grid_configuration_.push_back(column.source);
    }
    for (const GridAxis& axis : source_.axes) axis_names_.push_back(axis.name);
    try {
      grid_.emplace(source_.axes, numbers, path_);
      for (std::size_t a = 0; a < axis_names_.size(); ++a) axis_names_[a] = grid_->axes()[a].name;
    } catch (const Unsupported& error) {
      no_grid_ = error.what();
    }
  }

  // A trial is complete when the next one begins.
  void AddToGrid(const CollectStage& stage, const StageRow& row, const std::vector<PruningRow>* pruning) {
    if (stage.kind == "train") {
      EndTrial();
      trial_ = GridTrial{.id = stage.id, .state = stage.state, .points = stage.points, .numbers = {}, .pruning = {}};
      for (const std::size_t at : grid_results_) {
        const bool is_real = at < kGridReals.size();
        trial_->numbers.push_back(pruning == nullptr ? kNaN
                                  : is_real          ? row.*(kGridReals[at].second)
                                                     : static_cast<double>(row.parameters));
      }
      for (const std::string& source : grid_configuration_) {
        const auto value = stage.columns.find(source);
        trial_->numbers.push_back(value != stage.columns.end() ? NumberOf(value->second) : kNaN);
      }
    }
    if (pruning == nullptr || !trial_ || trial_->id != TrialOf(stage)) return;
    for (const PruningRow& point : *pruning) {
      trial_->pruning.push_back({row.label.empty() ? point.order : row.label, point.fraction,
                                 static_cast<double>(point.heads_left), point.nll, point.perplexity_per_word,
                                 point.loss_increase});
    }
  }

  void EndTrial() {
    if (trial_ && grid_) grid_->Add(*trial_);
    trial_.reset();
  }

  void WriteGrid() {
    try {
      if (!grid_) throw Unsupported(no_grid_);
      hdf5::WriteNetcdfGroup(file_.get(), "grid", grid_->Finish(), source_.sweep_name, path_);
    } catch (const Unsupported& error) {
      AddProblem("/grid", error.what());
    }
    grid_.reset();
  }

  std::string Partial() const {
    std::string text;
    if (missing_ > 0) text = fmt::format("{} of {} stages have no result", missing_, outcome_.stages);
    if (early_ > 0)
      text += fmt::format("{}{} of {} stages were stopped early, so what is left is no fair sample",
                          text.empty() ? "" : "; ", early_, outcome_.stages);
    if (!problems_.empty())
      text += fmt::format("{}{} problems, see /problems", text.empty() ? "" : "; ", problems_.size());
    return text;
  }

  const CollectSource& source_;
  const std::string path_;
  hdf5::Handle file_;
  OrderLabels labels_;
  std::vector<TrialColumn> columns_;
  std::map<std::string, BlockedTable> long_tables_;
  std::optional<BlockedTable> points_, stages_, trials_;
  std::vector<std::string> axis_names_;          // of the grid's dimensions
  std::vector<std::size_t> grid_results_;        // of the grid's first numbers: their place in kGridReals, or behind it
  std::vector<std::string> grid_configuration_;  // of the numbers after these: the key in CollectStage::columns
  std::optional<GridBuilder> grid_;
  std::string no_grid_;                          // why there is none
  std::optional<GridTrial> trial_;               // whose stages are being read
  std::int64_t next_point_ = 0, missing_ = 0, early_ = 0;
  std::vector<ProblemRow> problems_;
  CollectOutcome outcome_;
};

// The stages of a list, those of a trial together.
std::vector<const CollectStage*> ByTrial(const std::vector<CollectStage>& stages) {
  std::map<std::string, std::vector<const CollectStage*>> children;
  std::set<std::string> trials;
  for (const CollectStage& stage : stages) {
    if (stage.kind == "train") trials.insert(stage.id);
    if (stage.kind != "train") children[stage.parent].push_back(&stage);
  }
  std::vector<const CollectStage*> ordered;
  for (const CollectStage& stage : stages) {
    if (stage.kind != "train" && trials.contains(stage.parent)) continue;
    ordered.push_back(&stage);
    if (stage.kind != "train") continue;
    const std::vector<const CollectStage*>& own = children[stage.id];
    ordered.insert(ordered.end(), own.begin(), own.end());
  }
  return ordered;
}

}  // namespace

CollectOutcome Collect(const CollectSource& source, const std::string& results_path) {
  const std::string temporary = fmt::format("{}.tmp-{}", results_path, ::getpid());
  try {
    CollectOutcome outcome = Collector(source, temporary).Run();
    SealInPlace(FileSystem::Real(), temporary, results_path);
    return outcome;
  } catch (...) {
    ::unlink(temporary.c_str());  // derived data: nothing is lost, and no half file stays behind
    throw;
  }
}

CollectOutcome Collect(const CollectInput& input, const std::string& results_path) {
  const std::vector<const CollectStage*> stages = ByTrial(input.stages);
  const CollectSource source{
      .sweep_name = input.sweep_name,
      .sweep_toml = input.sweep_toml,
      .axes = input.axes,
      .for_each_stage = [&](const auto& visit) { for (const CollectStage* stage : stages) visit(*stage); },
      .for_each_attempt = [&](const auto& visit) { for (const AttemptRecord& attempt : input.attempts) visit(attempt); }};
  return Collect(source, results_path);
}

}  // namespace headsweep
