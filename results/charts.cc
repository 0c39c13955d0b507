#include "results/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "results/grid.h"
#include "results/html.h"
#include "results/report_assets.h"

namespace headsweep::report {
namespace {

using nlohmann::json;

json Spec(const std::string& name) {
  json spec = json::parse(Asset("charts/" + name + ".json"));
  spec["$schema"] = "https://vega.github.io/schema/vega/v5.json";
  return spec;
}

json& Named(json& list, const std::string& name) {
  for (json& entry : list) {
    if (entry.at("name") == name) return entry;
  }
  throw std::logic_error("the chart has no " + name);
}

void SetData(json& spec, const std::string& name, json values) {
  Named(spec["data"], name)["values"] = std::move(values);
}
void SetSignal(json& spec, const std::string& name, json value) {
  Named(spec["signals"], name)["value"] = std::move(value);
}

void AddInterval(json& row, const Estimate& estimate) {
  row["mean"] = estimate.mean;
  if (!estimate.has_interval()) return;
  row["low"] = estimate.low();
  row["high"] = estimate.high();
}

std::string Percent(double fraction) { return fmt::format("{:.0f} %", 100 * fraction); }

}  // namespace

std::map<std::string, std::string> TrialNames(const ResultsFile& results) {
  std::map<std::string, std::string> names;
  for (const TrialRow& trial : results.trials) {
    std::string name;
    for (std::size_t a = 0; a < results.axes.size() && !trial.points.empty(); ++a) {
      const std::string value =
          FormatAxisValue(results.axes[a].values[static_cast<std::size_t>(trial.points[0][a])]);
      const std::string& axis = results.axes[a].name;
      std::string part = fmt::format("{} = {}", axis, value);
      if (axis == "heads") part = value + (value == "1" ? " head" : " heads");
      if (axis == "seed") part = "seed " + value;
      name += (name.empty() ? "" : ", ") + part;
    }
    names[trial.stage] = fmt::format("{}{}({})", name, name.empty() ? "" : " ", ShortId(trial.stage));
  }
  return names;
}

Chart QualityChart(const Quality& quality) {
  json points = json::array();
  std::vector<double> numbers;
  json labels = json::array();
  for (const QualityLine& line : quality.lines) {
    for (const QualityPoint& point : line.points) {
      if (point.perplexity.n == 0) continue;
      json row = {{"line", line.label.empty() ? "all trials" : line.label}};
      row["x"] = quality.x_is_number ? json(point.x) : json(point.x_label);
      AddInterval(row, point.perplexity);
      json tip = {{"configuration", Describe(quality, line, point)},
                  {"perplexity", FormatEstimate(point.perplexity, 2)},
                  {"seeds", fmt::format("{}", point.perplexity.n)},
                  {"parameters", FormatCount(point.parameters)}};
      if (std::isfinite(point.head_size)) tip["head size"] = fmt::format("{}", point.head_size);
      row["tip"] = std::move(tip);
      points.push_back(std::move(row));
      if (std::find(labels.begin(), labels.end(), json(point.x_label)) == labels.end())
        labels.push_back(point.x_label);
      numbers.push_back(point.x);
    }
  }
  if (points.empty()) return {json(), "No trial has a perplexity yet.", ""};
  json spec = Spec("quality");
  SetData(spec, "points", points);
  SetSignal(spec, "xTitle", quality.x_name == "heads" ? "attention heads per layer" : quality.x_name);
  SetSignal(spec, "yTitle",
            quality.split == "test" ? "test perplexity per word" : "validation perplexity per word");
  json& scale = Named(spec["scales"], "x");
  if (quality.x_is_number) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    // Values like 1, 2, 4, 8 lie evenly on a logarithmic axis.
    if (numbers.size() > 2 && numbers.front() > 0 && numbers.back() / numbers.front() >= 4) {
      scale["type"] = "log";
      scale["base"] = 2;
    }
    spec["axes"][0]["values"] = numbers;
    spec["axes"][0]["format"] = "~r";
  } else {
    scale["type"] = "point";
    scale["padding"] = 0.5;
    scale["domain"] = labels;
  }
  const bool one_line = quality.lines.size() == 1;
  if (one_line) spec.erase("legends");
  return {std::move(spec), "", ""};
}

Chart PruningChart(const Pruning& pruning) {
  constexpr int kBandModels = 3;
  constexpr std::size_t kMostPanels = 12;
  json points = json::array();
  std::vector<std::string> panels;
  std::set<std::string> left_out;
  double lowest = 1, highest = 1;
  const auto add = [&](const PruningCurve& curve) {
    auto panel = std::find(panels.begin(), panels.end(), curve.group);
    if (panel == panels.end()) {
      if (panels.size() == kMostPanels) {
        left_out.insert(curve.group);
        return;
      }
      panel = panels.insert(panels.end(), curve.group);
    }
    for (const CurvePoint& point : curve.points) {
      if (!(point.ratio.mean > 0) || !std::isfinite(point.ratio.mean)) continue;
      lowest = std::min(lowest, point.ratio.mean);
      highest = std::max(highest, point.ratio.mean);
      json row = {{"group", curve.group},
                  {"position", panel - panels.begin()},
                  {"order", curve.order},
                  {"fraction", point.fraction}};
      // Two models give an interval of +-12.7 standard errors: it would hide every curve and tell nothing.
      if (point.ratio.n >= kBandModels) {
        AddInterval(row, point.ratio);
      } else {
        row["mean"] = point.ratio.mean;
      }
      row["tip"] = {{"order", curve.order},
                    {"heads removed", Percent(point.fraction)},
                    {"perplexity / whole model's", FormatEstimate(point.ratio, 3)},
                    {"loss increase", FormatEstimate(point.loss_increase, 3) + " nats a piece"},
                    {"models", fmt::format("{}", point.ratio.n)}};
      points.push_back(std::move(row));
    }
  };
  for (const PruningCurve& curve : pruning.pooled) add(curve);
  // One head more or less says little where there are fewer than kPooledHeads; their numbers are in the
  // table.
  std::set<std::string> small;
  for (const PruningCurve& curve : pruning.groups) {
    if (curve.heads < kPooledHeads) {
      small.insert(curve.group);
    } else {
      add(curve);
    }
  }
  if (points.empty()) return {json(), "No pruning curve has been measured.", ""};
  json spec = Spec("pruning");
  SetData(spec, "points", points);
  SetSignal(spec, "tolerance", kTolerance);
  json ticks = json::array();  // of a logarithmic axis that spans anything from 1.01 to 1000
  for (const double tick :
       {0.9, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0}) {
    if (tick >= lowest && tick <= highest) ticks.push_back(tick);
  }
  SetSignal(spec, "yDomain", {lowest / 1.01, highest * 1.03});  // of the curves; bands are cut off
  SetSignal(spec, "yTicks", std::move(ticks));
  std::string note;
  if (!left_out.empty())
    note += fmt::format(" In the table only: {} more {} of models.", left_out.size(),
                        left_out.size() == 1 ? "group" : "groups");
  if (!small.empty())
    note += fmt::format(" Models with fewer than {} heads in all are in the table only.", kPooledHeads);
  return {std::move(spec), "", note};
}

Chart SpeedChart(const Pruning& pruning) {
  std::vector<std::string> groups;
  std::map<std::string, std::map<double, std::vector<double>>> speeds;
  constexpr std::size_t kMostLines = 8;
  bool left_out = false;
  for (const PruningCurve& curve : pruning.groups) {
    if (curve.heads < kPooledHeads) continue;
    if (std::find(groups.begin(), groups.end(), curve.group) == groups.end()) {
      if (groups.size() == kMostLines) {
        left_out = true;
        continue;
      }
      groups.push_back(curve.group);
    }
    for (const CurvePoint& point : curve.points) {
      if (std::isfinite(point.speed.mean)) speeds[curve.group][point.fraction].push_back(point.speed.mean);
    }
  }
  json points = json::array();
  for (const std::string& group : groups) {
    for (const auto& [fraction, values] : speeds[group]) {
      const Estimate estimate = MeanWithInterval(values);
      points.push_back({{"group", group},
                        {"fraction", fraction},
                        {"mean", estimate.mean},
                        {"tip",
                         {{"models", group},
                          {"heads removed", Percent(fraction)},
                          {"speed-up", fmt::format("{:.2f}×", estimate.mean)}}}});
    }
  }
  if (points.empty()) return {json(), "No evaluation of a pruned model has been timed.", ""};
  json spec = Spec("speed");
  SetData(spec, "points", points);
  return {std::move(spec), "",
          left_out ? fmt::format(" The first {} groups of models are shown.", kMostLines) : ""};
}

Chart TrainingChart(const ResultsFile& results, const Quality& quality,
                    const std::map<std::string, std::string>& names) {
  constexpr std::size_t kMostTrials = 80;
  constexpr std::int64_t kMostPoints = 160;                   // a trial: about one a few pixels
  std::map<std::string, std::pair<std::string, int>> colors;  // trial -> value of the x axis, its position
  std::vector<std::string> values;
  for (const QualityLine& line : quality.lines) {
    for (const QualityPoint& point : line.points) {
      if (std::find(values.begin(), values.end(), point.x_label) == values.end())
        values.push_back(point.x_label);
      for (const std::string& trial : point.trials)
        colors.try_emplace(trial, point.x_label, static_cast<int>(std::lround(point.x)));
    }
  }
  std::map<std::string, std::int64_t> last_step;
  results.ForEachRow<StepRow>(StepSchema(), [&](const auto& trial, const auto&, const StepRow& row) {
    last_step[trial] = std::max(last_step[trial], row.step);
  });
  std::set<std::string> shown;
  for (const TrialRow& trial : results.trials) {
    if (last_step.count(trial.stage) > 0 && shown.size() < kMostTrials) shown.insert(trial.stage);
  }
  struct Bucket {
    double sum = 0;
    std::int64_t count = 0, step = 0;
  };
  std::map<std::string, std::map<std::int64_t, Bucket>> buckets;
  results.ForEachRow<StepRow>(StepSchema(), [&](const auto& trial, const auto&, const StepRow& row) {
    if (shown.count(trial) == 0 || !std::isfinite(row.loss)) return;
    const std::int64_t width = (last_step[trial] + kMostPoints - 1) / kMostPoints;
    Bucket& bucket = buckets[trial][(row.step - 1) / width];
    bucket.sum += row.loss;
    bucket.step += row.step;
    ++bucket.count;
  });
  json steps = json::array();
  for (const auto& [trial, list] : buckets) {
    const auto color = colors.find(trial);
    for (const auto& [index, bucket] : list) {
      const double n = static_cast<double>(bucket.count);
      steps.push_back({{"trial", trial},
                       {"tip", names.count(trial) > 0 ? names.at(trial) : trial},
                       {"color", color == colors.end() ? "" : color->second.first},
                       {"position", color == colors.end() ? 0 : color->second.second},
                       {"step", static_cast<double>(bucket.step) / n},
                       {"loss", bucket.sum / n}});
    }
  }
  if (steps.empty()) return {json(), "No training step has been recorded.", ""};
  json spec = Spec("training");
  SetData(spec, "steps", steps);
  SetSignal(spec, "colorTitle", quality.x_name == "heads" ? "heads per layer" : quality.x_name);
  if (values.size() < 2) spec.erase("legends");
  if (quality.x_is_number && values.size() > 1) {
    Named(spec["scales"], "color")["range"] = "ordered";  // page.js: colours of a scale that has an order
    spec["usermeta"] = {{"ordered", values.size()}};
  }
  std::string note;
  if (last_step.size() > shown.size())
    note = fmt::format(" The first {} of {} trials are shown.", shown.size(), last_step.size());
  return {std::move(spec), "", note};
}

Chart TimelineChart(const ResultsFile& results, const std::map<std::string, std::string>& names) {
  std::map<std::string, const StageRow*> stages;
  for (const StageRow& stage : results.stages) stages[stage.stage] = &stage;
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (const AttemptRecord& attempt : results.attempts) {
    if (attempt.started_at > 0) first = std::min(first, attempt.started_at);
    last = std::max({last, attempt.started_at, attempt.finished_at});
  }
  if (!(first <= last)) return {json(), "No attempt has been recorded with its time.", ""};
  const bool hours = last - first > 3 * 3600;
  const double unit = hours ? 3600 : 60;
  json attempts = json::array();
  std::set<std::string> slots;
  int without_time = 0, left_out = 0;
  constexpr std::size_t kMostBars = 6000;  // more make a page slow and cannot be told apart
  for (const AttemptRecord& attempt : results.attempts) {
    if (attempts.size() == kMostBars) {
      ++left_out;
      continue;
    }
    if (!(attempt.started_at > 0)) {
      ++without_time;
      continue;
    }
    const StageRow* stage = stages.count(attempt.stage_id) > 0 ? stages[attempt.stage_id] : nullptr;
    const bool prune = stage != nullptr && stage->kind != "train";
    const std::string trial = prune ? stage->parent : attempt.stage_id;
    const double end = attempt.finished_at > 0 ? attempt.finished_at : last;
    json tip = {{"trial", names.count(trial) > 0 ? names.at(trial) : trial},
                {"work", prune ? "prune: " + stage->label : "train"},
                {"attempt", fmt::format("{}", attempt.attempt)},
                {"ended", attempt.outcome.empty() ? "not known" : attempt.outcome},
                {"took", attempt.finished_at > 0 ? FormatSeconds(end - attempt.started_at) : "–"}};
    if (!attempt.job.empty()) tip["job"] = attempt.job;
    if (!attempt.message.empty()) tip["message"] = attempt.message.substr(0, 300);
    static const std::set<std::string> known = {"finished", "diverged", "stopped", "failed"};
    slots.insert(attempt.host + " " + attempt.slot);
    attempts.push_back({{"slot", attempt.host + " " + attempt.slot},
                        {"start", (attempt.started_at - first) / unit},
                        {"end", (end - first) / unit},
                        {"outcome", known.count(attempt.outcome) > 0 ? attempt.outcome : "not known"},
                        {"kind", prune ? "prune" : "train"},
                        {"tip", std::move(tip)}});
  }
  json spec = Spec("timeline");
  SetData(spec, "attempts", attempts);
  constexpr std::size_t kSlotPixels = 30;
  SetSignal(spec, "height", std::max<std::size_t>(2, slots.size()) * kSlotPixels);
  SetSignal(spec, "xTitle", fmt::format("{} since {}", hours ? "hours" : "minutes", FormatTime(first)));
  std::string note = " Paler bars are prune stages.";
  if (left_out > 0) note += fmt::format(" The last {} attempts are in results.h5 only.", left_out);
  if (without_time > 0) note += fmt::format(" {} attempts have no recorded time.", without_time);
  return {std::move(spec), "", note};
}

}  // namespace headsweep::report
