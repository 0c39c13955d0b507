#include "results/results_file.h"

#include <cmath>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "results/table_io.h"

namespace headsweep {

struct ResultsFile::Impl {
  std::string path;
  hdf5::Handle file;

  template <class Row>
  std::vector<Row> ReadRows(const TableSchema<Row>& schema) const {
    const RowBlock block = hdf5::ReadTable(file.get(), schema.Info(), path);
    std::vector<Row> rows;
    for (std::int64_t i = 0; i < block.rows(); ++i) rows.push_back(schema.RowAt(block, i));
    return rows;
  }

  std::vector<GridAxis> ReadAxes() const {
    std::vector<GridAxis> axes;
    for (const AxisRow& row : ReadRows(AxisSchema())) {
      if (axes.empty() || axes.back().name != row.axis) axes.push_back({row.axis, row.key, {}});
      axes.back().values.push_back(std::isnan(row.number) ? AxisValue(row.label) : AxisValue(row.number));
    }
    return axes;
  }

  std::vector<TrialRow> ReadTrials() const {
    TableInfo info = hdf5::DescribeTable(file.get(), "trials", path);
    const RowBlock block = hdf5::ReadTable(file.get(), info, path);
    const TableSchema<StageRow>& fixed = StageSchema();
    std::vector<TrialRow> trials;
    for (std::int64_t i = 0; i < block.rows(); ++i) {
      TrialRow trial;
      static_cast<StageRow&>(trial) = fixed.RowAt(block, i);
      for (std::size_t c = fixed.fields.size(); c < info.columns.size(); ++c) {
        const Column& column = info.columns[c];
        const int index = static_cast<int>(c);
        if (column.type == ColumnType::kInt) trial.columns[column.name] = block.Int(i, index);
        if (column.type == ColumnType::kReal) trial.columns[column.name] = block.Real(i, index);
        if (column.type == ColumnType::kText) trial.columns[column.name] = block.Text(i, index);
      }
      trials.push_back(std::move(trial));
    }
    return trials;
  }
};

ResultsFile::ResultsFile(const std::string& path) : impl_(std::make_unique<Impl>()) {
  if (!FileSystem::Real().Exists(path)) {
    throw IoError("open", path, ENOENT, "`headsweep collect` writes it from the results of the trials");
  }
  impl_->path = path;
  impl_->file = hdf5::OpenFile(path);
  const hid_t root = impl_->file.get();
  if (H5Aexists(root, "format") <= 0 ||
      hdf5::ReadTextAttribute(root, "format", path) != "headsweep-results") {
    throw IoError("read", path, 0, "is an HDF5 file, but not the results of a sweep");
  }
  const std::int64_t version = hdf5::ReadIntAttribute(root, "schema_version", path);
  if (version != kResultsSchemaVersion) {
    throw IoError(
        "read", path, 0,
        fmt::format("has schema version {}, this headsweep reads version {}; `headsweep collect` rebuilds it",
                    version, kResultsSchemaVersion));
  }
  const std::vector<SweepRow> sweeps = impl_->ReadRows(SweepSchema());
  if (sweeps.size() != 1) throw IoError("read", path, 0, "does not say which sweep it is of");
  sweep = sweeps.front();
  axes = impl_->ReadAxes();
  trials = impl_->ReadTrials();
  stages = impl_->ReadRows(StageSchema());
  attempts = impl_->ReadRows(AttemptSchema());
  problems = impl_->ReadRows(ProblemSchema());
  std::map<std::string, TrialRow*> by_id;
  for (TrialRow& trial : trials) by_id[trial.stage] = &trial;
  std::map<std::pair<std::string, std::int64_t>, std::size_t> index_of;  // (trial, point) -> index in points
  for (const PointRow& row : impl_->ReadRows(PointSchema())) {
    const auto trial = by_id.find(row.trial);
    if (trial == by_id.end()) throw IoError("read", path, 0, "a point belongs to no trial: " + row.trial);
    auto& points = trial->second->points;
    const auto [place, is_new] = index_of.try_emplace({row.trial, row.point}, points.size());
    if (is_new) points.emplace_back();
    points[place->second].push_back(static_cast<int>(row.position));
  }
  for (TrialRow& trial : trials) {
    if (axes.empty()) trial.points = {{}};  // /points has no row for a point without indices
    for (const std::vector<int>& point : trial.points) {
      bool inside = point.size() == axes.size();
      for (std::size_t a = 0; inside && a < point.size(); ++a) {
        inside = point[a] >= 0 && static_cast<std::size_t>(point[a]) < axes[a].values.size();
      }
      if (!inside)
        throw IoError("read", path, 0, fmt::format("a point of trial {} lies outside the grid", trial.stage));
    }
  }
}

ResultsFile::~ResultsFile() = default;

template <class Row>
void ResultsFile::ForEachRow(const TableSchema<Row>& schema, const Visit<Row>& visit) const {
  const std::vector<Column> leading = LeadingColumns();
  hdf5::ForEachBlock(impl_->file.get(), schema.Info(leading), impl_->path, [&](const RowBlock& block) {
    for (std::int64_t i = 0; i < block.rows(); ++i) {
      visit(block.Text(i, 0), block.Text(i, 1), schema.RowAt(block, i, static_cast<int>(leading.size())));
    }
  });
}

template void ResultsFile::ForEachRow(const TableSchema<StepRow>&, const Visit<StepRow>&) const;
template void ResultsFile::ForEachRow(const TableSchema<EvaluationRow>&, const Visit<EvaluationRow>&) const;
template void ResultsFile::ForEachRow(const TableSchema<ImportanceRow>&, const Visit<ImportanceRow>&) const;
template void ResultsFile::ForEachRow(const TableSchema<PruningRow>&, const Visit<PruningRow>&) const;
template void ResultsFile::ForEachRow(const TableSchema<AblationRow>&, const Visit<AblationRow>&) const;
template void ResultsFile::ForEachRow(const TableSchema<RemovalRow>&, const Visit<RemovalRow>&) const;
template void ResultsFile::ForEachRow(const TableSchema<Provenance>&, const Visit<Provenance>&) const;

}  // namespace headsweep
