#include "results/stage_tables.h"

#include "cluster/base/errors.h"

namespace headsweep {

StageTableWriters::StageTableWriters(const hdf5::Handle& file, hdf5::Storage storage, const std::string& path,
                                     const StageTables* expected) {
  hdf5::WriteAttribute(file.get(), "format", std::string("headsweep-stage"), path);
  hdf5::WriteAttribute(file.get(), "schema_version", std::int64_t{kStageSchemaVersion}, path);
  const auto make = [&](const TableInfo& info, std::int64_t rows) {
    writers_.emplace(info.name, hdf5::TableWriter(file.get(), info, storage, path, rows));
  };
  make(ProvenanceSchema().Info(), 1);
  make(SummarySchema().Info(), 1);
  ForEachTable([&](const auto& schema, auto member) {
    make(schema.Info(), expected == nullptr ? -1 : static_cast<std::int64_t>((expected->*member).size()));
  });
}

template <class Row>
void StageTableWriters::AppendFrom(const TableSchema<Row>& schema, const std::vector<Row>& rows) {
  hdf5::TableWriter& writer = writers_.at(schema.name);
  const auto written = static_cast<std::size_t>(writer.rows());
  HEADSWEEP_CHECK(rows.size() >= written, "table {} shrank from {} to {} rows", schema.name, written,
                  rows.size());
  constexpr std::size_t kRowsAtOnce = 1 << 14;
  RowBlock block(schema.Info().columns);
  for (std::size_t i = written; i < rows.size(); ++i) {
    schema.AddCells(rows[i], block);
    if ((i + 1 - written) % kRowsAtOnce != 0 && i + 1 != rows.size()) continue;
    writer.Append(block);
    block.Clear();
  }
}

void StageTableWriters::AppendNew(const StageTables& tables) {
  ForEachTable([&](const auto& schema, auto member) { AppendFrom(schema, tables.*member); });
}

void StageTableWriters::Close() {
  for (auto& [name, writer] : writers_) writer.Close();
}

template void StageTableWriters::AppendFrom(const TableSchema<Provenance>&, const std::vector<Provenance>&);
template void StageTableWriters::AppendFrom(const TableSchema<StageSummary>&,
                                            const std::vector<StageSummary>&);

}  // namespace headsweep
