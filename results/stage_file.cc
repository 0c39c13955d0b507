#include "results/stage_file.h"

#include <utility>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "cluster/base/hash.h"
#include "results/schema.h"
#include "results/stage_format.h"
#include "results/stage_tables.h"
#include "results/table_io.h"

namespace headsweep {
namespace {

template <class Row>
std::vector<Row> ReadRows(const hdf5::Handle& file, const TableSchema<Row>& schema, const std::string& path) {
  static const TableInfo info = schema.Info();  // there is one schema for each type of row in a stage file
  static RowBlock block(info.columns);
  block.Clear();
  hdf5::ReadTable(file.get(), info, path, block);
  std::vector<Row> rows;
  rows.reserve(static_cast<std::size_t>(block.rows()));
  for (std::int64_t i = 0; i < block.rows(); ++i) rows.push_back(schema.RowAt(block, i));
  block.Clear();
  return rows;
}

}  // namespace

void WriteStageFile(const std::string& path, const Provenance& provenance, const StageTables& tables,
                    const StageSummary& summary) {
  // Built in memory and written by one checked call: a full disk is then an errno of write(), where HDF5 1.10
  // would report it late, or not at all.
  hdf5::Handle file = hdf5::CreateInMemory(path);
  {
    StageTableWriters writers(file, hdf5::Storage::kCompressed, path, &tables);
    writers.WriteProvenance(provenance);
    writers.AppendNew(tables);
    writers.WriteSummary(summary);
    writers.Close();
  }
  std::string bytes(kStageHeaderBytes, '\0');
  bytes += hdf5::Image(file, path);
  file.Close();
  const std::string_view body = std::string_view(bytes).substr(kStageHeaderBytes);
  bytes.replace(0, kStageHeaderBytes,
                FormatStageHeader({.schema = kStageSchemaVersion,
                                   .state = StageFileState::kComplete,
                                   .bytes = body.size(),
                                   .checksum = Checksum(body)}));
  FileSystem::Real().WriteFile(path, bytes);
}

StageFile ReadStageFile(const std::string& path) {
  const std::string bytes = FileSystem::Real().ReadFile(path);
  CheckStageBytes(bytes, path);
  const hdf5::Handle file = hdf5::OpenImage(bytes, path);
  StageFile stage;
  std::vector<Provenance> provenance = ReadRows(file, ProvenanceSchema(), path);
  if (provenance.size() != 1) throw IoError("read", path, 0, "has no provenance");
  stage.provenance = std::move(provenance.front());
  std::vector<StageSummary> summary = ReadRows(file, SummarySchema(), path);
  if (summary.empty()) {
    stage.summary.outcome = "";  // a live file: its stage has not ended
  } else {
    stage.summary = std::move(summary.front());
  }
  ForEachTable([&](const auto& schema, auto member) { stage.tables.*member = ReadRows(file, schema, path); });
  return stage;
}

}  // namespace headsweep
