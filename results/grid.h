// The experiment as an N-dimensional array: one dimension an axis of the sweep, one variable a result; netcdf.h writes it.
// Missing trials are NaN (numbers) or "" (texts). What the trials contribute waits in a file, and of the array one variable at
// a time is in memory.
#pragma once

#include <functional>
#include <memory>
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

// A text for each cell, most of them short: one block of memory.
class GridTexts {
 public:
  explicit GridTexts(std::size_t cells) : bytes_(1, '\0'), starts_(cells, 0) {}
  void Set(std::size_t cell, const std::string& text);  // text as UTF-8 without NUL
  std::size_t size() const { return starts_.size(); }
  const char* operator[](std::size_t cell) const { return bytes_.data() + starts_[cell]; }

 private:
  std::string bytes_;
  std::vector<std::size_t> starts_;
};

using GridValues = std::variant<std::vector<double>, GridTexts>;

struct GridVariable {
  std::string name, unit, long_name;
  std::vector<int> dimensions;  // indices into Grid::dimensions, row-major
  bool is_text = false;
  std::function<GridValues()> values;  // computed at each call
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
  std::vector<double> numbers;            // as the builder's numbers; NaN: it has none
  std::vector<GridPruningPoint> pruning;  // of all its prune stages
};

// A number that trials have: what becomes a variable over the axes.
struct GridNumber {
  std::string name, unit, long_name;
};

inline constexpr std::size_t kGridCells = 1 << 22;

// Takes the trials one by one. Pruning curves get two more dimensions, "order" (labels in order of first appearance) and
// "fraction"; points of the same label and fraction (the seeds of a random order) are averaged, and their standard deviation and
// number are variables too. Axis names that clash with another name of the grid are replaced by their key ("model_heads").
class GridBuilder {
 public:
  // spill: a path beside which a file may be made. Throws Unsupported, with the reason, when the array would be too large to be
  // of use (more than kGridCells cells); IoError.
  GridBuilder(const std::vector<GridAxis>& axes, std::vector<GridNumber> numbers, const std::string& spill);
  ~GridBuilder();

  void Add(const GridTrial& trial);
  // Of the axes, in their order.
  const std::vector<GridDimension>& axes() const;
  // Once, when all trials are there. The builder must outlive the grid. Throws Unsupported as above.
  Grid Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A value as a person reads it: 0.1, 4, embed / heads.
std::string FormatAxisValue(const AxisValue& value);
// NaN for a text.
double NumberOf(const AxisValue& value);

}  // namespace headsweep
