// Reading results.h5: what report and summary work from. Small tables are read at once; long ones row by row.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "results/collect.h"
#include "results/schema.h"

namespace headsweep {

struct TrialRow : StageRow {
  std::map<std::string, AxisValue> columns;  // resolved configuration
  std::vector<std::vector<int>> points;      // indices into ResultsFile::axes
};

class ResultsFile {
 public:
  // Throws IoError when the file is not headsweep's results, or of another schema version.
  explicit ResultsFile(const std::string& path);
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  SweepRow sweep;
  std::vector<GridAxis> axes;
  std::vector<TrialRow> trials;
  std::vector<StageRow> stages;  // trials included
  std::vector<AttemptRecord> attempts;
  std::vector<ProblemRow> problems;

  // Calls visit(trial, stage, row) for each row of a long table.
  template <class Row>
  using Visit = std::function<void(const std::string& trial, const std::string& stage, const Row& row)>;
  template <class Row>
  void ForEachRow(const TableSchema<Row>& schema,
                  const Visit<Row>& visit) const;  // for the rows of StageTables, Provenance

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headsweep
