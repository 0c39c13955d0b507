// The experiment as an N-dimensional array: one dimension an axis of the sweep, one variable a result. Pure
// data; netcdf.h writes it. Missing trials are NaN (numbers) or "" (texts).
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "results/collect.h"

namespace headsweep {

struct GridDimension {
  std::string name, long_name;
  std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>> values;
  std::size_t size() const;
};

struct GridVariable {
  std::string name, unit, long_name;
  std::vector<int> dimensions;  // indices into Grid::dimensions, row-major
  std::variant<std::vector<double>, std::vector<std::string>> values;
};

struct Grid {
  std::vector<GridDimension> dimensions;
  std::vector<GridVariable> variables;
};

// One point of a pruning curve, as the grid needs it.
struct GridPruningPoint {
  std::string label;  // value of the dimension "order"
  double fraction = 0, heads_left = 0, nll = 0, perplexity_per_word = 0, loss_increase = 0;
};

// What the grid holds of one trial.
struct GridTrial {
  std::string id, state;
  std::vector<std::vector<int>> points;   // as CollectStage::points
  std::vector<double> numbers;            // as BuildGrid's numbers; NaN: it has none
  std::vector<GridPruningPoint> pruning;  // of all its prune stages
};

// A number that trials have: what becomes a variable over the axes.
struct GridNumber {
  std::string name, unit, long_name;
};

// Pruning curves get two more dimensions, "order" (labels in order of first appearance) and "fraction";
// points of the same label and fraction (the seeds of a random order) are averaged, and their standard
// deviation and number are variables too. Axis names that clash with another name of the grid are replaced by
// their key ("model_heads"). Throws Unsupported, with the reason, when the array would be too large to be of
// use (more than kGridCells cells).
inline constexpr std::size_t kGridCells = 1 << 22;
Grid BuildGrid(const std::vector<GridAxis>& axes, const std::vector<GridNumber>& numbers,
               const std::vector<GridTrial>& trials);

// A value as a person reads it: 0.1, 4, embed / heads.
std::string FormatAxisValue(const AxisValue& value);
// NaN for a text.
double NumberOf(const AxisValue& value);

}  // namespace headsweep
