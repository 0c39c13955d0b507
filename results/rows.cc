#include "results/rows.h"

#include <bit>
#include <cstring>
#include <utility>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

constexpr std::size_t kIdCells = 2;
constexpr std::size_t kIdBytes = kIdCells * sizeof(std::uint64_t);
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the well-formed UTF-8 sequence at the start of text, 0 if there is none (RFC 3629: no surrogates,
// no overlong forms, nothing above U+10FFFF; and no NUL).
std::size_t SequenceLength(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first == 0) return 0;
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

}  // namespace

std::string ValidUtf8(std::string_view text) {
  std::size_t good = 0;
  while (good < text.size()) {
    const std::size_t length = SequenceLength(text.substr(good));
    if (length == 0) break;
    good += length;
  }
  std::string valid(text.substr(0, good));
  text.remove_prefix(good);
  while (!text.empty()) {
    const std::size_t length = SequenceLength(text);
    valid += length == 0 ? kReplacement : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return valid;
}

RowBlock::RowBlock(std::vector<Column> columns) : columns_(std::move(columns)) {
  HEADSWEEP_CHECK(!columns_.empty(), "a table needs a column");
  for (const Column& column : columns_) {
    offsets_.push_back(row_cells_);
    row_cells_ += column.type == ColumnType::kId ? kIdCells : 1;
  }
}

void RowBlock::Expect(ColumnType type) {
  const Column& column = columns_[static_cast<std::size_t>(next_column_)];
  HEADSWEEP_CHECK(column.type == type, "column {} is of another type", column.name);
  next_column_ = (next_column_ + 1) % static_cast<int>(columns_.size());
}

void RowBlock::AddInt(std::int64_t value) {
  Expect(ColumnType::kInt);
  Push(std::bit_cast<std::uint64_t>(value));
}

void RowBlock::AddUnsigned(std::uint64_t value) {
  Expect(ColumnType::kUnsigned);
  Push(value);
}

void RowBlock::AddReal(double value) {
  Expect(ColumnType::kReal);
  Push(std::bit_cast<std::uint64_t>(value));
}

void RowBlock::AddText(std::string_view value) {
  const Column& column = columns_[static_cast<std::size_t>(next_column_)];
  std::string valid = ValidUtf8(value);
  if (column.type != ColumnType::kId) {
    Expect(ColumnType::kText);
    Push(Intern(std::move(valid)));
    return;
  }
  if (valid.size() > kIdBytes) {
    throw ConfigError(
        fmt::format("identifier \"{}\" in column {} is longer than {} bytes", valid, column.name, kIdBytes));
  }
  Expect(ColumnType::kId);
  std::uint64_t cells[kIdCells] = {};
  std::memcpy(cells, valid.data(), valid.size());
  for (const std::uint64_t cell : cells) Push(cell);
}

void RowBlock::Clear() {
  HEADSWEEP_CHECK(complete(), "a row is half written");
  cells_.clear();
  texts_.clear();
  text_bytes_ = 0;
}

std::uint64_t RowBlock::Intern(std::string text) {
  const auto [place, is_new] = texts_.insert(std::move(text));
  if (is_new) text_bytes_ += place->size();
  return reinterpret_cast<std::uintptr_t>(place->c_str());
}

int RowBlock::FindColumn(std::string_view name) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::uint64_t RowBlock::Cell(std::int64_t row, int column, ColumnType type) const {
  HEADSWEEP_CHECK(row >= 0 && row < rows() && column >= 0 && column < static_cast<int>(columns_.size()),
                  "cell ({}, {}) of a block of {} rows", row, column, rows());
  const auto c = static_cast<std::size_t>(column);
  HEADSWEEP_CHECK(columns_[c].type == type, "column {} is of another type", columns_[c].name);
  return cells_[static_cast<std::size_t>(row) * row_cells_ + offsets_[c]];
}

std::int64_t RowBlock::Int(std::int64_t row, int column) const {
  return std::bit_cast<std::int64_t>(Cell(row, column, ColumnType::kInt));
}

std::uint64_t RowBlock::Unsigned(std::int64_t row, int column) const {
  return Cell(row, column, ColumnType::kUnsigned);
}

double RowBlock::Real(std::int64_t row, int column) const {
  return std::bit_cast<double>(Cell(row, column, ColumnType::kReal));
}

std::string RowBlock::Text(std::int64_t row, int column) const {
  HEADSWEEP_CHECK(column >= 0 && column < static_cast<int>(columns_.size()), "no column {}", column);
  if (columns_[static_cast<std::size_t>(column)].type == ColumnType::kText) {
    return reinterpret_cast<const char*>(static_cast<std::uintptr_t>(Cell(row, column, ColumnType::kText)));
  }
  Cell(row, column, ColumnType::kId);  // checks
  char bytes[kIdBytes + 1] = {};
  std::memcpy(
      bytes, &cells_[static_cast<std::size_t>(row) * row_cells_ + offsets_[static_cast<std::size_t>(column)]],
      kIdBytes);
  return bytes;
}

void RowBlock::AdoptRows(const std::vector<std::uint64_t>& cells) {
  HEADSWEEP_CHECK(complete() && cells.size() % row_cells_ == 0, "not whole rows");
  const std::size_t start = cells_.size();
  cells_.insert(cells_.end(), cells.begin(), cells.end());
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].type != ColumnType::kText) continue;
    for (std::size_t i = start + offsets_[c]; i < cells_.size(); i += row_cells_) {
      const auto* text = reinterpret_cast<const char*>(static_cast<std::uintptr_t>(cells_[i]));
      cells_[i] = Intern(text == nullptr ? std::string() : std::string(text));  // HDF5 gives NULL for ""
    }
  }
}

}  // namespace headsweep
