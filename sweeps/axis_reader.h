// Reads [grid], [[zip]] and [[include]] into axes. Part of the sweep reader; not for other folders.
#pragma once

#include <map>
#include <set>

#include "sweeps/sweep_data.h"

namespace headsweep {

bool IsSection(const std::string& name);  // task, model, train, run

// A count of seeds; nullopt: complained.
std::optional<std::int64_t> ReadCount(const RawValue& raw, const char* what, Complaints& complaints);

// The sweep's own seed must be in data.base before: { count = n } counts from it.
class AxisReader {
 public:
  AxisReader(Sweep::Data& data, Complaints& complaints)
      : data_(data), complaints_(complaints), known_names_(KeyNames()) {}
  void ReadGrid(const RawTable& table);
  void ReadZip(const RawTable& table, Position at);
  void ReadInclude(const RawTable& table, Position at);
  void NameAxes();  // when all have been read

 private:
  template <class Use>
  void ForEachKey(const RawTable& table, const std::string& where, Use use, const std::string& prefix = "");
  std::optional<std::vector<Setting>> ReadValues(int key, const RawEntry& entry);
  std::optional<std::vector<Setting>> ReadSeeds(const RawEntry& entry);
  bool Claim(int key, Position at);
  void AddRow(std::vector<Setting> row, SweepAxis& axis);

  Sweep::Data& data_;
  Complaints& complaints_;
  const std::vector<std::string> known_names_;
  std::map<int, Position> claimed_;  // keys that are axes
  std::map<Position, std::set<std::string>> rows_seen_;
};

}  // namespace headsweep
