#include "results/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "results/grid.h"

namespace headsweep {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Index of the axis along x, or -1.
int ChooseX(const std::vector<GridAxis>& axes) {
  for (const char* name : {"heads", "head_size"}) {
    for (std::size_t a = 0; a < axes.size(); ++a) {
      if (axes[a].name == name) return static_cast<int>(a);
    }
  }
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (axes[a].name != "seed") return static_cast<int>(a);
  }
  return -1;
}

double Column(const TrialRow& trial, const std::string& name) {
  const auto found = trial.columns.find(name);
  return found == trial.columns.end() ? kNaN : NumberOf(found->second);
}

struct Cell {
  std::vector<const TrialRow*> trials;
};

QualityPoint MakePoint(const Cell& cell, const std::string& split) {
  QualityPoint point;
  std::vector<double> perplexities, parameters, head_sizes;
  for (const TrialRow* trial : cell.trials) {
    point.trials.push_back(trial->stage);
    perplexities.push_back(split == "test" ? trial->test_perplexity : trial->valid_perplexity);
    parameters.push_back(trial->parameters > 0 ? static_cast<double>(trial->parameters) : kNaN);
    head_sizes.push_back(Column(*trial, "head_size"));
    point.diverged += trial->state == "diverged";
    point.failed += trial->state == "failed" || trial->state == "skipped";
    point.early_stopped += trial->state == "early-stopped";
    point.missing += trial->state != "diverged" && trial->state != "failed" && trial->state != "skipped" &&
                     trial->state != "early-stopped" && !std::isfinite(perplexities.back());
  }
  point.perplexity = MeanWithInterval(perplexities);
  point.parameters = MeanWithInterval(parameters).mean;
  point.head_size = MeanWithInterval(head_sizes).mean;
  return point;
}

std::string LineLabel(const std::vector<GridAxis>& axes, const std::vector<int>& point, int x) {
  std::string label;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    // An axis with one value tells no two lines apart.
    if (static_cast<int>(a) == x || axes[a].name == "seed" || axes[a].values.size() < 2) continue;
    label += fmt::format("{}{} = {}", label.empty() ? "" : ", ", axes[a].name,
                         FormatAxisValue(axes[a].values[static_cast<std::size_t>(point[a])]));
  }
  return label;
}

}  // namespace

Quality FindQuality(const ResultsFile& results) {
  Quality quality;
  const int x = ChooseX(results.axes);
  const bool has_test = std::any_of(results.trials.begin(), results.trials.end(),
                                    [](const TrialRow& t) { return std::isfinite(t.test_perplexity); });
  const bool has_valid = std::any_of(results.trials.begin(), results.trials.end(),
                                     [](const TrialRow& t) { return std::isfinite(t.valid_perplexity); });
  quality.split = has_test || !has_valid ? "test" : "valid";
  std::vector<AxisValue> x_values = {AxisValue(std::string())};
  if (x >= 0) {
    const GridAxis& axis = results.axes[static_cast<std::size_t>(x)];
    quality.x_name = axis.name;
    x_values = axis.values;
    quality.x_is_number = std::none_of(x_values.begin(), x_values.end(), [](const AxisValue& v) {
      return std::holds_alternative<std::string>(v);
    });
  }
  // Lines in the order of the axes' values, cells in the order of x.
  std::map<std::vector<int>, std::map<int, Cell>> lines;
  std::map<std::vector<int>, std::string> labels;
  for (const TrialRow& trial : results.trials) {
    for (const std::vector<int>& point : trial.points) {
      std::vector<int> key = point;
      for (std::size_t a = 0; a < key.size(); ++a) {
        if (static_cast<int>(a) == x || results.axes[a].name == "seed") key[a] = 0;
      }
      labels[key] = LineLabel(results.axes, point, x);
      auto& cell = lines[key][x < 0 ? 0 : point[static_cast<std::size_t>(x)]];
      // Two points of one trial in one cell (they differ in nothing that is shown) are one measurement.
      if (std::find(cell.trials.begin(), cell.trials.end(), &trial) == cell.trials.end())
        cell.trials.push_back(&trial);
    }
  }
  for (const auto& [key, cells] : lines) {
    QualityLine line{labels[key], {}};
    for (const auto& [index, cell] : cells) {
      QualityPoint point = MakePoint(cell, quality.split);
      const AxisValue& value = x_values[static_cast<std::size_t>(index)];
      point.x_label = FormatAxisValue(value);
      point.x = NumberOf(value);
      line.points.push_back(std::move(point));
    }
    if (quality.x_is_number) {  // values that only [[include]] has come last on an axis
      std::stable_sort(line.points.begin(), line.points.end(),
                       [](const QualityPoint& a, const QualityPoint& b) { return a.x < b.x; });
    }
    quality.lines.push_back(std::move(line));
  }
  return quality;
}

std::string Describe(const Quality& quality, const QualityLine& line, const QualityPoint& point) {
  std::string text;
  if (quality.x_name == "heads") {
    text = point.x_label + (point.x == 1 ? " head" : " heads");
  } else if (!quality.x_name.empty()) {
    text = fmt::format("{} = {}", quality.x_name, point.x_label);
  }
  if (!line.label.empty()) text += (text.empty() ? "" : ", ") + line.label;
  return text.empty() ? "the only configuration" : text;
}

std::string FormatRemovable(const PruningCurve& curve) {
  const std::string mean = fmt::format("{:.0f} %", 100 * curve.removable.mean);
  if (curve.removable_high - curve.removable_low < 0.005) return mean;
  return fmt::format("{} ({:.0f}–{:.0f})", mean, 100 * curve.removable_low, 100 * curve.removable_high);
}

std::string FormatEstimate(const Estimate& estimate, int digits, double scale) {
  if (estimate.n == 0) return "–";
  if (!estimate.has_interval()) return fmt::format("{:.{}f}", estimate.mean * scale, digits);
  return fmt::format("{:.{}f} ± {:.{}f}", estimate.mean * scale, digits, estimate.half_width * scale, digits);
}

}  // namespace headsweep
