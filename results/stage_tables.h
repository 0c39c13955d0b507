// The tables of one stage file, open for appending: what WriteStageFile and LiveMetrics share. Only for
// results/.
#pragma once

#include <map>
#include <string>

#include "results/schema.h"
#include "results/table_io.h"

namespace headsweep {

class StageTableWriters {
 public:
  // Makes every dataset, empty. file must outlive the writers. expected: the tables as they will be in the
  // end, if known.
  StageTableWriters(const hdf5::Handle& file, hdf5::Storage storage, const std::string& path,
                    const StageTables* expected = nullptr);

  void WriteProvenance(const Provenance& provenance) { AppendFrom(ProvenanceSchema(), {provenance}); }
  void WriteSummary(const StageSummary& summary) { AppendFrom(SummarySchema(), {summary}); }
  // Appends the rows beyond those already written. tables must begin with the rows of before (their number is
  // checked).
  void AppendNew(const StageTables& tables);
  void Close();

 private:
  template <class Row>
  void AppendFrom(const TableSchema<Row>& schema, const std::vector<Row>& rows);

  std::map<std::string, hdf5::TableWriter> writers_;  // by table name
};

}  // namespace headsweep
