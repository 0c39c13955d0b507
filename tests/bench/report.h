// What a suite hands back: tables of names and numbers, printed for people and written as JSON for machines.
#pragma once

#include <string>
#include <variant>
#include <vector>

namespace headsweep::bench {

using Cell = std::variant<std::string, double>;

struct Table {
  std::string title;
  std::vector<std::string> columns;  // with units
  std::vector<std::vector<Cell>> rows;
};

struct Report {
  std::string suite;
  std::string machine;  // Backend::description()
  std::vector<Table> tables;
  std::vector<std::string> notes;
};

std::string FormatTable(const Table& table);
std::string FormatReport(const Report& report);
std::string ReportJson(const Report& report);

}  // namespace headsweep::bench
