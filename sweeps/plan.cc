#include "sweeps/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace headsweep {
namespace {

constexpr std::size_t kMostMergeWarnings = 20;

AxisValue ToAxisValue(const Setting& setting) {
  if (const Value* value = setting.literal()) {
    if (const auto* integer = std::get_if<std::int64_t>(value)) return *integer;
    if (const auto* number = std::get_if<double>(value)) return *number;
    if (const auto* heads = std::get_if<std::vector<std::int64_t>>(value);
        heads != nullptr && heads->size() == 1) {
      return heads->front();
    }
  }
  return Label(setting);
}

// The labels of one axis and where each is.
class AxisLabels {
 public:
  explicit AxisLabels(const SweepAxis& axis) : axis_(axis) {
    for (std::size_t i = 0; i < axis.keys.size() && labelling_.empty(); ++i) {
      std::set<AxisValue> labels;
      for (const auto& row : axis.rows) labels.insert(ToAxisValue(row[i]));
      if (labels.size() == axis.rows.size()) labelling_ = {i};
    }
    if (labelling_.empty()) {
      for (std::size_t i = 0; i < axis.keys.size(); ++i) labelling_.push_back(i);
    }
    plan_axis_.name = axis.name;
    plan_axis_.key = Key(axis.keys[labelling_.front()]).name;
    for (const auto& row : axis.rows) {
      std::vector<const Setting*> settings;
      for (const Setting& setting : row) settings.push_back(&setting);
      Append(settings);
    }
  }

  // The index of the values that a point has for this axis' keys; appended if they are new.
  int IndexOf(const SettingTable& point) {
    std::vector<const Setting*> settings;
    for (const int key : axis_.keys) settings.push_back(point[static_cast<std::size_t>(key)]);
    const auto found = rows_.find(RowLabel(settings));
    return found != rows_.end() ? found->second : Append(settings);
  }

  PlanAxis Take() { return std::move(plan_axis_); }

 private:
  static std::string RowLabel(const std::vector<const Setting*>& settings) {
    std::string text;
    for (const Setting* setting : settings) text += Label(*setting) + '\n';
    return text;
  }

  int Append(const std::vector<const Setting*>& settings) {
    AxisValue value;
    if (labelling_.size() == 1) {
      value = ToAxisValue(*settings[labelling_.front()]);
    } else {
      std::string joined;
      for (const Setting* setting : settings) joined += (joined.empty() ? "" : ", ") + Label(*setting);
      value = joined;
    }
    const int index = static_cast<int>(plan_axis_.values.size());
    // An included row of a [[zip]] may share its label with another row: coordinates of a dimension must
    // differ.
    if (std::find(plan_axis_.values.begin(), plan_axis_.values.end(), value) != plan_axis_.values.end()) {
      std::string joined;
      for (const Setting* setting : settings) joined += (joined.empty() ? "" : ", ") + Label(*setting);
      value = joined;
    }
    plan_axis_.values.push_back(std::move(value));
    rows_.emplace(RowLabel(settings), index);
    return index;
  }

  const SweepAxis& axis_;
  std::vector<std::size_t> labelling_;  // positions of the keys that make the label
  PlanAxis plan_axis_;
  std::unordered_map<std::string, int> rows_;
};

class Planner {
 public:
  Planner(const Sweep& sweep, const FingerprintOf& fingerprint_of)
      : sweep_(sweep), fingerprint_of_(fingerprint_of) {
    for (const SweepAxis& axis : sweep.axes()) labels_.emplace_back(axis);
    plan_.name = sweep.name();
    plan_.points = sweep.point_count();
    plan_.warnings = sweep.warnings();
  }

  Plan Run() {
    if (plan_.points > kMostPlanned) {
      throw ConfigError(fmt::format(
          "{}: the sweep has {} points, more than the {} that can be planned; narrow it, or look at "
          "it with `headsweep expand --count`",
          sweep_.file(), plan_.points, kMostPlanned));
    }
    for (std::uint64_t index = 0; index < plan_.points; ++index) {
      std::optional<StageConfig> config = sweep_.PointAt(index);
      if (config)
        AddPoint(index, std::move(*config));
      else
        ++plan_.excluded;
    }
    for (AxisLabels& labels : labels_) plan_.axes.push_back(labels.Take());
    WarnOfMerged();
    return std::move(plan_);
  }

 private:
  std::string Fingerprint(const TaskConfig& task) {
    if (!fingerprint_of_) return "";
    const auto [found, is_new] = fingerprints_.try_emplace({task.corpus, task.vocabulary});
    if (is_new) found->second = fingerprint_of_(task);
    return found->second;
  }

  void AddPoint(std::uint64_t index, StageConfig config) {
    config.task.fingerprint = Fingerprint(config.task);
    std::string identity = CanonicalJson(config);
    if (config.task.fingerprint.empty()) identity += config.task.corpus;
    const auto [found, is_new] = by_identity_.try_emplace(std::move(identity), plan_.stages.size());
    const std::size_t stage = found->second;
    if (is_new) {
      AddStages(std::move(config));
    } else {
      ++plan_.merged;
      NoteMerge(plan_.stages[stage].point_numbers.front(), index);
    }
    plan_.stages[stage].points.push_back(IndicesOf(index));
    plan_.stages[stage].point_numbers.push_back(index);
  }

  std::vector<int> IndicesOf(std::uint64_t index) {
    if (!sweep_.IsInclude(index)) return sweep_.AxisIndices(index);
    const SettingTable settings = sweep_.SettingsAt(index);
    std::vector<int> indices;
    for (AxisLabels& labels : labels_) indices.push_back(labels.IndexOf(settings));
    return indices;
  }

  void AddStages(StageConfig config) {
    const bool identified = !config.task.fingerprint.empty();
    const int train = static_cast<int>(plan_.stages.size());
    if (identified) config.id = ComputeStageId(config);
    plan_.stages.push_back({config, -1, {}, {}});
    if (!sweep_.prune()) return;
    StageConfig prune = config;
    prune.kind = StageKind::kPrune;
    prune.parent = config.id;
    for (const std::string& order : sweep_.prune()->orders) {
      prune.prune.order = order;
      static const std::vector<std::uint64_t> kNoSeed = {0};
      for (const std::uint64_t seed : order == "random" ? sweep_.prune()->random_seeds : kNoSeed) {
        prune.prune.seed = seed;
        if (identified) prune.id = ComputeStageId(prune);
        plan_.stages.push_back({prune, train, {}, {}});
      }
    }
  }

  // Merged points are told by what differs in their writing, so that three seeds make one warning.
  struct Merge {
    std::uint64_t first, second;
    std::uint64_t count = 0;
    Position at;
  };
  void NoteMerge(std::uint64_t first, std::uint64_t second) {
    const SettingTable a = sweep_.SettingsAt(first), b = sweep_.SettingsAt(second);
    std::string difference;
    Position at;
    for (std::size_t key = 0; key < a.size(); ++key) {
      if (a[key] == b[key] || Label(*a[key]) == Label(*b[key])) continue;
      difference += fmt::format("{}:{}={};", key, Label(*a[key]), Label(*b[key]));
      at = std::max({at, a[key]->at, b[key]->at});
    }
    Merge& merge = merges_.try_emplace(difference, Merge{first, second, 0, at}).first->second;
    ++merge.count;
  }

  void WarnOfMerged() {
    std::size_t told = 0;
    for (const auto& [difference, merge] : merges_) {
      if (++told > kMostMergeWarnings) break;
      plan_.warnings.push_back(
          {sweep_.file(), merge.at.line, merge.at.column,
           fmt::format("({}) and ({}) are the same trial; it runs once{}", sweep_.DescribePoint(merge.first),
                       sweep_.DescribePoint(merge.second),
                       merge.count > 1 ? fmt::format(" ({} points like these)", merge.count) : "")});
    }
    if (merges_.size() > kMostMergeWarnings) {
      plan_.warnings.push_back(
          {sweep_.file(), 0, 0,
           fmt::format("{} more groups of points are the same trials", merges_.size() - kMostMergeWarnings)});
    }
  }

  const Sweep& sweep_;
  const FingerprintOf& fingerprint_of_;
  Plan plan_;
  std::vector<AxisLabels> labels_;
  std::map<std::pair<std::string, int>, std::string> fingerprints_;
  std::unordered_map<std::string, std::size_t> by_identity_;
  std::map<std::string, Merge> merges_;
};

}  // namespace

std::size_t Plan::train_stages() const {
  return static_cast<std::size_t>(
      std::count_if(stages.begin(), stages.end(), [](const PlanStage& stage) { return stage.parent < 0; }));
}

Plan MakePlan(const Sweep& sweep, const FingerprintOf& fingerprint_of) {
  return Planner(sweep, fingerprint_of).Run();
}

}  // namespace headsweep
