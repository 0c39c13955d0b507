#include "sweeps/expansion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sweeps/cost.h"

namespace headsweep {
namespace {

using Json = nlohmann::ordered_json;

void WriteWarnings(const std::vector<Diagnostic>& warnings, std::ostream& notes) {
  for (Diagnostic warning : warnings) {
    warning.message = "warning: " + warning.message;
    notes << ToString(warning) << '\n';
  }
}

// The rate that time estimates use, and the sentence that says so.
struct Rate {
  double given = 0, thread = 0;  // FLOP/s of a process, or of a thread

  explicit Rate(double gflops)
      : given(gflops * 1e9), thread(gflops > 0 ? 0 : MeasureThreadFlopsPerSecond()) {}
  // A GPU's rate cannot be guessed from a CPU's: seconds stay 0 ("?") unless a rate is given.
  StageCost Cost(const StageConfig& config) const {
    CostModel model;
    model.flops_per_second = given > 0 ? given : config.run.device == "cpu" ? thread * config.run.threads : 0;
    return EstimateCost(config, model);
  }
  std::string Describe() const {
    if (given > 0) return fmt::format("{:.0f} GFLOP/s a process (given)", given / 1e9);
    return fmt::format(
        "{:.0f} GFLOP/s a CPU thread, {:.0f} % of what this machine's multiply-adds reach now "
        "(--gflops sets the rate of a process; times on GPUs need it)",
        thread / 1e9, 100 * kMatrixEfficiency);
  }
};

// Rows of text with columns of equal width; numbers to the right.
class TextTable {
 public:
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  void Write(std::ostream& out) const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Width(row[c]));
    }
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t c = 0; c < row.size(); ++c) {
        const std::string pad(widths[c] - Width(row[c]), ' ');
        line += (c > 0 ? "  " : "") + pad + row[c];
      }
      out << line << '\n';
    }
  }

 private:
  static std::size_t Width(const std::string& text) {  // code points
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  }
  std::vector<std::vector<std::string>> rows_;
};

// The keys that tell trials apart: heads and head size always, and every axis.
std::vector<int> ShownKeys(const Sweep& sweep) {
  std::vector<int> keys = {FindKey("model.heads"), FindKey("model.head_size")};
  for (const SweepAxis& axis : sweep.axes()) {
    for (const int key : axis.keys) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  return keys;
}

std::string ShownValue(const KeySpec& key, const StageConfig& config) {
  const Value value = GetField(key, config);
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : FormatValue(value);
}

// --- Counts
// ----------------------------------------------------------------------------------------------------------------

std::string Dimensions(const Sweep& sweep) {
  std::vector<std::string> parts;
  for (const SweepAxis& axis : sweep.axes())
    parts.push_back(fmt::format("{} {}", HumanCount(axis.size()), axis.name));
  return parts.empty() ? "no axes" : fmt::format("{}", fmt::join(parts, " x "));
}

void WriteStageCount(const Sweep& sweep, std::uint64_t trials, const char* most, std::ostream& out) {
  if (!sweep.prune()) return;
  const std::size_t per_trial = sweep.prune()->stages_per_trial();
  out << fmt::format("stages    {}{} ({} train, {} prune: {} a trial)\n", most,
                     HumanCount(trials * (1 + per_trial)), HumanCount(trials), HumanCount(trials * per_trial),
                     per_trial);
}

void WriteCounts(const Sweep& sweep, const Plan* plan, std::ostream& out) {
  out << fmt::format(
      "sweep     {}\npoints    {} ({}{})\n", sweep.name(), HumanCount(sweep.point_count()), Dimensions(sweep),
      sweep.include_count() == 0 ? "" : fmt::format(", and {} included", HumanCount(sweep.include_count())));
  if (plan != nullptr) {
    out << fmt::format("excluded  {}\nmerged    {}\ntrials    {}\n", HumanCount(plan->excluded),
                       HumanCount(plan->merged), HumanCount(plan->trials));
    WriteStageCount(sweep, plan->trials, "", out);
    return;
  }
  const auto left = sweep.CountNotExcluded();
  const std::uint64_t trials = left.value_or(sweep.grid_count()) + sweep.include_count();
  out << "excluded  "
      << (left ? HumanCount(sweep.grid_count() - *left)
               : "not known: the rules depend on too many combinations to try")
      << '\n';
  out << fmt::format("merged    not known: more than {} points are not compared\ntrials    at most {}\n",
                     HumanCount(kMostCompared), HumanCount(trials));
  WriteStageCount(sweep, trials, "at most ", out);
}

// --- Views
// -----------------------------------------------------------------------------------------------------------------

void WriteTable(const Sweep& sweep, const Plan& plan, const ExpandOptions& options, std::ostream& out) {
  const Rate rate(options.gflops);
  const std::vector<int> keys = ShownKeys(sweep);
  const bool identified = static_cast<bool>(options.fingerprint_of);
  TextTable table;
  std::vector<std::string> header = {"trial"};
  if (identified) header.push_back("id");
  for (const int key : keys) header.push_back(ShortName(Key(key)));
  for (const char* name : {"parameters", "GFLOP/step", "memory", "training", "pruning"})
    header.push_back(name);
  if (!sweep.prune()) header.pop_back();
  table.Add(header);

  std::uint64_t trial = 0;
  double train_seconds = 0, prune_seconds = 0, disk = 0, flops = 0;
  for (std::size_t i = 0; i < plan.stages.size();) {
    const StageConfig config = plan.Config(plan.stages[i]);
    const StageCost cost = rate.Cost(config);
    double pruning = 0;
    for (++i; i < plan.stages.size() && plan.stages[i].parent >= 0; ++i) {
      const StageCost stage = rate.Cost(plan.Config(plan.stages[i]));
      pruning += stage.seconds;
      flops += stage.flops;
    }
    train_seconds += cost.seconds;
    prune_seconds += pruning;
    flops += cost.flops;
    disk += static_cast<double>(cost.checkpoint_bytes);
    if (++trial > options.most_rows && options.most_rows != 0) continue;
    std::vector<std::string> row = {HumanCount(trial)};
    if (identified) row.push_back(config.id);
    for (const int key : keys) row.push_back(ShownValue(Key(key), config));
    row.push_back(HumanCount(static_cast<std::uint64_t>(cost.parameters)));
    row.push_back(fmt::format("{:.3g}", cost.flops_per_step / 1e9));
    row.push_back(HumanBytes(static_cast<double>(cost.memory_bytes)));
    row.push_back(HumanSeconds(cost.seconds));
    if (sweep.prune()) row.push_back(HumanSeconds(pruning));
    table.Add(row);
  }
  WriteCounts(sweep, &plan, out);
  out << '\n';
  table.Write(out);
  if (options.most_rows != 0 && trial > options.most_rows)
    out << fmt::format("… and {} more trials\n", HumanCount(trial - options.most_rows));
  const std::string prune_total = sweep.prune() ? ", pruning " + HumanSeconds(prune_seconds) : "";
  out << fmt::format("\ntotal     {:.3g} TFLOP; training {}{} of one process; {} of checkpoints\n",
                     flops / 1e12, HumanSeconds(train_seconds), prune_total, HumanBytes(disk));
  out << fmt::format("assumed   {}; {} examples where a whole split is evaluated\n", rate.Describe(),
                     CostModel{}.examples_of_all);
}

// A grid too large to plan: its counts, and its first points.
void WriteLargeTable(const Sweep& sweep, std::ostream& out) {
  WriteCounts(sweep, nullptr, out);
  out << "\nThe first points (--list shows all):\n";
  int shown = 0;
  for (std::uint64_t i = 0; i < sweep.point_count() && i < 1000 && shown < 10; ++i) {
    if (!sweep.PointAt(i)) continue;
    out << fmt::format("{}\t{}\n", i, sweep.DescribePoint(i));
    ++shown;
  }
}

void WriteList(const Sweep& sweep, std::ostream& out) {
  for (std::uint64_t i = 0; i < sweep.point_count() && out; ++i) {
    if (sweep.PointAt(i)) out << fmt::format("{}\t{}\n", i, sweep.DescribePoint(i));
  }
}

Json CostJson(const StageCost& cost) {
  return {{"parameters", cost.parameters},
          {"flops_per_step", cost.flops_per_step},
          {"flops", cost.flops},
          {"memory_bytes", cost.memory_bytes},
          {"checkpoint_bytes", cost.checkpoint_bytes},
          {"seconds", cost.seconds}};
}

Json StageJson(const Sweep& sweep, const Plan& plan, const PlanStage& stage, const Rate& rate) {
  Json json = {{"kind", stage.parent < 0 ? "train" : "prune"}};
  const StageConfig config = plan.Config(stage);
  if (!config.id.empty()) json["id"] = config.id;
  if (stage.parent < 0) {
    json["points"] = plan.Points(stage);
    for (const std::uint64_t number : plan.PointNumbers(stage))
      json["written"].push_back(sweep.DescribePoint(number));
  } else {
    json["parent"] = stage.point;
    json["order"] = config.prune.order;
    json["seed"] = config.prune.seed;
  }
  json["config"] = Json::parse(CanonicalJson(config));
  json["cost"] = CostJson(rate.Cost(config));
  return json;
}

void WriteJson(const Sweep& sweep, const Plan& plan, const ExpandOptions& options, std::ostream& out) {
  const Rate rate(options.gflops);
  Json json = {{"name", plan.name},     {"points", plan.points},     {"excluded", plan.excluded},
               {"merged", plan.merged}, {"trials", plan.trials},     {"assumed", rate.Describe()},
               {"axes", Json::array()}, {"warnings", Json::array()}, {"stages", Json::array()}};
  for (const PlanAxis& axis : plan.axes) {
    Json values = Json::array();
    for (const AxisValue& value : axis.values) std::visit([&](const auto& v) { values.push_back(v); }, value);
    json["axes"].push_back({{"name", axis.name}, {"key", axis.key}, {"values", std::move(values)}});
  }
  for (const Diagnostic& warning : plan.warnings) json["warnings"].push_back(ToString(warning));
  for (const PlanStage& stage : plan.stages) json["stages"].push_back(StageJson(sweep, plan, stage, rate));
  out << json.dump(1) << '\n';
}

void WriteKeys(std::ostream& out) {
  std::string section;
  for (const KeySpec& key : AllKeys()) {
    if (key.use == KeyUse::kInternal) continue;
    const std::string part = key.name.substr(0, key.name.find('.'));
    if (part != section)
      out << (section.empty() ? "" : "\n") << (part == key.name ? part : fmt::format("[{}]", part)) << '\n';
    section = part;
    out << fmt::format("  {:<26} {:<20} {}{}\n", key.name, key.fallback.empty() ? "-" : key.fallback,
                       DescribeRange(key),
                       key.in_identity() || key.may_be_axis() ? "" : "  (not in the identity)");
    out << fmt::format("  {:<26} {:<20} {}\n", "", "", key.help);
  }
  out << "\nColumns: key, default (numbers may be expressions of other keys), allowed values.\n";
}

void WriteExclusions(const Sweep& sweep, std::ostream& out) {
  constexpr std::size_t kExamples = 5;
  if (sweep.excludes().empty()) out << "The sweep has no [[exclude]].\n";
  for (std::size_t rule = 0; rule < sweep.excludes().size(); ++rule) {
    const ExcludeRule& exclude = sweep.excludes()[rule];
    const auto exclusion = sweep.Explain(rule, kExamples);
    out << fmt::format("{}:{}: when \"{}\" excludes ", sweep.file(), exclude.at.line, exclude.when->text());
    if (!exclusion) {
      out << "an unknown number of points: it depends on too many combinations to try\n";
      continue;
    }
    out << fmt::format("{} of {} points\n", HumanCount(exclusion->count), HumanCount(sweep.grid_count()));
    for (const std::uint64_t point : exclusion->examples)
      out << fmt::format("  {}\n", sweep.DescribePoint(point));
    if (exclusion->count > exclusion->examples.size()) out << "  …\n";
  }
  const auto left = sweep.CountNotExcluded();
  if (left)
    out << fmt::format("Together they leave {} of {} points.\n", HumanCount(*left),
                       HumanCount(sweep.grid_count()));
}

}  // namespace

void Expand(const ExpandOptions& options, std::ostream& out, std::ostream& notes) {
  if (options.view == ExpandView::kKeys) return WriteKeys(out);
  const Sweep sweep = Sweep::Load(options.sweep_path);
  if (options.view == ExpandView::kList || options.view == ExpandView::kExclusions) {
    WriteWarnings(sweep.warnings(), notes);
    return options.view == ExpandView::kList ? WriteList(sweep, out) : WriteExclusions(sweep, out);
  }
  if (sweep.point_count() > kMostCompared && options.view != ExpandView::kJson) {
    WriteWarnings(sweep.warnings(), notes);
    return options.view == ExpandView::kCount ? WriteCounts(sweep, nullptr, out)
                                              : WriteLargeTable(sweep, out);
  }
  const bool count_only = options.view == ExpandView::kCount;
  const Plan plan = count_only ? CountPlan(sweep) : MakePlan(sweep, options.fingerprint_of);
  WriteWarnings(plan.warnings, notes);
  if (count_only) return WriteCounts(sweep, &plan, out);
  if (options.view == ExpandView::kJson) return WriteJson(sweep, plan, options, out);
  WriteTable(sweep, plan, options, out);
}

}  // namespace headsweep
