// The charts of the report: Vega specifications (results/report/charts/) filled with the sweep's data.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "results/findings.h"
#include "results/results_file.h"

namespace headsweep::report {

// A specification ready to be drawn, or why there is nothing to draw.
struct Chart {
  nlohmann::json spec;  // null: see nothing
  std::string nothing;  // "No trial has been pruned."
  std::string note;     // what the chart leaves out, in words; or empty
};

// Names of trials for people: "8 heads, head_size = 32, seed 2 (1a2b3c4d)".
std::map<std::string, std::string> TrialNames(const ResultsFile& results);

Chart QualityChart(const Quality& quality);
Chart PruningChart(const Pruning& pruning);
Chart SpeedChart(const Pruning& pruning);
Chart TrainingChart(const ResultsFile& results, const Quality& quality,
                    const std::map<std::string, std::string>& names);
Chart TimelineChart(const ResultsFile& results, const std::map<std::string, std::string>& names);

// What is known of single heads, of the trials that the report can show (the best ones, when there are many).
struct HeadRow {
  std::string trial;
  ImportanceRow importance;
};
struct HeadAblation {
  std::string trial;
  AblationRow ablation;
};
struct Heads {
  std::vector<std::string> trials;  // best perplexity first
  int trials_left_out = 0;
  std::vector<HeadRow> last;   // at each trial's last step
  std::vector<HeadRow> every;  // at every step, of trials that have several
  std::vector<HeadAblation> ablation;
};
Heads ReadHeads(const ResultsFile& results);
// "0" or, for other kinds of attention, "0 cross".
std::string LayerName(int layer, const std::string& attention);

Chart ImportanceChart(const Heads& heads);
Chart ImportanceChangeChart(const Heads& heads);
Chart AblationChart(const Heads& heads);

}  // namespace headsweep::report
