// Column, TableInfo and RowBlock: rows of one table in memory, in the layout in which HDF5 reads and writes
// them. No HDF5 type in sight, so report and statistics can use it too. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace headsweep {

enum class ColumnType {
  kInt,       // 64-bit signed
  kUnsigned,  // 64-bit unsigned
  kReal,      // IEEE double
  kText,      // variable-length UTF-8
  kId,        // at most 16 bytes, fixed length: identifiers that lead every row of a long table
};

// Replaces what is not UTF-8, and NUL, by U+FFFD: HDF5 texts end at a NUL, and readers of other languages
// reject the rest.
std::string ValidUtf8(std::string_view text);

struct Column {
  std::string name;
  ColumnType type = ColumnType::kReal;
  std::string unit;  // "" = a name or a label, "1" = a pure number
  std::string help;
  bool timing = false;  // differs from run to run: not part of digests
  bool later = false;   // files of before it was there are read too: as 0 or ""
};

struct TableInfo {
  std::string name;
  std::string help;
  std::vector<Column> columns;
};

class RowBlock {
 public:
  explicit RowBlock(std::vector<Column> columns);
  RowBlock(RowBlock&&) = default;
  RowBlock& operator=(RowBlock&&) = default;
  RowBlock(const RowBlock&) = delete;  // cells point into texts_
  RowBlock& operator=(const RowBlock&) = delete;

  // Writing: cells are added left to right, row after row. The type must be the column's (checked).
  void AddInt(std::int64_t value);
  void AddUnsigned(std::uint64_t value);
  void AddReal(double value);
  void AddText(std::string_view value);  // kText, or kId (throws ConfigError if longer than 16 bytes)
  void Clear();                          // keeps memory

  std::int64_t rows() const {
    return static_cast<std::int64_t>(cells_.size() / row_cells_);
  }                                                    // complete rows
  bool complete() const { return next_column_ == 0; }  // no half-written row
  std::size_t bytes() const { return cells_.size() * sizeof(std::uint64_t) + text_bytes_; }  // of cells and texts
  const std::vector<Column>& columns() const { return columns_; }
  int FindColumn(std::string_view name) const;  // -1 if absent

  // Reading.
  std::int64_t Int(std::int64_t row, int column) const;
  std::uint64_t Unsigned(std::int64_t row, int column) const;
  double Real(std::int64_t row, int column) const;
  std::string Text(std::int64_t row, int column) const;

  // HDF5's view: row-major, row_bytes() a row, column c at offset(c). Texts are pointers, owned by this block
  // (when reading, AdoptRows copies HDF5's).
  std::size_t row_bytes() const { return row_cells_ * sizeof(std::uint64_t); }
  std::size_t offset(int column) const {
    return offsets_[static_cast<std::size_t>(column)] * sizeof(std::uint64_t);
  }
  const void* data() const { return cells_.data(); }
  void AdoptRows(const std::vector<std::uint64_t>& cells);

 private:
  void Expect(ColumnType type);
  void Push(std::uint64_t cell) { cells_.push_back(cell); }
  std::uint64_t Intern(std::string text);
  std::uint64_t Cell(std::int64_t row, int column, ColumnType type) const;

  std::vector<Column> columns_;
  std::vector<std::size_t> offsets_;  // in cells
  std::size_t row_cells_ = 0;
  int next_column_ = 0;
  std::vector<std::uint64_t> cells_;
  std::unordered_set<std::string> texts_;  // each text once; nodes do not move
  std::size_t text_bytes_ = 0;
};

}  // namespace headsweep
