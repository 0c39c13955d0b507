#include "results/stage_format.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "results/schema.h"

namespace headsweep {
namespace {

// On disk: DO NOT CHANGE.
constexpr std::string_view kMagic = "headsweep stage file\n";
constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";

[[noreturn]] void Refuse(const std::string& path, const std::string& why) {
  throw IoError("read", path, 0, why);
}

// The text after "<key> " on a line of its own.
std::optional<std::string_view> Value(std::string_view header, std::string_view key) {
  const std::string start = fmt::format("\n{} ", key);
  const auto at = header.find(start);
  if (at == std::string_view::npos) return std::nullopt;
  header.remove_prefix(at + start.size());
  const auto end = header.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  return header.substr(0, end);
}

std::optional<std::uint64_t> Number(std::string_view header, std::string_view key, int base) {
  const auto text = Value(header, key);
  std::uint64_t number = 0;
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number, base);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return number;
}

}  // namespace

std::string FormatStageHeader(const StageHeader& header) {
  std::string text = fmt::format("{}schema {}\n", kMagic, header.schema);
  if (header.state == StageFileState::kLive) {
    text += "state live\n";
  } else {
    text += fmt::format("state complete\nbytes {}\nxxh3 {:016x}\n", header.bytes, header.checksum);
  }
  text.resize(kStageHeaderBytes, '\0');
  return text;
}

StageHeader CheckStageBytes(std::string_view file_bytes, const std::string& path) {
  if (file_bytes.empty()) Refuse(path, "is empty (0 bytes)");
  if (file_bytes.starts_with(kHdf5Signature))
    Refuse(path, "is an HDF5 file, but not a stage file of headsweep");
  if (!file_bytes.starts_with(kMagic)) {
    Refuse(path, kMagic.starts_with(file_bytes) ? fmt::format("is truncated ({} bytes)", file_bytes.size())
                                                : "is not a stage file of headsweep");
  }
  if (file_bytes.size() < kStageHeaderBytes)
    Refuse(path, fmt::format("is truncated ({} bytes)", file_bytes.size()));
  const std::string_view text = file_bytes.substr(0, kStageHeaderBytes);
  const std::string_view body = file_bytes.substr(kStageHeaderBytes);
  const auto schema = Number(text, "schema", 10);
  if (!schema) Refuse(path, "its header is damaged");
  StageHeader header{.schema = static_cast<int>(*schema)};
  if (header.schema != kStageSchemaVersion) {
    Refuse(path, fmt::format("has schema version {}, this headsweep reads version {}", *schema,
                             kStageSchemaVersion));
  }
  const auto state = Value(text, "state");
  if (state == "live") {
    if (text != FormatStageHeader(header)) Refuse(path, "its header is damaged");
    return header;
  }
  const auto bytes = Number(text, "bytes", 10), checksum = Number(text, "xxh3", 16);
  if (state != "complete" || !bytes || !checksum) Refuse(path, "its header is damaged");
  header = {
      .schema = header.schema, .state = StageFileState::kComplete, .bytes = *bytes, .checksum = *checksum};
  if (text != FormatStageHeader(header)) Refuse(path, "its header is damaged");
  if (body.size() < *bytes) {
    Refuse(path, fmt::format("is truncated ({} of {} bytes)", file_bytes.size(), *bytes + kStageHeaderBytes));
  }
  if (body.size() > *bytes || Checksum(body) != *checksum) Refuse(path, "is damaged (wrong checksum)");
  return header;
}

}  // namespace headsweep
