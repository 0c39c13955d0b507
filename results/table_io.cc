#include "results/table_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cluster/base/errors.h"

namespace headsweep::hdf5 {
namespace {

constexpr std::size_t kIdBytes = 16;
// Rows of one chunk: 1024 rows of ten columns are 80 KiB, which is read and deflated at once; a live table of
// a short stage stays small with 128.
constexpr hsize_t kLiveChunkRows = 128;
constexpr hsize_t kChunkRows = 1024;
// Shuffled numbers deflate well at the fastest level already.
constexpr unsigned kDeflateLevel = 1;

Handle CellType(ColumnType type, bool in_file) {
  switch (type) {
    case ColumnType::kInt:
      return Handle(H5Tcopy(in_file ? H5T_STD_I64LE : H5T_NATIVE_INT64), H5Tclose, "prepare", "a table");
    case ColumnType::kUnsigned:
      return Handle(H5Tcopy(in_file ? H5T_STD_U64LE : H5T_NATIVE_UINT64), H5Tclose, "prepare", "a table");
    case ColumnType::kReal:
      return Handle(H5Tcopy(in_file ? H5T_IEEE_F64LE : H5T_NATIVE_DOUBLE), H5Tclose, "prepare", "a table");
    case ColumnType::kText:
      return TextType();
    case ColumnType::kId:
      return FixedTextType(kIdBytes);
  }
  throw Unsupported("unknown column type");
}

// layout gives the offsets (in memory and in the file they are the same: both are packed 8-byte cells).
Handle RowType(const RowBlock& layout, bool in_file, const std::string& path) {
  Handle type(H5Tcreate(H5T_COMPOUND, layout.row_bytes()), H5Tclose, "prepare a table of", path);
  for (std::size_t c = 0; c < layout.columns().size(); ++c) {
    const Column& column = layout.columns()[c];
    const Handle cell = CellType(column.type, in_file);
    Check(H5Tinsert(type.get(), column.name.c_str(), layout.offset(static_cast<int>(c)), cell.get()),
          "prepare a table of", path);
  }
  return type;
}

ColumnType TypeOf(hid_t member, const std::string& path) {
  switch (H5Tget_class(member)) {
    case H5T_INTEGER:
      return H5Tget_sign(member) == H5T_SGN_NONE ? ColumnType::kUnsigned : ColumnType::kInt;
    case H5T_FLOAT:
      return ColumnType::kReal;
    case H5T_STRING:
      if (Check(H5Tis_variable_str(member), "read", path) > 0) return ColumnType::kText;
      if (H5Tget_size(member) == kIdBytes) return ColumnType::kId;
      [[fallthrough]];
    default:
      throw IoError("read", path, 0, "a column has a type that headsweep does not write");
  }
}

Handle OpenTable(hid_t location, const std::string& name, const std::string& path) {
  if (!HasTable(location, name, path)) throw IoError("read", path, 0, fmt::format("has no table {}", name));
  return Handle(H5Dopen2(location, name.c_str(), H5P_DEFAULT), H5Dclose, "open table " + name + " of", path);
}

bool HasMember(hid_t row_type, const std::string& column) {
  if (H5Tget_member_index(row_type, column.c_str()) >= 0) return true;
  H5Eclear2(H5E_DEFAULT);
  return false;
}

Handle MemberType(hid_t row_type, const std::string& column, const std::string& table,
                  const std::string& path) {
  const int index = H5Tget_member_index(row_type, column.c_str());
  if (index < 0) {
    H5Eclear2(H5E_DEFAULT);
    throw IoError("read", path, 0, fmt::format("table {} has no column {}", table, column));
  }
  return Handle(H5Tget_member_type(row_type, static_cast<unsigned>(index)), H5Tclose, "read", path);
}

// The number of rows, refused when it cannot be: a damaged file must not make us ask for terabytes.
std::int64_t RowCount(hid_t dataset, const TableInfo& info, const std::string& path) {
  Handle space(H5Dget_space(dataset), H5Sclose, "read", path);
  if (H5Sget_simple_extent_ndims(space.get()) != 1) {
    throw IoError("read", path, 0, fmt::format("{} is not a table", info.name));
  }
  hsize_t rows = 0;
  Check(H5Sget_simple_extent_dims(space.get(), &rows, nullptr), "read", path);
  const hsize_t stored = H5Dget_storage_size(dataset);
  // Deflate reaches at most about 1030 : 1.
  const hsize_t limit = 1100 * stored / sizeof(std::uint64_t) + 1;
  if (rows > limit) {
    throw IoError(
        "read", path, 0,
        fmt::format("table {} claims {} rows in {} stored bytes: damaged", info.name, rows, stored));
  }
  return static_cast<std::int64_t>(rows);
}

void WriteDescription(hid_t dataset, const TableInfo& info, const std::string& path) {
  std::vector<std::string> units, descriptions;
  for (const Column& column : info.columns) {
    units.push_back(column.unit);
    descriptions.push_back(column.help);
  }
  WriteAttribute(dataset, "description", info.help, path);
  WriteAttribute(dataset, "units", units, path);
  WriteAttribute(dataset, "descriptions", descriptions, path);
}

constexpr std::int64_t kRowsAtOnce = 1 << 16;

// HDF5's encoding of a datatype: equal for equal types, whatever file they are from.
std::string Encoded(hid_t type, const std::string& operation, const std::string& path) {
  std::size_t bytes = 0;
  Check(H5Tencode(type, nullptr, &bytes), operation, path);
  std::string encoded(bytes, '\0');
  Check(H5Tencode(type, encoded.data(), &bytes), operation, path);
  return encoded;
}

// How a table is read: checking a file's columns one by one takes longer than reading a few rows, and thousands of files of one
// format are read one after the other.
struct ReadingType {
  std::string in_file;  // encoded: the last type that was found to have the columns
  Handle in_memory;
};
ReadingType& ReadingTypeOf(const TableInfo& info) {
  static auto& known = *new std::map<std::string, ReadingType>;  // never destroyed: HDF5 may be closed by then
  std::string key = info.name;
  for (const Column& column : info.columns)
    key += fmt::format("\n{}{}", static_cast<int>(column.type), column.name);
  return known[key];
}

void CheckColumns(hid_t file_type, const TableInfo& info, const std::string& path) {
  if (H5Tget_class(file_type) != H5T_COMPOUND) throw IoError("read", path, 0, info.name + " is not a table");
  for (const Column& column : info.columns) {
    if (column.later && !HasMember(file_type, column.name)) continue;  // its cells stay 0: HDF5 leaves them alone
    const Handle member = MemberType(file_type, column.name, info.name, path);
    if (TypeOf(member.get(), path) == column.type) continue;
    throw IoError("read", path, 0, fmt::format("column {} of table {} has another type", column.name, info.name));
  }
}

// A table open for reading, its columns checked against what is expected.
class TableReader {
 public:
  TableReader(hid_t location, const TableInfo& info, const std::string& path)
      : path_(path),
        operation_("read table " + info.name + " of"),
        dataset_(OpenTable(location, info.name, path)),
        type_(ReadingTypeOf(info)) {
    const Handle file_type(H5Dget_type(dataset_.get()), H5Tclose, operation_, path);
    std::string encoded = Encoded(file_type.get(), operation_, path);
    if (encoded != type_.in_file) {
      CheckColumns(file_type.get(), info, path);
      type_.in_file = std::move(encoded);
    }
    if (!type_.in_memory) type_.in_memory = RowType(RowBlock(info.columns), /*in_file=*/false, path);
    rows_ = RowCount(dataset_.get(), info, path);
  }

  std::int64_t rows() const { return rows_; }

  // Appends rows [first, first + kRowsAtOnce) to block.
  void Read(std::int64_t first, RowBlock& block) const {
    const hsize_t start = static_cast<hsize_t>(first);
    const hsize_t count = static_cast<hsize_t>(std::min(kRowsAtOnce, rows_ - first));
    Handle file_space(H5Dget_space(dataset_.get()), H5Sclose, operation_, path_);
    Check(H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr), operation_,
          path_);
    Handle memory_space(H5Screate_simple(1, &count, nullptr), H5Sclose, operation_, path_);
    std::vector<std::uint64_t> cells(count * block.row_bytes() / sizeof(std::uint64_t));
    Check(H5Dread(dataset_.get(), type_.in_memory.get(), memory_space.get(), file_space.get(), H5P_DEFAULT,
                  cells.data()),
          operation_, path_);
    block.AdoptRows(cells);
    Check(H5Dvlen_reclaim(type_.in_memory.get(), memory_space.get(), H5P_DEFAULT, cells.data()), operation_,
          path_);
  }

 private:
  const std::string path_, operation_;
  Handle dataset_;
  ReadingType& type_;
  std::int64_t rows_ = 0;
};

}  // namespace

TableWriter::TableWriter(hid_t location, const TableInfo& info, Storage storage, const std::string& path,
                         std::int64_t expected_rows)
    : path_(path), operation_("write table " + info.name + " of") {
  const RowBlock layout(info.columns);
  file_type_ = RowType(layout, /*in_file=*/true, path);
  memory_type_ = RowType(layout, /*in_file=*/false, path);
  const hsize_t none = 0, unlimited = H5S_UNLIMITED;
  Handle space(H5Screate_simple(1, &none, &unlimited), H5Sclose, operation_, path);
  Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, operation_, path);
  hsize_t chunk = storage == Storage::kLive ? kLiveChunkRows : kChunkRows;
  if (expected_rows >= 0) chunk = std::clamp<hsize_t>(static_cast<hsize_t>(expected_rows), 1, chunk);
  Check(H5Pset_chunk(creation.get(), 1, &chunk), operation_, path);
  Check(H5Pset_obj_track_times(creation.get(), false), operation_, path);  // same content, same bytes
  // zlib takes a quarter of a megabyte for each chunk: too much for a few rows.
  const bool is_long = expected_rows < 0 || expected_rows >= static_cast<std::int64_t>(kLiveChunkRows);
  if (storage == Storage::kCompressed && is_long) {
    Check(H5Pset_shuffle(creation.get()), operation_, path);
    Check(H5Pset_deflate(creation.get(), kDeflateLevel), operation_, path);
  }
  dataset_ = Handle(H5Dcreate2(location, info.name.c_str(), file_type_.get(), space.get(), H5P_DEFAULT,
                               creation.get(), H5P_DEFAULT),
                    H5Dclose, operation_, path);
  WriteDescription(dataset_.get(), info, path);
}

void TableWriter::Append(const RowBlock& block) {
  HEADSWEEP_CHECK(block.complete(), "{} {}: a row is half written", operation_, path_);
  const hsize_t start = static_cast<hsize_t>(rows_), count = static_cast<hsize_t>(block.rows());
  if (count == 0) return;
  const hsize_t total = start + count;
  Check(H5Dset_extent(dataset_.get(), &total), operation_, path_);
  Handle file_space(H5Dget_space(dataset_.get()), H5Sclose, operation_, path_);
  Check(H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr), operation_,
        path_);
  Handle memory_space(H5Screate_simple(1, &count, nullptr), H5Sclose, operation_, path_);
  Check(H5Dwrite(dataset_.get(), memory_type_.get(), memory_space.get(), file_space.get(), H5P_DEFAULT,
                 block.data()),
        operation_, path_);
  rows_ = static_cast<std::int64_t>(total);
}

void TableWriter::Close() {
  dataset_.Close();
  file_type_.Close();
  memory_type_.Close();
}

bool HasTable(hid_t location, const std::string& name, const std::string& path) {
  return Check(H5Lexists(location, name.c_str(), H5P_DEFAULT), "read", path) > 0;
}

TableInfo DescribeTable(hid_t location, const std::string& name, const std::string& path) {
  const Handle dataset = OpenTable(location, name, path);
  const Handle type(H5Dget_type(dataset.get()), H5Tclose, "read", path);
  if (H5Tget_class(type.get()) != H5T_COMPOUND) throw IoError("read", path, 0, name + " is not a table");
  TableInfo info{.name = name, .help = ReadTextAttribute(dataset.get(), "description", path), .columns = {}};
  const int members = Check(H5Tget_nmembers(type.get()), "read", path);
  for (int i = 0; i < members; ++i) {
    char* member_name = H5Tget_member_name(type.get(), static_cast<unsigned>(i));
    if (member_name == nullptr) ThrowLastError("read", path);
    Column column{.name = member_name, .unit = "", .help = ""};
    H5free_memory(member_name);
    column.type = TypeOf(MemberType(type.get(), column.name, name, path).get(), path);
    info.columns.push_back(std::move(column));
  }
  return info;
}

void ForEachBlock(hid_t location, const TableInfo& info, const std::string& path,
                  const std::function<void(const RowBlock&)>& visit) {
  const TableReader reader(location, info, path);
  RowBlock block(info.columns);
  for (std::int64_t first = 0; first < reader.rows(); first += kRowsAtOnce) {
    reader.Read(first, block);
    visit(block);
    block.Clear();
  }
}

RowBlock ReadTable(hid_t location, const TableInfo& info, const std::string& path) {
  RowBlock block(info.columns);
  ReadTable(location, info, path, block);
  return block;
}

void ReadTable(hid_t location, const TableInfo& info, const std::string& path, RowBlock& block) {
  const TableReader reader(location, info, path);
  for (std::int64_t first = 0; first < reader.rows(); first += kRowsAtOnce) reader.Read(first, block);
}

}  // namespace headsweep::hdf5
