#include "results/report_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "results/html.h"

namespace headsweep::report {
namespace {

using Kind = Table::Kind;

// Values in the order in which they first appear.
template <class List, class Get>
std::vector<std::string> Distinct(const List& list, Get get) {
  std::vector<std::string> values;
  for (const auto& entry : list) {
    std::string value = get(entry);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(std::move(value));
  }
  return values;
}

std::string NameOf(const Names& names, const std::string& trial) {
  const auto found = names.find(trial);
  return found == names.end() ? trial : found->second;
}

std::string SortValue(double value) { return std::isfinite(value) ? fmt::format("{}", value) : ""; }

// "1 diverged, 1 failed"
std::string Missing(const QualityPoint& point) {
  std::string text;
  const auto add = [&](int count, const char* what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(point.diverged, "diverged");
  add(point.failed, "failed");
  add(point.early_stopped, "stopped early");
  add(point.missing, "not ended");
  return text;
}

}  // namespace

std::string QualityTable(const Quality& quality) {
  std::vector<std::string> x_labels;
  double best = std::numeric_limits<double>::infinity();
  for (const QualityLine& line : quality.lines) {
    for (const QualityPoint& point : line.points) {
      if (std::find(x_labels.begin(), x_labels.end(), point.x_label) == x_labels.end())
        x_labels.push_back(point.x_label);
      if (point.perplexity.n > 0) best = std::min(best, point.perplexity.mean);
    }
  }
  Table table(fmt::format("{} perplexity per word, mean ± 95 % interval over seeds; lower is better",
                          quality.split == "test" ? "Test" : "Validation"));
  table.AddColumn(quality.x_name.empty() ? "" : quality.x_name);
  for (const QualityLine& line : quality.lines) {
    table.AddColumn(line.label.empty() ? "perplexity" : line.label, Kind::kNumber);
  }
  for (const std::string& x : x_labels) {
    table.BeginRow();
    table.Cell(x);
    for (const QualityLine& line : quality.lines) {
      const auto point = std::find_if(line.points.begin(), line.points.end(),
                                      [&](const QualityPoint& p) { return p.x_label == x; });
      if (point == line.points.end()) {
        table.Cell("");
        continue;
      }
      const bool is_best = point->perplexity.n > 0 && point->perplexity.mean == best;
      table.Cell(FormatEstimate(point->perplexity, 2), is_best ? "best" : "");
    }
  }
  return table.Html();
}

std::string QualityDetailTable(const Quality& quality) {
  Table table("One row a configuration; seeds are averaged", /*sortable=*/true);
  table.AddColumn("configuration");
  table.AddColumn("head size", Kind::kNumber);
  table.AddColumn("parameters", Kind::kNumber);
  table.AddColumn("perplexity", Kind::kNumber);
  table.AddColumn("± 95 %", Kind::kNumber);
  table.AddColumn("standard deviation", Kind::kNumber);
  table.AddColumn("seeds", Kind::kNumber);
  table.AddColumn("without a score");
  for (const QualityLine& line : quality.lines) {
    for (const QualityPoint& point : line.points) {
      table.BeginRow();
      table.Cell(Describe(quality, line, point));
      table.Number(point.head_size, 0);
      table.Cell(FormatCount(point.parameters), "", SortValue(point.parameters));
      table.Number(point.perplexity.mean, 3);
      table.Number(point.perplexity.half_width, 3);
      table.Number(point.perplexity.deviation, 3);
      table.Cell(fmt::format("{}", point.perplexity.n));
      table.Cell(Missing(point));
    }
  }
  return table.Html();
}

std::string RemovableTable(const Pruning& pruning) {
  std::vector<PruningCurve> curves = pruning.pooled;
  curves.insert(curves.end(), pruning.groups.begin(), pruning.groups.end());
  if (curves.empty()) return "";
  const auto orders = Distinct(curves, [](const PruningCurve& c) { return c.order; });
  const auto groups = Distinct(curves, [](const PruningCurve& c) { return c.group; });
  Table table(
      fmt::format("Share of the heads that can be removed before test perplexity rises by more than {:.0f} "
                  "%; mean over models, in brackets the least and the most",
                  100 * (kTolerance - 1)));
  table.AddColumn("models");
  table.AddColumn("heads", Kind::kNumber);
  table.AddColumn("n", Kind::kNumber);
  for (const std::string& order : orders) table.AddColumn(order, Kind::kNumber);
  for (const std::string& group : groups) {
    table.BeginRow();
    table.Cell(group);
    const auto first =
        std::find_if(curves.begin(), curves.end(), [&](const PruningCurve& c) { return c.group == group; });
    table.Cell(std::isfinite(first->heads) ? fmt::format("{:.0f}", first->heads) : "");
    int models = 0;
    for (const PruningCurve& curve : curves)
      models = curve.group == group ? std::max(models, curve.models) : models;
    table.Cell(fmt::format("{}", models));
    for (const std::string& order : orders) {
      const auto curve = std::find_if(curves.begin(), curves.end(), [&](const PruningCurve& c) {
        return c.group == group && c.order == order;
      });
      table.Cell(curve == curves.end() ? "" : FormatRemovable(*curve));
    }
  }
  return table.Html();
}

std::string PruningDetailTable(const Pruning& pruning) {
  Table table("Every point of every curve", /*sortable=*/true);
  table.AddColumn("models");
  table.AddColumn("order");
  table.AddColumn("removed", Kind::kNumber);
  table.AddColumn("perplexity / whole model's", Kind::kNumber);
  table.AddColumn("loss increase, nats a piece", Kind::kNumber);
  table.AddColumn("speed-up", Kind::kNumber);
  table.AddColumn("n", Kind::kNumber);
  for (const auto* list : {&pruning.pooled, &pruning.groups}) {
    for (const PruningCurve& curve : *list) {
      for (const CurvePoint& point : curve.points) {
        table.BeginRow();
        table.Cell(curve.group);
        table.Cell(curve.order);
        table.Cell(fmt::format("{:.0f} %", 100 * point.fraction), "", SortValue(point.fraction));
        table.Cell(FormatEstimate(point.ratio, 3), "", SortValue(point.ratio.mean));
        table.Cell(FormatEstimate(point.loss_increase, 4), "", SortValue(point.loss_increase.mean));
        table.Cell(FormatEstimate(point.speed, 2), "", SortValue(point.speed.mean));
        table.Cell(fmt::format("{}", point.ratio.n));
      }
    }
  }
  return table.Html();
}

std::string HeadsTable(const Heads& heads, const Names& names) {
  if (heads.trials.empty()) return "";
  const std::string& best = heads.trials.front();
  std::map<std::pair<std::string, int>, double> increases;
  for (const HeadAblation& head : heads.ablation) {
    if (head.trial != best) continue;
    increases[{LayerName(head.ablation.layer, head.ablation.attention), head.ablation.head}] =
        head.ablation.loss_increase;
  }
  Table table("Heads of " + NameOf(names, best) + ", at its last evaluation", /*sortable=*/true);
  table.AddColumn("layer");
  table.AddColumn("head", Kind::kNumber);
  table.AddColumn("importance per example", Kind::kNumber);
  table.AddColumn("importance per token", Kind::kNumber);
  table.AddColumn("score used by orders", Kind::kNumber);
  table.AddColumn("weight magnitude", Kind::kNumber);
  table.AddColumn("loss increase without it", Kind::kNumber);
  for (const HeadRow& head : heads.last) {
    if (head.trial != best) continue;
    const ImportanceRow& row = head.importance;
    const std::string layer = LayerName(row.layer, row.attention);
    table.BeginRow();
    table.Cell(layer);
    table.Cell(fmt::format("{}", row.head));
    table.Number(row.per_example, 5);
    table.Number(row.per_token, 5);
    table.Number(row.normalized, 4);
    table.Number(row.magnitude, 3);
    const auto increase = increases.find({layer, row.head});
    table.Number(increase == increases.end() ? std::nan("") : increase->second, 4);
  }
  return table.empty() ? "" : table.Html();
}

std::string RunsTable(const ResultsFile& results, const Names& names) {
  std::map<std::string, int> attempts, prunes, pruned;
  for (const AttemptRecord& attempt : results.attempts) ++attempts[attempt.stage_id];
  for (const StageRow& stage : results.stages) {
    if (stage.kind == "train") continue;
    ++prunes[stage.parent];
    pruned[stage.parent] += !stage.outcome.empty();
  }
  Table table("", /*sortable=*/true);
  table.AddColumn("trial");
  table.AddColumn("state");
  table.AddColumn("test perplexity", Kind::kNumber);
  table.AddColumn("validation perplexity", Kind::kNumber);
  table.AddColumn("parameters", Kind::kNumber);
  table.AddColumn("training", Kind::kNumber);
  table.AddColumn("attempts", Kind::kNumber);
  table.AddColumn("pruned", Kind::kNumber);
  table.AddColumn("reason", Kind::kWide);
  for (const TrialRow& trial : results.trials) {
    table.BeginRow();
    table.Cell(NameOf(names, trial.stage), "trial");
    table.Cell(trial.state, "state " + trial.state);
    table.Number(trial.test_perplexity, 2);
    table.Number(trial.valid_perplexity, 2);
    const double parameters = trial.parameters > 0 ? static_cast<double>(trial.parameters) : std::nan("");
    table.Cell(FormatCount(parameters), "", SortValue(parameters));
    table.Cell(FormatSeconds(trial.train_seconds), "", SortValue(trial.train_seconds));
    table.Cell(fmt::format("{}", attempts[trial.stage]));
    table.Cell(prunes[trial.stage] == 0 ? ""
                                        : fmt::format("{} of {}", pruned[trial.stage], prunes[trial.stage]));
    table.Cell(trial.reason);
  }
  return table.Html();
}

std::string FailuresTable(const ResultsFile& results, const Names& names) {
  std::map<std::string, const AttemptRecord*> last;
  std::map<std::string, int> counts;
  for (const AttemptRecord& attempt : results.attempts) {
    if (attempt.outcome != "failed") continue;
    last[attempt.stage_id] = &attempt;
    ++counts[attempt.stage_id];
  }
  Table table("");
  table.AddColumn("trial");
  table.AddColumn("work");
  table.AddColumn("state");
  table.AddColumn("failed attempts", Kind::kNumber);
  table.AddColumn("cause");
  table.AddColumn("reason", Kind::kWide);
  for (const StageRow& stage : results.stages) {
    const auto attempt = last.find(stage.stage);
    const bool ended_badly = stage.state == "failed" || stage.state == "skipped" ||
                             stage.state == "diverged" || stage.state == "early-stopped";
    if (!ended_badly && attempt == last.end()) continue;
    table.BeginRow();
    table.Cell(NameOf(names, stage.kind == "train" ? stage.stage : stage.parent), "trial");
    table.Cell(stage.kind == "train" ? "train" : "prune: " + stage.label);
    table.Cell(stage.state, "state " + stage.state);
    table.Cell(fmt::format("{}", counts[stage.stage]));
    table.Cell(attempt == last.end() ? "" : attempt->second->cause);
    std::string reason = stage.reason;
    if (reason.empty() && attempt != last.end()) reason = attempt->second->message;
    if (reason.empty()) reason = stage.summary_line;
    table.Cell(reason);
  }
  return table.empty() ? "" : table.Html();
}

std::string DevicesTable(const ResultsFile& results) {
  struct Use {
    int attempts = 0, failed = 0;
    double busy = 0, first = std::numeric_limits<double>::infinity(), last = 0;
  };
  std::map<std::string, Use> uses;
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (const AttemptRecord& attempt : results.attempts) {
    Use& use = uses[attempt.host + " " + attempt.slot];
    ++use.attempts;
    use.failed += attempt.outcome == "failed";
    if (!(attempt.started_at > 0) || !(attempt.finished_at >= attempt.started_at)) continue;
    use.busy += attempt.finished_at - attempt.started_at;
    first = std::min(first, attempt.started_at);
    last = std::max(last, attempt.finished_at);
  }
  if (uses.empty()) return "";
  Table table("");
  table.AddColumn("device");
  table.AddColumn("attempts", Kind::kNumber);
  table.AddColumn("failed", Kind::kNumber);
  table.AddColumn("busy", Kind::kNumber);
  table.AddColumn("share of the whole time", Kind::kNumber);
  for (const auto& [slot, use] : uses) {
    table.BeginRow();
    table.Cell(slot);
    table.Cell(fmt::format("{}", use.attempts));
    table.Cell(fmt::format("{}", use.failed));
    table.Cell(FormatSeconds(use.busy));
    table.Cell(last > first ? fmt::format("{:.0f} %", 100 * use.busy / (last - first)) : "–");
  }
  return table.Html();
}

std::string ProvenanceTable(const ResultsFile& results) {
  using Get = std::function<std::string(const Provenance&)>;
  const std::pair<const char*, Get> facts[] = {
      {"headsweep", [](const Provenance& p) { return p.version; }},
      {"git commit", [](const Provenance& p) { return p.git_commit; }},
      {"backend", [](const Provenance& p) { return p.backend; }},
      {"device", [](const Provenance& p) { return p.device; }},
      {"host", [](const Provenance& p) { return p.host; }},
      {"batch job", [](const Provenance& p) { return p.job; }},
      {"threads a process", [](const Provenance& p) { return fmt::format("{}", p.threads); }},
      {"data fingerprint", [](const Provenance& p) { return p.data_fingerprint; }},
  };
  std::map<std::string, std::map<std::string, int>> values;
  results.ForEachRow<Provenance>(ProvenanceSchema(), [&](const auto&, const auto&, const Provenance& row) {
    for (const auto& [name, get] : facts) ++values[name][get(row)];
  });
  if (values.empty()) return "";
  Table table("");
  table.AddColumn("");
  table.AddColumn("value", Kind::kWide);
  table.AddColumn("stages", Kind::kNumber);
  for (const auto& [name, get] : facts) {
    for (const auto& [value, count] : values[name]) {
      table.BeginRow();
      table.Cell(name);
      table.Cell(value.empty() ? "–" : value);
      table.Cell(fmt::format("{}", count));
    }
  }
  return table.Html();
}

std::string ProblemsTable(const ResultsFile& results) {
  if (results.problems.empty()) return "";
  Table table("Files that could not be used");
  table.AddColumn("file", Kind::kWide);
  table.AddColumn("what is wrong with it", Kind::kWide);
  for (const ProblemRow& problem : results.problems) {
    table.BeginRow();
    table.Cell(problem.path);
    table.Cell(problem.reason);
  }
  return table.Html();
}

}  // namespace headsweep::report
