#include "launcher/planned_sweep.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "cluster/base/errors.h"
#include "data/corpus.h"
#include "launcher/job_record.h"
#include "launcher/journal.h"
#include "launcher/roster.h"
#include "sweeps/cost.h"

namespace headsweep {
namespace {

std::string FormatAxis(const AxisValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  return std::get<std::string>(value);
}

// Trials that are judged by the same numbers: a perplexity per word can be compared between vocabularies, a loss per piece only
// on the same pieces. Prune stages are not stopped early: they are short, and have nothing to go on with.
std::string EarlyStoppingGroup(const StageConfig& config) {
  if (config.kind != StageKind::kTrain || config.early_stopping.rule == "none") return "";
  const std::string text = config.task.corpus + " " + config.task.packing;
  if (config.early_stopping.metric == "perplexity_per_word") return text;
  return fmt::format("{} {} {}", text, config.task.fingerprint, config.task.length);
}

const char* KindName(StageKind kind) { return kind == StageKind::kTrain ? "train" : "prune"; }

}  // namespace

PlannedSweep PlanSweep(Sweep sweep, const FingerprintOf& fingerprint_of) {
  PlannedSweep planned{.sweep = sweep, .plan = {}, .by_id = {}};
  planned.plan = MakePlan(sweep, fingerprint_of, [&](const StageConfig& config, std::size_t) {
    planned.threads = std::max(planned.threads, config.run.threads);
    if (config.run.device == "cuda") planned.device = "cuda";
  });
  planned.by_id.resize(planned.size());
  std::iota(planned.by_id.begin(), planned.by_id.end(), 0u);
  std::sort(planned.by_id.begin(), planned.by_id.end(), [&](std::uint32_t a, std::uint32_t b) {
    return planned.plan.stages[a].hash < planned.plan.stages[b].hash;
  });
  return planned;
}

std::optional<std::size_t> PlannedSweep::Find(std::string_view id) const {
  std::uint64_t hash = 0;
  const auto parsed = std::from_chars(id.data(), id.data() + id.size(), hash, 16);
  if (parsed.ec != std::errc() || parsed.ptr != id.data() + id.size()) return std::nullopt;
  const auto found = std::lower_bound(by_id.begin(), by_id.end(), hash, [&](std::uint32_t position, std::uint64_t wanted) {
    return plan.stages[position].hash < wanted;
  });
  if (found == by_id.end() || plan.stages[*found].hash != hash || id != IdAt(*found)) return std::nullopt;
  return *found;
}

std::size_t PlannedSweep::At(const std::string& id) const {
  const std::optional<std::size_t> position = Find(id);
  HEADSWEEP_CHECK(position.has_value(), "the sweep {} has no stage {}", plan.name, id);
  return *position;
}

std::vector<StageSpec> PlannedSweep::Specs() const {
  std::vector<StageSpec> specs;
  specs.reserve(plan.stages.size());
  for (const PlanStage& stage : plan.stages) {
    const StageConfig config = plan.Config(stage);
    std::optional<StageId> parent;
    if (stage.parent >= 0) parent = StageId(IdAt(static_cast<std::size_t>(stage.parent)));
    const StageCost cost = EstimateCost(config, CostModel{});
    specs.push_back({.id = StageId(config.id),
                     .parent = parent,
                     .kind = KindName(config.kind),
                     .slots = config.run.devices,
                     .retries = config.run.retries,
                     .flops = cost.flops,
                     .priority = config.run.priority,
                     .group = EarlyStoppingGroup(config),
                     .memory = cost.memory_bytes});
  }
  return specs;
}

EarlyStoppingRule PlannedSweep::early_stopping() const {
  if (plan.stages.empty()) return {};
  const EarlyStoppingConfig config = plan.Config(plan.stages.front()).early_stopping;  // no axis: the same in all
  EarlyStoppingRule rule;
  if (config.rule == "median") rule.kind = EarlyStoppingRule::Kind::kMedian;
  if (config.rule == "successive-halving") rule.kind = EarlyStoppingRule::Kind::kSuccessiveHalving;
  rule.metric = config.metric;
  rule.min_steps = config.min_steps;
  rule.min_trials = config.min_trials;
  rule.reduction_factor = config.reduction_factor;
  return rule;
}

std::string PlannedSweep::Describe(const std::string& id) const {
  const PlanStage& stage = plan.stages[At(id)];
  if (stage.parent >= 0) {
    const PruneConfig prune = plan.Config(stage).prune;
    const std::string seed = prune.order == "random" ? fmt::format("({})", prune.seed) : "";
    const std::string parent = Describe(IdAt(static_cast<std::size_t>(stage.parent)));
    return "prune " + prune.order + seed + " of" + parent.substr(std::string("train").size());
  }
  std::string text = "train";
  const std::vector<int> point = plan.Points(stage).front();
  for (std::size_t axis = 0; axis < plan.axes.size() && axis < point.size(); ++axis) {
    if (point[axis] < 0) continue;
    const AxisValue& value = plan.axes[axis].values.at(static_cast<std::size_t>(point[axis]));
    text += " " + plan.axes[axis].name + "=" + FormatAxis(value);
  }
  return text;
}

std::string PlannedSweep::ConfigToml(const std::string& stage, int divisor) const {
  StageConfig smaller = config(stage);
  if (divisor > 1) {
    const int share =
        (smaller.train.batch + smaller.run.devices - 1) / smaller.run.devices;  // of one process
    const int size = smaller.train.micro_batch > 0 ? std::min(smaller.train.micro_batch, share) : share;
    int micro_batch = std::max(1, size / divisor);
    while (share % micro_batch != 0) --micro_batch;
    smaller.train.micro_batch = micro_batch;
  }
  return FormatStageConfig(smaller);
}

Sweep LoadKeptSweep(const Workspace& workspace, const FileSystem& files, const std::string& name) {
  std::vector<std::string> journals = {workspace.Journal(name)};
  for (const LauncherCard& card : ReadRoster(files, workspace, name)) journals.push_back(JournalOf(card.directory));
  std::string file = workspace.SweepToml(name);
  for (const Submission& submission : ReadSubmissions(files, workspace, name)) file = submission.record.file;
  double latest = 0;
  for (const std::string& journal : journals) {
    ScanJournal(files, journal, [&](const JournalEvent& event) {
      const auto field = event.fields.find("file");
      if (event.type != journal::kSweepStarted || field == event.fields.end() || event.time < latest) return;
      latest = event.time;
      file = field->second;
    });
  }
  return Sweep::Parse(files.ReadFile(workspace.SweepToml(name)), file);
}

FingerprintOf FingerprintOfSource() {
  return [](const TaskConfig& task) {
    return CorpusFingerprint({.corpus = task.corpus, .vocabulary = task.vocabulary});
  };
}

}  // namespace headsweep
