#include "sweeps/document.h"

#include <toml++/toml.h>

#include <algorithm>
#include <optional>

namespace headsweep {
namespace {

Position PositionOf(const toml::source_region& region) {
  return {static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
}

RawValue Convert(const toml::node& node);

RawTable ConvertTable(const toml::table& table) {
  RawTable entries;
  for (const auto& [key, node] : table) {
    entries.push_back({std::string(key.str()), PositionOf(key.source()), Convert(node)});
  }
  // toml++ sorts by name; the order of axes is the order in the file.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const RawEntry& a, const RawEntry& b) { return a.at < b.at; });
  return entries;
}

RawValue Convert(const toml::node& node) {
  RawValue value;
  value.at = PositionOf(node.source());
  if (const auto* integer = node.as_integer()) {
    value.data = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    value.data = number->get();
  } else if (const auto* boolean = node.as_boolean()) {
    value.data = boolean->get();
  } else if (const auto* text = node.as_string()) {
    value.data = text->get();
  } else if (const auto* array = node.as_array()) {
    RawArray items;
    items.reserve(array->size());
    for (const toml::node& item : *array) items.push_back(Convert(item));
    value.data = std::move(items);
  } else if (const auto* table = node.as_table()) {
    value.data = ConvertTable(*table);
  } else {
    value.data = RawDate{};
  }
  return value;
}

// The bytes [first, last) of a line that counts from 1, without its newline.
std::pair<std::size_t, std::size_t> LineSpan(std::string_view text, int line) {
  std::size_t first = 0;
  for (int i = 1; i < line; ++i) {
    const std::size_t newline = text.find('\n', first);
    if (newline == std::string_view::npos) return {text.size(), text.size()};
    first = newline + 1;
  }
  return {first, std::min(text.find('\n', first), text.size())};
}

// Whether a line can be dropped without changing how its neighbours read: "key = …" or a header, with every
// bracket closed and no multi-line string.
bool StandsForItself(std::string_view line) {
  if (line.find("\"\"\"") != std::string_view::npos || line.find("'''") != std::string_view::npos)
    return false;
  const std::size_t start = line.find_first_not_of(" \t\r");
  if (start == std::string_view::npos) return false;
  if (line[start] != '[' && line.find('=') == std::string_view::npos) return false;
  int depth = 0;
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == '\\' && quote == '"')
        ++i;
      else if (c == quote)
        quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      break;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if ((c == ']' || c == '}') && --depth < 0) {
      return false;
    }
  }
  return depth == 0;
}

constexpr int kMostSyntaxErrors = 50;
constexpr std::size_t kMostCounted = 1000;  // complaints of one kind that are told apart

}  // namespace

const char* TypeName(const RawValue& value) {
  static constexpr const char* kNames[] = {"a whole number", "a number",         "true or false", "text",
                                           "a date or time", "a list of values", "a table"};
  return kNames[value.data.index()];
}

void Complaints::AddPerPoint(Position at, const std::string& topic, std::string message) {
  const auto [found, is_new] = per_point_.try_emplace({at, topic}, Shared{entries_.size(), {}});
  if (found->second.messages.size() < kMostCounted) found->second.messages.insert(message);
  if (is_new) Add(at, std::move(message));
}

std::vector<Diagnostic> Complaints::Sorted() const {
  std::vector<Entry> sorted = entries_;
  for (const auto& [topic, shared] : per_point_) {
    const std::size_t more = shared.messages.size() - 1;
    if (more == 0) continue;
    sorted[shared.entry].message += fmt::format(" (and {}{} like it with other values)", more,
                                                shared.messages.size() == kMostCounted ? " or more" : "");
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) { return a.at < b.at; });
  std::vector<Diagnostic> diagnostics;
  for (Entry& entry : sorted)
    diagnostics.push_back({file_, entry.at.line, entry.at.column, std::move(entry.message)});
  return diagnostics;
}

void Complaints::ThrowIfAny() const {
  if (!entries_.empty()) throw ConfigError(Sorted());
}

RawTable ParseDocument(std::string_view text, Complaints& complaints) {
  std::string remaining(text);
  int last_line = 0;
  for (int errors = 0;; ++errors) {
    try {
      return ConvertTable(toml::parse(remaining));
    } catch (const toml::parse_error& error) {
      const Position at = PositionOf(error.source());
      if (at.line <= last_line) return {};  // no progress: what follows would be noise
      complaints.Add(at, std::string(error.description()));
      last_line = at.line;
      const auto [first, last] = LineSpan(remaining, at.line);
      if (errors + 1 == kMostSyntaxErrors ||
          !StandsForItself(std::string_view(remaining).substr(first, last - first))) {
        return {};
      }
      std::fill(remaining.begin() + static_cast<std::ptrdiff_t>(first),
                remaining.begin() + static_cast<std::ptrdiff_t>(last), ' ');
    }
  }
}

std::string QuoteToml(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\u{:04X}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace headsweep
