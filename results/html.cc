#include "results/html.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <ctime>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"

namespace headsweep::report {

std::string Escape(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string ScriptJson(const nlohmann::json& value) {
  const std::string json = DumpJson(value);
  std::string script;
  script.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string_view rest = std::string_view(json).substr(i);
    if (json[i] == '<') {
      script += "\\u003c";
    } else if (rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9")) {
      script += rest[2] == '\xA8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      script += json[i];
    }
  }
  return script;
}

void Table::AddColumn(std::string heading, Kind kind) { columns_.push_back({std::move(heading), kind}); }

void Table::BeginRow() {
  HEADSWEEP_CHECK(rows_.empty() || rows_.back().size() == columns_.size(), "a row of \"{}\" has {} cells",
                  caption_, rows_.empty() ? 0 : rows_.back().size());
  rows_.emplace_back();
}

void Table::Cell(std::string_view text, std::string_view css, std::string_view sort_value) {
  HEADSWEEP_CHECK(!rows_.empty() && rows_.back().size() < columns_.size(),
                  "too many cells in a row of \"{}\"", caption_);
  const Kind kind = columns_[rows_.back().size()].kind;
  std::string classes(kind == Kind::kNumber ? "number" : kind == Kind::kWide ? "wide" : "");
  if (!css.empty()) classes += (classes.empty() ? "" : " ") + std::string(css);
  std::string cell = "<td";
  if (!classes.empty()) cell += fmt::format(" class=\"{}\"", Escape(classes));
  if (!sort_value.empty()) cell += fmt::format(" data-value=\"{}\"", Escape(sort_value));
  rows_.back().push_back(cell + ">" + Escape(text) + "</td>");
}

void Table::Number(double value, int digits) {
  if (std::isfinite(value)) {
    Cell(fmt::format("{:.{}f}", value, digits), "", fmt::format("{}", value));
  } else {
    Cell("–");
  }
}

std::string Table::Html() const {
  std::string html = fmt::format("<div class=\"scroll\"><table{}>", sortable_ ? " class=\"sortable\"" : "");
  if (!caption_.empty()) html += "<caption>" + Escape(caption_) + "</caption>";
  html += "<thead><tr>";
  for (const Column& column : columns_) {
    html += fmt::format("<th scope=\"col\"{}>{}</th>",
                        column.kind == Kind::kNumber ? " class=\"number\"" : "", Escape(column.heading));
  }
  html += "</tr></thead><tbody>\n";
  for (const auto& row : rows_) {
    html += "<tr>";
    for (const std::string& cell : row) html += cell;
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string Details(std::string_view summary, std::string_view html) {
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", Escape(summary), html);
}

std::string FormatSeconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "–";
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string FormatCount(double count) {
  if (!std::isfinite(count)) return "–";
  std::string text = fmt::format("{:.0f}", count);
  const std::size_t first = text.starts_with("-") ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3;)
    text.insert(at -= 3, "\u202F");  // narrow no-break space
  return text;
}

std::string FormatTime(double unix_seconds) {
  if (!(unix_seconds > 0)) return "–";
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(static_cast<std::time_t>(unix_seconds)));
}

std::string ShortId(const std::string& stage_id) { return stage_id.substr(0, 8); }

}  // namespace headsweep::report
