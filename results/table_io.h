// Tables in HDF5: one-dimensional compound datasets, one column a member. Only for the .cc files of results/.
// Attributes of a table: "description", and in the order of the columns "units" and "descriptions" (arrays of
// text).
#pragma once

#include <functional>
#include <string>

#include "results/hdf5_handle.h"
#include "results/rows.h"

namespace headsweep::hdf5 {

enum class Storage {
  kLive,        // small chunks, not compressed: rows are appended and flushed while a process may be killed
  kCompressed,  // shuffled and deflated
};

// A table open for appending. The dataset exists, empty, when the constructor returns.
class TableWriter {
 public:
  // expected_rows: how many there will be, -1 = not known. Chunks are no larger: HDF5 fills a whole one even
  // for a single row.
  TableWriter(hid_t location, const TableInfo& info, Storage storage, const std::string& path,
              std::int64_t expected_rows = -1);
  // Adds all (complete) rows of block, whose columns must be the table's.
  void Append(const RowBlock& block);
  std::int64_t rows() const { return rows_; }
  void Close();

 private:
  std::string path_;
  std::string operation_;  // "write table steps of"
  Handle file_type_, memory_type_, dataset_;
  std::int64_t rows_ = 0;
};

bool HasTable(hid_t location, const std::string& name, const std::string& path);

// All rows with exactly the columns of info, which must all be there with their types; other columns are
// ignored.
RowBlock ReadTable(hid_t location, const TableInfo& info, const std::string& path);
// The same, appended to block, which has the columns of info. For many files of one format: it keeps its memory.
void ReadTable(hid_t location, const TableInfo& info, const std::string& path, RowBlock& block);

// The same, a block of some ten thousand rows at a time, so that memory does not grow with the table.
void ForEachBlock(hid_t location, const TableInfo& info, const std::string& path,
                  const std::function<void(const RowBlock&)>& visit);

// The columns as they are in the file (for tables with columns that depend on the sweep).
TableInfo DescribeTable(hid_t location, const std::string& name, const std::string& path);

}  // namespace headsweep::hdf5
