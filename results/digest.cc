// TablesDigest: the canonical bytes are, for each long table in schema order, its name and number of rows,
// then row after row every column that is not a timing: integers and doubles as 8 bytes, little-endian
// (doubles bit by bit: -0 and 0 differ), texts as their length and bytes; at the end the weights' checksum.
#include <bit>
#include <type_traits>

#include "cluster/base/hash.h"
#include "results/schema.h"

namespace headsweep {
namespace {

void AddWord(std::string& bytes, std::uint64_t word) {
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(word >> shift & 0xFF);
}

void AddText(std::string& bytes, const std::string& text) {
  AddWord(bytes, text.size());
  bytes += text;
}

template <class Row>
void AddRow(std::string& bytes, const TableSchema<Row>& schema, const Row& row) {
  for (const Field<Row>& field : schema.fields) {
    if (field.column.timing) continue;
    std::visit(
        [&](auto member) {
          using Value = std::remove_cvref_t<decltype(row.*member)>;
          if constexpr (std::is_same_v<Value, std::string>) {
            AddText(bytes, row.*member);
          } else if constexpr (std::is_same_v<Value, double>) {
            AddWord(bytes, std::bit_cast<std::uint64_t>(row.*member));
          } else {
            AddWord(bytes, static_cast<std::uint64_t>(static_cast<std::int64_t>(row.*member)));
          }
        },
        field.member);
  }
}

}  // namespace

std::string TablesDigest(const StageTables& tables, std::uint64_t weights_checksum) {
  std::string bytes;
  ForEachTable([&](const auto& schema, auto member) {
    AddText(bytes, schema.name);
    AddWord(bytes, (tables.*member).size());
    for (const auto& row : tables.*member) AddRow(bytes, schema, row);
  });
  AddWord(bytes, weights_checksum);
  return HashHex(bytes);
}

}  // namespace headsweep
