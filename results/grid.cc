#include "results/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "cluster/base/errors.h"
#include "results/rows.h"
#include "results/spill_file.h"
#include "results/statistics.h"

namespace headsweep {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMostDimensions = 32;  // HDF5's H5S_MAX_RANK
constexpr std::size_t kPruningNumbers = 4;

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
  const double values[kPruningNumbers] = {point.perplexity_per_word, point.nll, point.loss_increase, point.heads_left};
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

}  // namespace

struct GridBuilder::Impl {
  Impl(const std::vector<GridAxis>& axes, std::vector<GridNumber> numbers_, const std::string& spill)
      : numbers(std::move(numbers_)), trials(spill + "-trials"), curves(spill + "-curves") {
    AddAxes(axes);
  }

  void AddAxes(const std::vector<GridAxis>& axes) {
    std::set<std::string> taken = {"order", "fraction", "trial", "state"};
    for (const GridNumber& number : numbers) taken.insert(number.name);
    for (const GridNumber& number : PruningNumbers()) taken.insert(number.name);
    for (const GridAxis& axis : axes) {
      std::string name = axis.name;
      if (name.empty() || !taken.insert(name).second) {
        name = axis.key;
        std::replace_if(
            name.begin(), name.end(), [](char c) { return c == '.' || c == '/'; }, '_');
        while (name.empty() || !taken.insert(name).second) name += "_axis";
      }
      grid.dimensions.push_back(MakeAxisDimension(axis, name));
      axis_dimensions.push_back(static_cast<int>(axis_dimensions.size()));
      cells *= axis.values.size();
      CheckSize(cells);
    }
    if (axes.size() + 2 > kMostDimensions) {
      throw Unsupported(fmt::format("the grid has {} axes, HDF5 arrays have at most {}", axes.size(),
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
  std::optional<std::uint32_t> CellOf(const std::vector<int>& point) const {
    if (point.size() != axis_dimensions.size()) return std::nullopt;
    std::size_t cell = 0;
    for (std::size_t a = 0; a < point.size(); ++a) {
      const std::size_t size = grid.dimensions[a].size();
      if (point[a] < 0 || static_cast<std::size_t>(point[a]) >= size) return std::nullopt;
      cell = cell * size + static_cast<std::size_t>(point[a]);
    }
    return static_cast<std::uint32_t>(cell);
  }

  void Add(const GridTrial& trial) {
    Spilled spilled;
    for (const std::vector<int>& point : trial.points)
      if (const auto cell = CellOf(point)) spilled.cells.push_back(*cell);
    HEADSWEEP_CHECK(trial.numbers.size() <= numbers.size(), "trial {} has {} numbers", trial.id, trial.numbers.size());
    spilled.numbers = trial.numbers;
    spilled.numbers.resize(numbers.size(), kNaN);
    spilled.state = static_cast<std::uint32_t>(
        std::find(states.begin(), states.end(), trial.state) - states.begin());
    if (spilled.state == states.size()) states.push_back(trial.state);
    trials.Put(static_cast<std::uint32_t>(spilled.cells.size()));
    trials.PutAll(spilled.cells);
    trials.PutAll(spilled.numbers);
    trials.Put(spilled.state);
    trials.Put(static_cast<std::uint32_t>(trial.id.size()));
    trials.PutAll(std::vector<char>(trial.id.begin(), trial.id.end()));
    if (!trial.pruning.empty()) AddCurves(spilled.cells, trial.pruning);
  }

  void AddCurves(const std::vector<std::uint32_t>& at, const std::vector<GridPruningPoint>& points) {
    curves.Put(static_cast<std::uint32_t>(at.size()));
    curves.PutAll(at);
    curves.Put(static_cast<std::uint32_t>(points.size()));
    for (const GridPruningPoint& point : points) {
      CurvePoint spilled;
      spilled.label = static_cast<std::size_t>(std::find(labels.begin(), labels.end(), point.label) - labels.begin());
      if (spilled.label == labels.size()) labels.push_back(point.label);
      spilled.fraction = RoundFraction(point.fraction);
      fractions.insert(spilled.fraction);
      for (std::size_t which = 0; which < kPruningNumbers; ++which)
        spilled.numbers[which] = PruningNumber(point, which);
      curves.Put(spilled);
    }
  }

  Grid Finish() {
    Grid done = grid;
    done.variables.push_back(TextVariable("trial", "identifier of the trial",
                                          [](const Spilled& trial) { return trial.id; }));
    done.variables.push_back(TextVariable("state", "what became of the trial",
                                          [this](const Spilled& trial) { return states[trial.state]; }));
    for (std::size_t i = 0; i < numbers.size(); ++i) done.variables.push_back(NumberVariable(i));
    if (!labels.empty()) AddPruning(done);
    return done;
  }

  // --- From the files to the array, a variable at a time
  struct Spilled {  // a trial
    std::vector<std::uint32_t> cells;
    std::vector<double> numbers;
    std::uint32_t state = 0;
    std::string id;
  };

  template <class Visit>
  void ForEachCell(Visit visit) {
    Spilled trial;
    trial.numbers.resize(numbers.size());
    for (trials.Rewind(); !trials.AtEnd();) {
      trial.cells.resize(trials.Take<std::uint32_t>());
      trials.TakeAll(trial.cells);
      trials.TakeAll(trial.numbers);
      trial.state = trials.Take<std::uint32_t>();
      std::vector<char> id(trials.Take<std::uint32_t>());
      trials.TakeAll(id);
      trial.id.assign(id.begin(), id.end());
      for (const std::uint32_t cell : trial.cells) visit(trial, cell);
    }
  }

  GridVariable TextVariable(const std::string& name, const std::string& long_name,
                            std::function<std::string(const Spilled&)> get) {
    return {name, "", long_name, axis_dimensions, /*is_text=*/true, [this, get] {
              GridTexts values(cells);
              ForEachCell([&](const Spilled& trial, std::size_t cell) { values.Set(cell, ValidUtf8(get(trial))); });
              return GridValues(std::move(values));
            }};
  }

  GridVariable NumberVariable(std::size_t which) {
    const GridNumber& number = numbers[which];
    return {number.name, number.unit, number.long_name, axis_dimensions, /*is_text=*/false, [this, which] {
              std::vector<double> values(cells, kNaN);
              ForEachCell([&](const Spilled& trial, std::size_t cell) { values[cell] = trial.numbers[which]; });
              return GridValues(std::move(values));
            }};
  }

  void AddPruning(Grid& done) {
    CheckSize(cells * labels.size() * fractions.size());
    std::vector<int> dimensions = axis_dimensions;
    for (int i = 0; i < 2; ++i) dimensions.push_back(static_cast<int>(axis_dimensions.size()) + i);
    done.dimensions.push_back({"order", "order in which heads are removed", labels});
    done.dimensions.push_back({"fraction", "share of all heads asked to be removed",
                               std::vector<double>(fractions.begin(), fractions.end())});
    for (std::size_t which = 0; which < kPruningNumbers; ++which) {
      const GridNumber& number = PruningNumbers()[which];
      const auto add = [&](const std::string& name, const std::string& unit, const std::string& long_name,
                           double Estimate::*part) {
        done.variables.push_back({name, unit, long_name, dimensions, /*is_text=*/false, [this, which, part] {
                                    return GridValues(Curves(which, kNaN, [part](const Estimate& e) { return e.*part; }));
                                  }});
      };
      add(number.name, number.unit, number.long_name, &Estimate::mean);
      add(number.name + "_std", number.unit, "standard deviation over order seeds of " + number.name,
          &Estimate::deviation);
      if (which == 0) {
        done.variables.push_back({"pruning_orders", "1", "orders (seeds of a random order) averaged", dimensions,
                                  /*is_text=*/false, [this] {
                                    return GridValues(Curves(0, 0, [](const Estimate& e) {
                                      return static_cast<double>(e.n);
                                    }));
                                  }});
      }
    }
  }

  // One number of the curves: what `part` says of the samples of each cell, label and fraction.
  template <class Part>
  std::vector<double> Curves(std::size_t which, double missing, Part part) {
    const std::vector<double> sorted(fractions.begin(), fractions.end());
    const std::size_t curve = labels.size() * sorted.size();
    std::vector<double> values(cells * curve, missing);
    std::vector<std::uint32_t> at;
    for (curves.Rewind(); !curves.AtEnd();) {
      at.resize(curves.Take<std::uint32_t>());
      curves.TakeAll(at);
      std::map<std::size_t, std::vector<double>> samples;
      for (auto points = curves.Take<std::uint32_t>(); points > 0; --points) {
        const auto point = curves.Take<CurvePoint>();
        const auto fraction = std::lower_bound(sorted.begin(), sorted.end(), point.fraction) - sorted.begin();
        samples[point.label * sorted.size() + static_cast<std::size_t>(fraction)].push_back(point.numbers[which]);
      }
      for (const auto& [place, numbers_there] : samples) {
        const double value = part(MeanWithInterval(numbers_there));
        for (const std::uint32_t cell : at) values[cell * curve + place] = value;
      }
    }
    return values;
  }

  struct CurvePoint {
    std::size_t label = 0;
    double fraction = 0, numbers[kPruningNumbers] = {};
  };

  const std::vector<GridNumber> numbers;
  Grid grid;                         // its axes
  std::vector<int> axis_dimensions;
  std::size_t cells = 1;
  std::vector<std::string> states, labels;
  std::set<double> fractions;
  SpillFile trials, curves;
};

GridBuilder::GridBuilder(const std::vector<GridAxis>& axes, std::vector<GridNumber> numbers, const std::string& spill)
    : impl_(std::make_unique<Impl>(axes, std::move(numbers), spill)) {}
GridBuilder::~GridBuilder() = default;
void GridBuilder::Add(const GridTrial& trial) { impl_->Add(trial); }
const std::vector<GridDimension>& GridBuilder::axes() const { return impl_->grid.dimensions; }
Grid GridBuilder::Finish() { return impl_->Finish(); }

void GridTexts::Set(std::size_t cell, const std::string& text) {
  if (text.empty()) return;
  starts_[cell] = bytes_.size();
  bytes_.append(text.c_str(), text.size() + 1);
}

std::size_t GridDimension::size() const {
  return std::visit([](const auto& list) { return list.size(); }, values);
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
