#include "results/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "cluster/base/errors.h"
#include "results/statistics.h"

namespace headsweep {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMostDimensions = 32;  // HDF5's H5S_MAX_RANK

// Names that pruning adds.
const std::vector<GridNumber>& PruningNumbers() {
  static const std::vector<GridNumber> numbers = {
      {"pruning_perplexity_per_word", "1", "test perplexity per word after removing heads"},
      {"pruning_nll", "nat/piece", "test negative log-likelihood after removing heads"},
      {"pruning_loss_increase", "nat/piece", "increase of the test loss over the unpruned model"},
      {"pruning_heads_left", "1", "heads left"},
  };
  return numbers;
}

double PruningNumber(const GridPruningPoint& point, std::size_t which) {
  const double values[] = {point.perplexity_per_word, point.nll, point.loss_increase, point.heads_left};
  return values[which];
}

GridDimension MakeAxisDimension(const GridAxis& axis, const std::string& name) {
  GridDimension dimension{name, axis.key, std::vector<std::int64_t>()};
  const auto all = [&](auto test) { return std::all_of(axis.values.begin(), axis.values.end(), test); };
  if (all([](const AxisValue& v) { return std::holds_alternative<std::int64_t>(v); })) {
    std::vector<std::int64_t> integers;
    for (const AxisValue& value : axis.values) integers.push_back(std::get<std::int64_t>(value));
    dimension.values = integers;
  } else if (all([](const AxisValue& v) { return !std::holds_alternative<std::string>(v); })) {
    std::vector<double> reals;
    for (const AxisValue& value : axis.values) reals.push_back(NumberOf(value));
    dimension.values = reals;
  } else {
    std::vector<std::string> labels;
    for (const AxisValue& value : axis.values) labels.push_back(FormatAxisValue(value));
    dimension.values = labels;
  }
  return dimension;
}

// Fractions are sums of steps: 0.1 + 0.2 and 0.3 are one coordinate.
double RoundFraction(double fraction) { return std::round(fraction * 1e9) / 1e9; }

class Builder {
 public:
  Builder(const std::vector<GridAxis>& axes, const std::vector<GridNumber>& numbers,
          const std::vector<GridTrial>& trials)
      : axes_(axes), numbers_(numbers), trials_(trials) {}

  Grid Build() {
    AddAxes();
    AddTexts("trial", "identifier of the trial", [](const GridTrial& trial) { return trial.id; });
    AddTexts("state", "what became of the trial", [](const GridTrial& trial) { return trial.state; });
    for (std::size_t i = 0; i < numbers_.size(); ++i) AddNumber(i);
    AddPruning();
    return std::move(grid_);
  }

 private:
  void AddAxes() {
    std::set<std::string> taken = {"order", "fraction", "trial", "state"};
    for (const GridNumber& number : numbers_) taken.insert(number.name);
    for (const GridNumber& number : PruningNumbers()) taken.insert(number.name);
    for (const GridAxis& axis : axes_) {
      std::string name = axis.name;
      if (name.empty() || !taken.insert(name).second) {
        name = axis.key;
        std::replace_if(
            name.begin(), name.end(), [](char c) { return c == '.' || c == '/'; }, '_');
        while (name.empty() || !taken.insert(name).second) name += "_axis";
      }
      grid_.dimensions.push_back(MakeAxisDimension(axis, name));
      axis_dimensions_.push_back(static_cast<int>(axis_dimensions_.size()));
      cells_ *= axis.values.size();
      CheckSize(cells_);
    }
    if (axes_.size() + 2 > kMostDimensions) {
      throw Unsupported(fmt::format("the grid has {} axes, HDF5 arrays have at most {}", axes_.size(),
                                    kMostDimensions - 2));
    }
  }

  static void CheckSize(std::size_t cells) {
    if (cells > kGridCells) {
      throw Unsupported(
          fmt::format("the grid has more than {} cells; its trials are in /trials and /points", kGridCells));
    }
  }

  // Row-major index of a point; nullopt if it does not lie in the grid.
  std::optional<std::size_t> CellOf(const std::vector<int>& point) const {
    if (point.size() != axes_.size()) return std::nullopt;
    std::size_t cell = 0;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      const std::size_t size = axes_[a].values.size();
      if (point[a] < 0 || static_cast<std::size_t>(point[a]) >= size) return std::nullopt;
      cell = cell * size + static_cast<std::size_t>(point[a]);
    }
    return cell;
  }

  template <class Visit>
  void ForEachCell(Visit visit) const {
    for (const GridTrial& trial : trials_) {
      for (const std::vector<int>& point : trial.points) {
        if (const auto cell = CellOf(point)) visit(trial, *cell);
      }
    }
  }

  template <class Get>
  void AddTexts(const std::string& name, const std::string& long_name, Get get) {
    std::vector<std::string> values(cells_);
    ForEachCell([&](const GridTrial& trial, std::size_t cell) { values[cell] = get(trial); });
    grid_.variables.push_back({name, "", long_name, axis_dimensions_, std::move(values)});
  }

  void AddNumber(std::size_t which) {
    const GridNumber& number = numbers_[which];
    std::vector<double> values(cells_, kNaN);
    ForEachCell([&](const GridTrial& trial, std::size_t cell) {
      if (which < trial.numbers.size()) values[cell] = trial.numbers[which];
    });
    grid_.variables.push_back(
        {number.name, number.unit, number.long_name, axis_dimensions_, std::move(values)});
  }

  void AddPruning() {
    std::vector<std::string> labels;
    std::set<double> fraction_set;
    for (const GridTrial& trial : trials_) {
      for (const GridPruningPoint& point : trial.pruning) {
        if (std::find(labels.begin(), labels.end(), point.label) == labels.end())
          labels.push_back(point.label);
        fraction_set.insert(RoundFraction(point.fraction));
      }
    }
    if (labels.empty()) return;
    const std::vector<double> fractions(fraction_set.begin(), fraction_set.end());
    const std::size_t curve = labels.size() * fractions.size();
    CheckSize(cells_ * curve);
    std::vector<int> dimensions = axis_dimensions_;
    for (int i = 0; i < 2; ++i) dimensions.push_back(static_cast<int>(axis_dimensions_.size()) + i);
    grid_.dimensions.push_back({"order", "order in which heads are removed", labels});
    grid_.dimensions.push_back({"fraction", "share of all heads asked to be removed", fractions});
    for (std::size_t which = 0; which < PruningNumbers().size(); ++which) {
      AddPruningNumber(which, labels, fractions, dimensions);
    }
  }

  void AddPruningNumber(std::size_t which, const std::vector<std::string>& labels,
                        const std::vector<double>& fractions, const std::vector<int>& dimensions) {
    const std::size_t curve = labels.size() * fractions.size();
    std::vector<double> mean(cells_ * curve, kNaN), deviation = mean, count(cells_ * curve, 0);
    ForEachCell([&](const GridTrial& trial, std::size_t cell) {
      std::map<std::size_t, std::vector<double>> samples;
      for (const GridPruningPoint& point : trial.pruning) {
        const auto order = std::find(labels.begin(), labels.end(), point.label) - labels.begin();
        const auto fraction =
            std::lower_bound(fractions.begin(), fractions.end(), RoundFraction(point.fraction)) -
            fractions.begin();
        samples[static_cast<std::size_t>(order) * fractions.size() + static_cast<std::size_t>(fraction)]
            .push_back(PruningNumber(point, which));
      }
      for (const auto& [at, values] : samples) {
        const Estimate estimate = MeanWithInterval(values);
        mean[cell * curve + at] = estimate.mean;
        deviation[cell * curve + at] = estimate.deviation;
        count[cell * curve + at] = estimate.n;
      }
    });
    const GridNumber& number = PruningNumbers()[which];
    grid_.variables.push_back({number.name, number.unit, number.long_name, dimensions, std::move(mean)});
    grid_.variables.push_back({number.name + "_std", number.unit,
                               "standard deviation over order seeds of " + number.name, dimensions,
                               std::move(deviation)});
    if (which == 0) {
      grid_.variables.push_back(
          {"pruning_orders", "1", "orders (seeds of a random order) averaged", dimensions, std::move(count)});
    }
  }

  const std::vector<GridAxis>& axes_;
  const std::vector<GridNumber>& numbers_;
  const std::vector<GridTrial>& trials_;
  Grid grid_;
  std::vector<int> axis_dimensions_;
  std::size_t cells_ = 1;
};

}  // namespace

std::size_t GridDimension::size() const {
  return std::visit([](const auto& list) { return list.size(); }, values);
}

Grid BuildGrid(const std::vector<GridAxis>& axes, const std::vector<GridNumber>& numbers,
               const std::vector<GridTrial>& trials) {
  return Builder(axes, numbers, trials).Build();
}

std::string FormatAxisValue(const AxisValue& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

double NumberOf(const AxisValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return kNaN;
}

}  // namespace headsweep
