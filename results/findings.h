// What a sweep's results say: quality by heads and head size with intervals over seeds, pruning curves by
// order, how many heads can go. Pure functions from a ResultsFile; report and summary only lay them out.
#pragma once

#include <string>
#include <vector>

#include "results/results_file.h"
#include "results/statistics.h"

namespace headsweep {

// Trials that differ in their seed alone.
struct QualityPoint {
  std::string x_label;                        // value of the x axis as it was written
  double x = 0;                               // NaN if it is a text
  Estimate perplexity;                        // per word
  double parameters = 0;                      // NaN: not known
  double head_size = 0;                       // resolved; NaN: not known
  std::vector<std::string> trials;            // all of them
  int diverged = 0, failed = 0, early_stopped = 0, missing = 0;  // missing: not ended yet
};

// One line of the chart: all axes but x and seed are fixed.
struct QualityLine {
  std::string label;  // "head_size = embed / heads"; "" if there is no such axis
  std::vector<QualityPoint> points;
};

struct Quality {
  std::string x_name;  // axis along x; "" = no axis
  bool x_is_number = false;
  std::string split = "test";  // "valid" if no trial has a test score
  std::vector<QualityLine> lines;
};

// x: the axis "heads", or else "head_size", or else the first that is not the seed.
Quality FindQuality(const ResultsFile& results);

// "8 heads, head_size = 32".
std::string Describe(const Quality& quality, const QualityLine& line, const QualityPoint& point);

struct CurvePoint {
  double fraction = 0;
  Estimate ratio;          // perplexity per word / that of the unpruned model
  Estimate loss_increase;  // nats a piece
  Estimate speed;          // duration of the unpruned evaluation / that of this one
};

// Mean over models of one pruning curve (random orders of one model are averaged first: a model counts once).
struct PruningCurve {
  std::string group;  // which models: a Describe() text, or "all models with at least 4 heads"
  std::string order;  // label of the order
  int models = 0;
  double heads = 0;  // heads of one model in all layers; NaN if they differ
  std::vector<CurvePoint> points;
  double removable_low = 0, removable_high = 0;  // of the models, least and most
  Estimate removable;  // largest fraction up to which the ratio stays within kTolerance
};

inline constexpr double kTolerance = 1.05;  // 5 % more perplexity
inline constexpr int kPooledHeads = 4;      // fewer heads in all cannot be pruned in steps worth averaging

struct Pruning {
  std::vector<PruningCurve> pooled;  // all models with at least kPooledHeads, one curve an order
  std::vector<PruningCurve> groups;  // by quality point and order
};
Pruning FindPruning(const ResultsFile& results, const Quality& quality);

// The answer in a few sentences: the best point with its interval, how the lines behave, how many heads can
// go in each order.
std::vector<std::string> Answer(const ResultsFile& results, const Quality& quality, const Pruning& pruning);

// "55 % (40–70)": mean and range of the models. A share in steps of a tenth has no use for Student's t.
std::string FormatRemovable(const PruningCurve& curve);

// "78.3 ± 1.2"; without an interval "78.3"; "–" without a value. digits: after the point.
std::string FormatEstimate(const Estimate& estimate, int digits, double scale = 1);

}  // namespace headsweep
