#include "launcher/journal_format.h"

#include <nlohmann/json.hpp>

#include <cstdlib>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "cluster/base/json.h"

namespace headsweep {
namespace {

constexpr std::size_t kChecksumDigits = 16;

}  // namespace

std::string journal::Field(const JournalEvent& event, const char* name) {
  const auto it = event.fields.find(name);
  return it == event.fields.end() ? "" : it->second;
}

std::int64_t journal::NumberField(const JournalEvent& event, const char* name) {
  return std::strtoll(Field(event, name).c_str(), nullptr, 10);
}

std::string FormatJournalLine(const JournalEvent& event) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, text] : event.fields) json[name] = text;
  for (const char* reserved : {"type", "time", "stage", "attempt"}) {
    HEADSWEEP_CHECK(!json.contains(reserved), "journal field \"{}\" is not free text", reserved);
  }
  json["type"] = event.type;
  json["time"] = event.time;
  if (!event.stage.empty()) json["stage"] = event.stage;
  if (event.attempt != 0) json["attempt"] = event.attempt;
  // Messages come from processes that may print anything: bytes that are not UTF-8 become U+FFFD. Newlines
  // are escaped.
  const std::string text = DumpJson(json);
  return ChecksumHex(text) + " " + text + "\n";
}

std::optional<JournalEvent> ParseJournalLine(std::string_view line) {
  if (line.size() < kChecksumDigits + 2 || line.back() != '\n' || line[kChecksumDigits] != ' ')
    return std::nullopt;
  const std::string_view text = line.substr(kChecksumDigits + 1, line.size() - kChecksumDigits - 2);
  if (line.substr(0, kChecksumDigits) != ChecksumHex(text)) return std::nullopt;
  const auto json = ParseJson(text);
  if (!json.is_object()) return std::nullopt;
  JournalEvent event;
  for (const auto& [name, value] : json.items()) {
    if (name == "time") {
      if (!value.is_number()) return std::nullopt;
      event.time = value.get<double>();
    } else if (name == "attempt") {
      if (!value.is_number_integer()) return std::nullopt;
      event.attempt = value.get<int>();
    } else if (name == "type" || name == "stage") {
      if (!value.is_string()) return std::nullopt;
      (name == "type" ? event.type : event.stage) = value.get<std::string>();
    } else {
      event.fields[name] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
  if (event.type.empty()) return std::nullopt;
  return event;
}

}  // namespace headsweep
