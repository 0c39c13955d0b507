// A TOML text as plain values with source positions, in the order in which they were written. toml++ stays
// behind this header. Not here: what the keys mean (schema.h, settings.h, sweep.h).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cluster/base/errors.h"

namespace headsweep {

// Lines and columns count from 1, columns in code points; {0, 0} = no position (a default).
struct Position {
  int line = 0;
  int column = 0;
  auto operator<=>(const Position&) const = default;
};

struct RawValue;
struct RawEntry;
using RawArray = std::vector<RawValue>;
using RawTable = std::vector<RawEntry>;
struct RawDate {};  // TOML's dates and times: no key takes one

struct RawValue {
  Position at;
  std::variant<std::int64_t, double, bool, std::string, RawDate, RawArray, RawTable> data;
};

struct RawEntry {
  std::string key;  // one part; "model.heads" only where it was quoted
  Position at;
  RawValue value;
};

const char* TypeName(const RawValue& value);  // "a whole number", "text", …

// Collects complaints about one file, so that all of them are reported at once.
class Complaints {
 public:
  explicit Complaints(std::string file) : file_(std::move(file)) {}

  void Add(Position at, std::string message) { entries_.push_back({at, std::move(message)}); }
  // For complaints that many points of a grid share: the first of each (position, topic) is kept; those that
  // differ from it in their values are counted.
  void AddPerPoint(Position at, const std::string& topic, std::string message);

  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  const std::string& file() const { return file_; }
  std::vector<Diagnostic> Sorted() const;  // by position; complaints without one first
  void ThrowIfAny() const;                 // ConfigError

 private:
  struct Entry {
    Position at;
    std::string message;
  };
  struct Shared {
    std::size_t entry;  // index into entries_
    std::set<std::string> messages;
  };
  std::string file_;
  std::vector<Entry> entries_;
  std::map<std::pair<Position, std::string>, Shared> per_point_;
};

// Parses text. toml++ stops at the first syntax error; where the bad line stands for itself (no open bracket
// or string), it is blanked out and parsing goes on, so that several errors are found at once. Whatever could
// be read is returned.
RawTable ParseDocument(std::string_view text, Complaints& complaints);

// text as a TOML basic string, quotes included; control characters escaped.
std::string QuoteToml(std::string_view text);

}  // namespace headsweep
