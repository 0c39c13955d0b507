#include "sweeps/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "cluster/base/hash.h"

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
    plan_axis_.name = axis.name;
    plan_axis_.key = Key(axis.keys[static_cast<std::size_t>(std::max(0, axis.label_key))]).name;
    for (const auto& row : axis.rows) {
      std::vector<const Setting*> settings;
      for (const Setting& setting : row) settings.push_back(&setting);
      Append(settings, /*value_must_be_new=*/false);
    }
  }

  // The index of the values that a point has for this axis' keys; appended if they are new.
  int IndexOf(const SettingTable& point) {
    std::vector<const Setting*> settings;
    for (const int key : axis_.keys) settings.push_back(point[static_cast<std::size_t>(key)]);
    const auto found = rows_.find(RowLabel(settings));
    return found != rows_.end() ? found->second : Append(settings, /*value_must_be_new=*/true);
  }

  PlanAxis Take() { return std::move(plan_axis_); }

 private:
  static std::string RowLabel(const std::vector<const Setting*>& settings) {
    std::string text;
    for (const Setting* setting : settings) text += Label(*setting) + '\n';
    return text;
  }

  // value_must_be_new: an included row of a [[zip]] may share its label with another row, but the coordinates
  // of a dimension must differ.
  int Append(const std::vector<const Setting*>& settings, bool value_must_be_new) {
    const bool by_key = axis_.label_key >= 0;
    AxisValue value =
        by_key ? ToAxisValue(*settings[static_cast<std::size_t>(axis_.label_key)]) : Joined(settings);
    if (value_must_be_new &&
        std::find(plan_axis_.values.begin(), plan_axis_.values.end(), value) != plan_axis_.values.end()) {
      value = Joined(settings);
    }
    const int index = static_cast<int>(plan_axis_.values.size());
    plan_axis_.values.push_back(std::move(value));
    rows_.emplace(RowLabel(settings), index);
    return index;
  }

  static std::string Joined(const std::vector<const Setting*>& settings) {
    std::string text;
    for (const Setting* setting : settings) text += (text.empty() ? "" : ", ") + Label(*setting);
    return text;
  }

  const SweepAxis& axis_;
  PlanAxis plan_axis_;
  std::unordered_map<std::string, int> rows_;
};

class Planner {
 public:
  Planner(const Sweep& sweep, const FingerprintOf& fingerprint_of, bool keep_stages)
      : sweep_(sweep), fingerprint_of_(fingerprint_of), keep_stages_(keep_stages) {
    for (const SweepAxis& axis : sweep.axes()) labels_.emplace_back(axis);
    plan_.name = sweep.name();
    plan_.points = sweep.point_count();
    plan_.warnings = sweep.warnings();
  }

  Plan Run() {
    const std::uint64_t stages_per_point = sweep_.prune() ? 1 + sweep_.prune()->stages_per_trial() : 1;
    if (plan_.points > kMostCompared || (keep_stages_ && plan_.points * stages_per_point > kMostStages)) {
      throw ConfigError(
          fmt::format("{}: {} points with up to {} stages are more than can be planned ({} stages); narrow "
                      "the sweep, or look "
                      "at it with `headsweep expand --count`",
                      sweep_.file(), plan_.points, stages_per_point, kMostStages));
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
    // 64 bits: two different ones of a million points collide with probability 3e-8, as their ids would.
    const auto [found, is_new] =
        by_identity_.try_emplace(Checksum(identity), Trial{index, plan_.stages.size()});
    if (is_new) {
      ++plan_.trials;
      if (keep_stages_) AddStages(std::move(config));
    } else {
      ++plan_.merged;
      NoteMerge(found->second.first_point, index);
    }
    std::vector<int> indices = IndicesOf(index);
    if (!keep_stages_) return;
    plan_.stages[found->second.stage].points.push_back(std::move(indices));
    plan_.stages[found->second.stage].point_numbers.push_back(index);
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
  const bool keep_stages_;
  Plan plan_;
  std::vector<AxisLabels> labels_;
  std::map<std::pair<std::string, int>, std::string> fingerprints_;
  struct Trial {
    std::uint64_t first_point;
    std::size_t stage;
  };
  std::unordered_map<std::uint64_t, Trial> by_identity_;
  std::map<std::string, Merge> merges_;
};

}  // namespace

Plan MakePlan(const Sweep& sweep, const FingerprintOf& fingerprint_of) {
  return Planner(sweep, fingerprint_of, /*keep_stages=*/true).Run();
}

Plan CountPlan(const Sweep& sweep) {
  static const FingerprintOf kNone;
  return Planner(sweep, kNone, /*keep_stages=*/false).Run();
}

}  // namespace headsweep
