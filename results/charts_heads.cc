// Charts of single heads: importance, its change during training, ablation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "results/charts.h"
#include "results/report_assets.h"

namespace headsweep::report {
namespace {

using nlohmann::json;

json Spec(const std::string& name, const std::string& data, json values, const std::string& trial) {
  json spec = json::parse(Asset("charts/" + name + ".json"));
  for (json& source : spec["data"]) {
    if (source["name"] == data) source["values"] = std::move(values);
  }
  for (json& signal : spec["signals"]) {
    if (signal["name"] == "trial") signal["value"] = trial;
  }
  return spec;
}

// Rows in the order of layers, whatever their attention.
int Position(int layer, const std::string& attention) {
  const int kind = attention == "encoder" ? 0 : attention == "self" ? 1 : 2;
  return kind + 3 * layer;
}

json ToJson(const HeadRow& head) {
  const ImportanceRow& row = head.importance;
  const std::string layer = LayerName(row.layer, row.attention);
  return {{"trial", head.trial},
          {"step", row.step},
          {"layer", layer},
          {"position", Position(row.layer, row.attention) * 100000 + row.head},
          {"head", row.head},
          {"name", fmt::format("{}.{}", layer, row.head)},
          {"per_example", row.per_example},
          {"per_token", row.per_token},
          {"normalized", row.normalized},
          {"magnitude", row.magnitude}};
}

std::string Note(const Heads& heads) {
  if (heads.trials_left_out == 0) return "";
  return fmt::format(" The {} trials of lowest perplexity can be chosen; {} more are in results.h5.",
                     heads.trials.size(), heads.trials_left_out);
}

}  // namespace

std::string LayerName(int layer, const std::string& attention) {
  return attention == "self" ? fmt::format("{}", layer) : fmt::format("{} {}", layer, attention);
}

Heads ReadHeads(const ResultsFile& results) {
  constexpr std::size_t kMostTrials = 40;  // a page of some megabytes at most
  std::set<std::string> measured;
  const auto note_trial = [&](const auto& trial, const auto&, const auto&) { measured.insert(trial); };
  results.ForEachRow<ImportanceRow>(ImportanceSchema(), note_trial);
  results.ForEachRow<AblationRow>(AblationSchema(), note_trial);
  std::vector<const TrialRow*> ranking;
  for (const TrialRow& trial : results.trials) {
    if (measured.count(trial.stage) > 0) ranking.push_back(&trial);
  }
  const auto score = [](const TrialRow* trial) {
    return std::isfinite(trial->test_perplexity) ? trial->test_perplexity
                                                 : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(ranking.begin(), ranking.end(),
                   [&](const TrialRow* a, const TrialRow* b) { return score(a) < score(b); });
  Heads heads;
  heads.trials_left_out = static_cast<int>(ranking.size() - std::min(ranking.size(), kMostTrials));
  ranking.resize(std::min(ranking.size(), kMostTrials));
  for (const TrialRow* trial : ranking) heads.trials.push_back(trial->stage);
  const std::set<std::string> shown(heads.trials.begin(), heads.trials.end());

  // Several stages of one trial may have scored the same heads at the same step; the first one stands.
  std::set<std::tuple<std::string, std::int64_t, int, std::string, int>> seen;
  std::map<std::string, std::set<std::int64_t>> steps;
  results.ForEachRow<ImportanceRow>(ImportanceSchema(), [&](const auto& trial, const auto&,
                                                            const ImportanceRow& row) {
    if (shown.count(trial) == 0 || !seen.emplace(trial, row.step, row.layer, row.attention, row.head).second)
      return;
    heads.every.push_back({trial, row});
    steps[trial].insert(row.step);
  });
  for (const HeadRow& head : heads.every) {
    if (head.importance.step == *steps[head.trial].rbegin()) heads.last.push_back(head);
  }
  std::erase_if(heads.every, [&](const HeadRow& head) { return steps[head.trial].size() < 2; });
  std::set<std::tuple<std::string, int, std::string, int>> ablated;
  results.ForEachRow<AblationRow>(
      AblationSchema(), [&](const auto& trial, const auto&, const AblationRow& row) {
        if (shown.count(trial) == 0 || !ablated.emplace(trial, row.layer, row.attention, row.head).second)
          return;
        heads.ablation.push_back({trial, row});
      });
  return heads;
}

Chart ImportanceChart(const Heads& heads) {
  if (heads.last.empty()) return {json(), "The importance of heads has not been measured.", ""};
  json rows = json::array();
  for (const HeadRow& head : heads.last) rows.push_back(ToJson(head));
  return {Spec("importance", "heads", std::move(rows), heads.trials.front()), "", Note(heads)};
}

Chart ImportanceChangeChart(const Heads& heads) {
  if (heads.every.empty())
    return {json(), "Importance was measured at one step only, so its change is not known.", ""};
  json rows = json::array();
  for (const HeadRow& head : heads.every) rows.push_back(ToJson(head));
  return {Spec("importance_change", "steps", std::move(rows), heads.trials.front()), "", ""};
}

Chart AblationChart(const Heads& heads) {
  if (heads.ablation.empty())
    return {json(), "No head has been switched off alone (order \"ablation\" does it).", ""};
  json rows = json::array();
  for (const HeadAblation& head : heads.ablation) {
    const AblationRow& row = head.ablation;
    rows.push_back({{"trial", head.trial},
                    {"layer", LayerName(row.layer, row.attention)},
                    {"position", Position(row.layer, row.attention)},
                    {"head", row.head},
                    {"increase", row.loss_increase}});
  }
  return {Spec("ablation", "heads", std::move(rows), heads.trials.front()), "", ""};
}

}  // namespace headsweep::report
