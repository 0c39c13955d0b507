// What a Sweep is made of; shared by the reader, the points and the exclusions. Not for other folders.
#pragma once

#include "sweeps/sweep.h"

namespace headsweep {

struct Sweep::Data {
  std::string name, file, text;
  std::vector<std::unique_ptr<Setting>> written;  // owns what `base` points to, beside the defaults
  SettingTable base;                              // outside [grid] and [[zip]]
  std::vector<SweepAxis> axes;
  std::vector<ExcludeRule> excludes;
  std::vector<IncludeBlock> includes;
  std::optional<PruneOrders> prune;
  std::vector<Diagnostic> warnings;
  std::uint64_t grid_count = 1, include_count = 0;

  void Warn(Position at, std::string message) {
    warnings.push_back({file, at.line, at.column, std::move(message)});
  }
};

// Reads the file into data; complains about everything that can be seen without looking at points.
void ReadSweep(const std::string& text, Sweep::Data& data, Complaints& complaints);

// Checks points (see Sweep::Parse) and that something is left to run.
void CheckPoints(const Sweep::Data& data, Complaints& complaints);

// base with the rows of the given axes put in. indices: one an axis.
void PutRows(const std::vector<SweepAxis>& axes, const std::vector<int>& indices, SettingTable& settings);
std::vector<int> MixedRadix(const std::vector<SweepAxis>& axes, std::uint64_t index);

bool IsExcluded(const Sweep::Data& data, Resolver& resolver);

// See Sweep::CountNotExcluded; failed: an expression could not be evaluated (complained), the count means
// nothing.
std::optional<std::uint64_t> CountNotExcluded(const Sweep::Data& data, Complaints& complaints, bool* failed);
std::optional<Sweep::Exclusion> ExplainRule(const Sweep::Data& data, std::size_t rule, std::size_t examples,
                                            Complaints& complaints);

// A corpus that is a path (it has a "/") becomes absolute, seen from the sweep file: a trial runs anywhere.
void MakeCorpusAbsolute(const std::string& sweep_file, StageConfig& config);

}  // namespace headsweep
