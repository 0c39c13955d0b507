#include "launcher/journal_format.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "cluster/base/json.h"

namespace headsweep {
namespace {

constexpr std::size_t kChecksumDigits = 16;

// Takes a line's object member by member, without a tree of it: a resume reads hundreds of thousands of lines. Stops at an array
// or an object among the fields, which only a later version can have written.
class Reader {
 public:
  using Json = nlohmann::json;
  explicit Reader(JournalEvent& event) : event_(event) {}

  bool null() { return Other("null"); }
  bool boolean(bool value) { return Other(value ? "true" : "false"); }
  bool number_integer(Json::number_integer_t value) { return Number(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return Number(value); }
  bool number_float(Json::number_float_t value, const std::string& text) {
    if (key_ != "time") return key_ != "attempt" && Other(text);
    event_.time = value;
    return true;
  }
  bool string(std::string& text) {
    if (!inside_ || key_ == "time" || key_ == "attempt") return false;
    if (key_ == "type") {
      event_.type = std::move(text);
    } else if (key_ == "stage") {
      event_.stage = std::move(text);
    } else {
      event_.fields.insert_or_assign(std::move(key_), std::move(text));
    }
    return true;
  }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) {
    nested_ = std::exchange(inside_, true);
    return !nested_;
  }
  bool key(std::string& text) {
    key_ = std::move(text);
    return true;
  }
  bool end_object() { return true; }
  bool start_array(std::size_t) {
    nested_ = inside_;
    return false;
  }
  bool end_array() { return false; }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) { return false; }

  bool nested() const { return nested_; }

 private:
  template <class Integer>
  bool Number(Integer value) {
    if (key_ == "time") {
      event_.time = static_cast<double>(value);
    } else if (key_ == "attempt") {
      event_.attempt = static_cast<int>(value);
    } else {
      return Other(fmt::format("{}", value));
    }
    return true;
  }
  bool Other(std::string text) {
    if (!inside_ || key_ == "type" || key_ == "stage" || key_ == "time" || key_ == "attempt") return false;
    event_.fields.insert_or_assign(std::move(key_), std::move(text));
    return true;
  }

  JournalEvent& event_;
  std::string key_;
  bool inside_ = false, nested_ = false;
};

// The same with a tree, for fields of any kind: as JSON text.
bool ReadTree(std::string_view text, JournalEvent& event) {
  const nlohmann::json json = ParseJson(text);
  if (!json.is_object()) return false;
  for (const auto& [name, value] : json.items()) {
    if (name == "time") {
      if (!value.is_number()) return false;
      event.time = value.get<double>();
    } else if (name == "attempt") {
      if (!value.is_number_integer()) return false;
      event.attempt = value.get<int>();
    } else if (name == "type" || name == "stage") {
      if (!value.is_string()) return false;
      (name == "type" ? event.type : event.stage) = value.get<std::string>();
    } else {
      event.fields[name] = value.is_string() ? value.get<std::string>() : DumpJson(value);
    }
  }
  return true;
}

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
  JournalEvent event;
  Reader reader(event);
  if (!nlohmann::json::sax_parse(text, &reader)) {
    event = {};
    if (!reader.nested() || !ReadTree(text, event)) return std::nullopt;
  }
  if (event.type.empty()) return std::nullopt;
  return event;
}

}  // namespace headsweep
