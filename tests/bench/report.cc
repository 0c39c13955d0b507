#include "tests/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace headsweep::bench {

namespace {

std::string FormatCell(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  const double value = std::get<double>(cell);
  if (value == static_cast<double>(static_cast<long long>(value)) && value < 1e9)
    return fmt::format("{:.0f}", value);
  return value < 10 ? fmt::format("{:.3f}", value) : fmt::format("{:.1f}", value);
}

}  // namespace

std::string FormatTable(const Table& table) {
  std::vector<std::size_t> widths;
  for (const std::string& column : table.columns) widths.push_back(column.size());
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], FormatCell(row[i]).size());
  }
  std::string text = fmt::format("\n{}\n", table.title);
  for (std::size_t i = 0; i < widths.size(); ++i) {
    text += i == 0 ? fmt::format("{:<{}}", table.columns[i], widths[i])
                   : fmt::format("  {:>{}}", table.columns[i], widths[i]);
  }
  text += "\n";
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += i == 0 ? fmt::format("{:<{}}", FormatCell(row[i]), widths[i])
                     : fmt::format("  {:>{}}", FormatCell(row[i]), widths[i]);
    }
    text += "\n";
  }
  return text;
}

std::string FormatReport(const Report& report) {
  std::string text = fmt::format("suite {}\n{}\n", report.suite, report.machine);
  for (const Table& table : report.tables) text += FormatTable(table);
  for (const std::string& note : report.notes) text += "\n" + note + "\n";
  return text;
}

std::string ReportJson(const Report& report) {
  nlohmann::json json = {{"suite", report.suite}, {"machine", report.machine}, {"notes", report.notes}};
  json["tables"] = nlohmann::json::array();
  for (const Table& table : report.tables) {
    nlohmann::json rows = nlohmann::json::array();
    for (const auto& row : table.rows) {
      nlohmann::json object;
      for (std::size_t i = 0; i < row.size(); ++i) {
        std::visit([&](const auto& value) { object[table.columns[i]] = value; }, row[i]);
      }
      rows.push_back(object);
    }
    json["tables"].push_back({{"title", table.title}, {"rows", rows}});
  }
  return json.dump(2) + "\n";
}

}  // namespace headsweep::bench
