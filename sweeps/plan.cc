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

static_assert(sizeof(PlanStage) == 24, "a plan is a few bytes a stage, however many keys a configuration has");

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

// Order and seed of the prune stages of each trial.
std::vector<std::pair<std::string, std::uint64_t>> PruneStages(const Sweep& sweep) {
  std::vector<std::pair<std::string, std::uint64_t>> stages;
  if (!sweep.prune()) return stages;
  static const std::vector<std::uint64_t> kNoSeed = {0};
  for (const std::string& order : sweep.prune()->orders)
    for (const std::uint64_t seed : order == "random" ? sweep.prune()->random_seeds : kNoSeed) stages.push_back({order, seed});
  return stages;
}

// Without its id.
StageConfig PruneOf(const StageConfig& train, const std::string& order, std::uint64_t seed) {
  StageConfig prune = train;
  prune.kind = StageKind::kPrune;
  prune.parent = train.id;
  prune.prune.order = order;
  prune.prune.seed = seed;
  return prune;
}

std::uint64_t AsNumber(const std::string& id) { return id.empty() ? 0 : std::stoull(id, nullptr, 16); }

class Planner {
 public:
  Planner(const Sweep& sweep, const FingerprintOf& fingerprint_of, const OnStage& on_stage, bool keep_stages)
      : sweep_(sweep), fingerprint_of_(fingerprint_of), on_stage_(on_stage), keep_stages_(keep_stages) {
    for (const SweepAxis& axis : sweep.axes()) labels_.emplace_back(axis);
    plan_.sweep = sweep;
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
    const auto [found, is_new] = plan_.fingerprints.try_emplace({task.corpus, task.vocabulary});
    if (is_new) found->second = fingerprint_of_(task);
    return found->second;
  }

  void AddPoint(std::uint64_t index, StageConfig config) {
    config.task.fingerprint = Fingerprint(config.task);
    std::string identity = CanonicalJson(config);
    if (config.task.fingerprint.empty()) identity += config.task.corpus;
    // 64 bits: two different ones of a million points collide with probability 3e-8, as their ids would.
    const auto [found, is_new] = by_identity_.try_emplace(Checksum(identity), index);
    if (is_new) {
      ++plan_.trials;
      if (keep_stages_) AddStages(index, std::move(config), identity);
    } else {
      ++plan_.merged;
      NoteMerge(found->second, index);
      if (keep_stages_) plan_.merged_points[found->second].push_back(index);
    }
    if (!sweep_.IsInclude(index)) return;
    std::vector<int> indices = IncludedIndices(index);  // also appends what only this point has to the axes
    if (keep_stages_) plan_.included.emplace(index, std::move(indices));
  }

  std::vector<int> IncludedIndices(std::uint64_t index) {
    const SettingTable settings = sweep_.SettingsAt(index);
    std::vector<int> indices;
    for (AxisLabels& labels : labels_) indices.push_back(labels.IndexOf(settings));
    return indices;
  }

  void AddStages(std::uint64_t point, StageConfig config, const std::string& identity) {
    const bool identified = !config.task.fingerprint.empty();
    plan_.identified |= identified;
    const auto train = static_cast<std::int32_t>(plan_.stages.size());
    if (identified) config.id = HashHex(identity);  // ComputeStageId, of what is known already
    Add(config, {.hash = AsNumber(config.id), .point = point, .parent = -1, .order = -1});
    if (!sweep_.prune()) return;
    for (const auto& [order, seed] : prune_stages_) {
      StageConfig prune = PruneOf(config, order, seed);
      if (identified) prune.id = ComputeStageId(prune);
      const auto number = static_cast<std::int32_t>(plan_.stages.size()) - train - 1;
      Add(prune, {.hash = AsNumber(prune.id), .point = point, .parent = train, .order = number});
    }
  }

  void Add(const StageConfig& config, const PlanStage& stage) {
    plan_.stages.push_back(stage);
    if (on_stage_) on_stage_(config, plan_.stages.size() - 1);
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
  const OnStage& on_stage_;
  const bool keep_stages_;
  const std::vector<std::pair<std::string, std::uint64_t>> prune_stages_ = PruneStages(sweep_);
  Plan plan_;
  std::vector<AxisLabels> labels_;
  std::unordered_map<std::uint64_t, std::uint64_t> by_identity_;  // checksum -> first point
  std::map<std::string, Merge> merges_;
};

}  // namespace

std::string Plan::Id(const PlanStage& stage) const { return identified ? fmt::format("{:016x}", stage.hash) : ""; }

StageConfig Plan::Config(const PlanStage& stage) const {
  if (!last || last->first != stage.point) {
    last.emplace(stage.point, *sweep->PointAt(stage.point));
    TaskConfig& task = last->second.task;
    if (const auto found = fingerprints.find({task.corpus, task.vocabulary}); found != fingerprints.end())
      task.fingerprint = found->second;
  }
  StageConfig config = last->second;
  if (stage.parent >= 0) {
    config.id = Id(stages[static_cast<std::size_t>(stage.parent)]);
    const auto [order, seed] = PruneStages(*sweep)[static_cast<std::size_t>(stage.order)];
    config = PruneOf(config, order, seed);
  }
  config.id = Id(stage);
  return config;
}

std::vector<std::uint64_t> Plan::PointNumbers(const PlanStage& stage) const {
  if (stage.parent >= 0) return {};
  std::vector<std::uint64_t> numbers = {stage.point};
  if (const auto others = merged_points.find(stage.point); others != merged_points.end())
    numbers.insert(numbers.end(), others->second.begin(), others->second.end());
  return numbers;
}

std::vector<std::vector<int>> Plan::Points(const PlanStage& stage) const {
  std::vector<std::vector<int>> indices;
  for (const std::uint64_t number : PointNumbers(stage))
    indices.push_back(sweep->IsInclude(number) ? included.at(number) : sweep->AxisIndices(number));
  return indices;
}

Plan MakePlan(const Sweep& sweep, const FingerprintOf& fingerprint_of, const OnStage& on_stage) {
  return Planner(sweep, fingerprint_of, on_stage, /*keep_stages=*/true).Run();
}

Plan CountPlan(const Sweep& sweep) {
  static const FingerprintOf kNone;
  static const OnStage kNobody;
  return Planner(sweep, kNone, kNobody, /*keep_stages=*/false).Run();
}

}  // namespace headsweep
