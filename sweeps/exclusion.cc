// Counting excluded points without visiting them all: a rule depends on few axes (through the keys it names
// and the expressions behind them), so only the product of those is enumerated. Rules that share no axis are
// counted apart.
#include <algorithm>
#include <set>

#include "sweeps/sweep_data.h"

namespace headsweep {
namespace {

using AxisSet = std::set<std::size_t>;

void AddExpression(const Expression* expression, std::set<int>& keys) {
  if (expression != nullptr) keys.insert(expression->keys().begin(), expression->keys().end());
}

// The axes that the rule's value may depend on.
AxisSet DependsOn(const Sweep::Data& data, const Expression& when) {
  std::set<int> keys(when.keys().begin(), when.keys().end());
  AxisSet axes;
  for (std::size_t before = 0; before != keys.size();) {  // to the fixed point
    before = keys.size();
    for (const int key : std::set<int>(keys)) {
      bool is_axis = false;
      for (std::size_t a = 0; a < data.axes.size(); ++a) {
        const SweepAxis& axis = data.axes[a];
        const auto found = std::find(axis.keys.begin(), axis.keys.end(), key);
        if (found == axis.keys.end()) continue;
        is_axis = true;
        axes.insert(a);
        for (const auto& row : axis.rows) {
          AddExpression(row[static_cast<std::size_t>(found - axis.keys.begin())].expression(), keys);
        }
      }
      if (!is_axis) AddExpression(data.base[static_cast<std::size_t>(key)]->expression(), keys);
    }
  }
  return axes;
}

// Product of the sizes, or nullopt above the limit.
std::optional<std::uint64_t> Combinations(const Sweep::Data& data, const AxisSet& axes) {
  std::uint64_t product = 1;
  for (const std::size_t a : axes) {
    if (data.axes[a].size() > Sweep::kMostEnumerated / product) return std::nullopt;
    product *= data.axes[a].size();
  }
  return product;
}

// Calls visit(indices, resolver) for every combination of the axes; the others stay at their first value.
template <class Visit>
void Enumerate(const Sweep::Data& data, const AxisSet& axes, Complaints& complaints, Visit visit) {
  std::vector<int> indices(data.axes.size(), 0);
  SettingTable settings = data.base;
  PutRows(data.axes, indices, settings);
  Resolver resolver(settings, complaints);
  while (true) {
    visit(indices, resolver);
    auto axis = axes.rbegin();
    for (; axis != axes.rend(); ++axis) {  // odometer, last axis fastest
      int& index = indices[*axis];
      index = index + 1 == static_cast<int>(data.axes[*axis].size()) ? 0 : index + 1;
      const auto& row = data.axes[*axis].rows[static_cast<std::size_t>(index)];
      for (std::size_t k = 0; k < row.size(); ++k) resolver.Set(data.axes[*axis].keys[k], &row[k]);
      if (index != 0) break;
    }
    if (axis == axes.rend()) return;
  }
}

struct Component {
  AxisSet axes;
  std::vector<std::size_t> rules;
};

// Rules that share an axis, directly or through others.
std::vector<Component> Components(const Sweep::Data& data) {
  std::vector<Component> components;
  for (std::size_t rule = 0; rule < data.excludes.size(); ++rule) {
    Component merged{DependsOn(data, *data.excludes[rule].when), {rule}};
    for (auto it = components.begin(); it != components.end();) {
      const bool shared =
          std::any_of(it->axes.begin(), it->axes.end(), [&](std::size_t a) { return merged.axes.count(a); });
      if (!shared) {
        ++it;
        continue;
      }
      merged.axes.insert(it->axes.begin(), it->axes.end());
      merged.rules.insert(merged.rules.end(), it->rules.begin(), it->rules.end());
      it = components.erase(it);
    }
    components.push_back(std::move(merged));
  }
  return components;
}

std::uint64_t PointNumber(const std::vector<SweepAxis>& axes, const std::vector<int>& indices) {
  std::uint64_t number = 0;
  for (std::size_t a = 0; a < axes.size(); ++a)
    number = number * axes[a].size() + static_cast<std::uint64_t>(indices[a]);
  return number;
}

}  // namespace

bool IsExcluded(const Sweep::Data& data, Resolver& resolver) {
  return std::any_of(data.excludes.begin(), data.excludes.end(), [&](const ExcludeRule& rule) {
    return resolver.Evaluate(*rule.when, rule.at, "when").value_or(0) != 0;
  });
}

std::optional<std::uint64_t> CountNotExcluded(const Sweep::Data& data, Complaints& complaints, bool* failed) {
  std::uint64_t left = data.grid_count;
  for (const Component& component : Components(data)) {
    const auto combinations = Combinations(data, component.axes);
    if (!combinations) return std::nullopt;
    std::uint64_t kept = 0;
    Enumerate(data, component.axes, complaints, [&](const std::vector<int>&, Resolver& resolver) {
      bool excluded = false;
      for (const std::size_t r : component.rules) {
        const auto value = resolver.Evaluate(*data.excludes[r].when, data.excludes[r].at, "when");
        if (!value) *failed = true;
        if (value.value_or(0) == 0) continue;
        excluded = true;
        break;
      }
      kept += excluded ? 0 : 1;
    });
    left = left / *combinations * kept;
  }
  return left;
}

std::optional<Sweep::Exclusion> ExplainRule(const Sweep::Data& data, std::size_t rule, std::size_t examples,
                                            Complaints& complaints) {
  const ExcludeRule& exclude = data.excludes[rule];
  const AxisSet axes = DependsOn(data, *exclude.when);
  const auto combinations = Combinations(data, axes);
  if (!combinations) return std::nullopt;
  Sweep::Exclusion exclusion;
  Enumerate(data, axes, complaints, [&](const std::vector<int>& indices, Resolver& resolver) {
    if (resolver.Evaluate(*exclude.when, exclude.at, "when").value_or(0) == 0) return;
    exclusion.count += data.grid_count / *combinations;
    if (exclusion.examples.size() < examples) exclusion.examples.push_back(PointNumber(data.axes, indices));
  });
  return exclusion;
}

}  // namespace headsweep
