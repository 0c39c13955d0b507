// collect: many result.h5 into one results.h5 (tables + netCDF-4 grid), and report: results.h5 into report.html.
// Derived data: may be deleted at any time and rebuilt. A bad input file is skipped, listed, and makes the result partial.
// What is in results.h5: results/SCHEMA.md. Not thread-safe (HDF5): one thread of a process at a time.
#pragma once

#include <cstdint>
#include <functional>
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
  std::string state;              // "finished" | "diverged" | "early-stopped" | "failed" | "waiting" | "running" | …
  std::string reason;             // of failure, or of an early stop
  std::string result_path;        // result.h5 or empty; of an early-stopped stage the metrics.h5 of its last attempt
  std::string config_json;        // canonical
  std::map<std::string, AxisValue> columns;  // resolved configuration worth a column: heads, head_size, embed, layers, seed, …
  // Indices into axes, one an axis (a sweep without axes: one empty point); a merged duplicate has several. Empty for prune
  // stages. A train stage without a point is in the tables, but neither in the grid nor in the findings.
  std::vector<std::vector<int>> points;
};

struct AttemptRecord {
  std::string stage_id;
  int attempt = 0;
  std::string host, job, slot, outcome, cause, message;
  int job_restart = 0;  // how often `job` had been requeued before
  double started_at = 0, finished_at = 0;  // unix seconds; 0 = not known
};

// A whole sweep in memory.
struct CollectInput {
  std::string sweep_name, sweep_toml;
  std::vector<GridAxis> axes;
  std::vector<CollectStage> stages;
  std::vector<AttemptRecord> attempts;
};

// A sweep that is handed over a stage at a time, so that its size does not matter. Each function calls visit for all there is,
// in the same order at each call (there are two); what it hands over may go when visit returns. A train stage is followed by its
// prune stages.
struct CollectSource {
  std::string sweep_name, sweep_toml;
  std::vector<GridAxis> axes;
  std::function<void(const std::function<void(const CollectStage&)>& visit)> for_each_stage;
  std::function<void(const std::function<void(const AttemptRecord&)>& visit)> for_each_attempt;
};

struct CollectOutcome {
  std::int64_t stages = 0, stages_read = 0;
  std::vector<std::string> problems;  // "path: reason" of each file that was skipped
};

// Writes results.h5 (temporary, then sealed; a failure leaves neither a half file nor a changed one). Memory: one stage file,
// a block of rows of each table, and one variable of the grid (8 bytes a cell); the rest waits in a file beside it. Throws
// IoError when results_path cannot be written, ConfigError when a stage's identifier is longer than 16 bytes. Rows of a prune
// stage are filed under its parent. Stages that are listed without a readable result keep their row in /stages and /trials.
CollectOutcome Collect(const CollectSource& source, const std::string& results_path);
// The same. Its stages may be in any order: those of a trial are brought together.
CollectOutcome Collect(const CollectInput& input, const std::string& results_path);

// Writes one self-contained page (temporary, then sealed). Throws Unsupported if Vega's scripts are not installed (Debian:
// libjs-vega; elsewhere HEADSWEEP_VEGA names a folder with them), IoError if results_path is not readable.
void WriteReport(const std::string& results_path, const std::string& report_path);

// The table printed at the end of a run: quality by heads and head size; pruning orders at 50 % removed. Ends with a newline.
std::string FormatSummary(const std::string& results_path);

}  // namespace headsweep
