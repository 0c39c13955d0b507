// collect: many result.h5 into one results.h5 (tables + netCDF-4 grid), and report: results.h5 into report.html.
// Derived data: may be deleted at any time and rebuilt. A bad input file is skipped, listed, and makes the result partial.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace headsweep {

using AxisValue = std::variant<std::int64_t, double, std::string>;

// One axis of the sweep as the user wrote it. Values keep their written form: "embed / heads" stays a label, so that the
// grid is rectangular however the resolved numbers fall.
struct GridAxis {
  std::string name;               // dimension name: last part of the key ("heads", "head_size", "seed"), unique
  std::string key;                // "model.heads"
  std::vector<AxisValue> values;
};

// One stage of the sweep, with where it stands and where its results are.
struct CollectStage {
  std::string id, kind, parent;   // kind "train" | "prune"
  std::string state;              // "finished" | "diverged" | "failed" | "waiting" | "running" | …
  std::string reason;             // of failure
  std::string result_path;        // result.h5 or empty
  std::string config_json;        // canonical
  std::map<std::string, AxisValue> columns;  // resolved configuration worth a column: heads, head_size, embed, layers, seed, …
  std::vector<std::vector<int>> points;  // indices into axes; a merged duplicate has several. Empty for prune stages
};

struct AttemptRecord {
  std::string stage_id;
  int attempt = 0;
  std::string host, slot, outcome, cause, message;
  double started_at = 0, finished_at = 0;  // unix seconds; 0 = not known
};

struct CollectInput {
  std::string sweep_name, sweep_toml;
  std::vector<GridAxis> axes;
  std::vector<CollectStage> stages;
  std::vector<AttemptRecord> attempts;
};

struct CollectOutcome {
  int stages_read = 0;
  std::vector<std::string> problems;  // "path: reason" of each file that was skipped
};

// Writes results.h5 (temporary, then sealed).
CollectOutcome Collect(const CollectInput& input, const std::string& results_path);

// Writes one self-contained page (temporary, then sealed). Throws Unsupported if Vega's scripts are not installed.
void WriteReport(const std::string& results_path, const std::string& report_path);

// The table printed at the end of a run: quality by heads and head size; pruning orders at 50 % removed.
std::string FormatSummary(const std::string& results_path);

}  // namespace headsweep
