// HTML from text that may hold anything. Only for the report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace headsweep::report {

// Text or attribute value: & < > " ' are escaped.
std::string Escape(std::string_view text);

// JSON that may stand in a <script> element: "<" and the line separators of Unicode are written as \u
// escapes, so neither
// "</script>" nor "<!--" can appear; what is not UTF-8 becomes U+FFFD; NaN and infinities become null.
std::string ScriptJson(const nlohmann::json& value);

// A table: cells are escaped.
class Table {
 public:
  enum class Kind { kText, kWide, kNumber };
  // sortable: a click on a heading sorts (with the page's script).
  explicit Table(std::string caption, bool sortable = false)
      : caption_(std::move(caption)), sortable_(sortable) {}
  void AddColumn(std::string heading, Kind kind = Kind::kText);
  void BeginRow();
  // sort_value: what sorting compares instead of the text. css: class of the cell or of a span around the
  // text.
  void Cell(std::string_view text, std::string_view css = "", std::string_view sort_value = "");
  void Number(double value, int digits);  // "–" if it is not finite
  bool empty() const { return rows_.empty(); }
  std::string Html() const;

 private:
  struct Column {
    std::string heading;
    Kind kind;
  };
  std::string caption_;
  bool sortable_;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // cells, as HTML
};

std::string Details(std::string_view summary, std::string_view html);

// "1 h 02 min", "3 min 20 s", "4.1 s"; "–" if not finite.
std::string FormatSeconds(double seconds);
std::string FormatCount(double count);             // "1 234 567"
std::string FormatTime(double unix_seconds);       // "2026-01-31 12:00 UTC"; "–" for 0
std::string ShortId(const std::string& stage_id);  // first 8 digits

}  // namespace headsweep::report
