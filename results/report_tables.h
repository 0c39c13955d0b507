// The report's tables: every number of the page, readable without any script. Each returns HTML.
#pragma once

#include <map>
#include <string>

#include "results/charts.h"
#include "results/findings.h"
#include "results/results_file.h"

namespace headsweep::report {

using Names = std::map<std::string, std::string>;  // TrialNames()

std::string QualityTable(const Quality& quality);                // x by line
std::string QualityDetailTable(const Quality& quality);          // one row a point
std::string RemovableTable(const Pruning& pruning);              // groups by order: how many heads can go
std::string PruningDetailTable(const Pruning& pruning);          // every point of every curve
std::string HeadsTable(const Heads& heads, const Names& names);  // of the best trial
std::string RunsTable(const ResultsFile& results, const Names& names);
std::string FailuresTable(const ResultsFile& results, const Names& names);  // "" if nothing failed
std::string DevicesTable(const ResultsFile& results);
std::string ProvenanceTable(const ResultsFile& results);
std::string ProblemsTable(const ResultsFile& results);  // "" if there are none

}  // namespace headsweep::report
