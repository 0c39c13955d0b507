// The plain-text table that closes a run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "results/findings.h"

namespace headsweep {
namespace {

// Columns a terminal takes for UTF-8 text of ours ("±", "–"): one a character.
std::size_t Width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

using TextTable = std::vector<std::vector<std::string>>;  // rows of cells; the first row is the heading

std::string Layout(const TextTable& table) {
  std::vector<std::size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Width(row[c]));
  }
  std::string text;
  for (const auto& row : table) {
    std::string line = "  ";
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - Width(row[c]), ' ');
      line += c == 0 ? row[c] + space : "  " + space + row[c];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string QualityText(const Quality& quality) {
  std::vector<std::string> x_labels;
  for (const QualityLine& line : quality.lines) {
    for (const QualityPoint& point : line.points) {
      if (std::find(x_labels.begin(), x_labels.end(), point.x_label) == x_labels.end())
        x_labels.push_back(point.x_label);
    }
  }
  TextTable table = {{quality.x_name.empty() ? "" : quality.x_name}};
  for (const QualityLine& line : quality.lines)
    table[0].push_back(line.label.empty() ? "perplexity" : line.label);
  for (const std::string& x : x_labels) {
    std::vector<std::string> row = {x};
    for (const QualityLine& line : quality.lines) {
      const auto point = std::find_if(line.points.begin(), line.points.end(),
                                      [&](const QualityPoint& p) { return p.x_label == x; });
      row.push_back(point == line.points.end() ? "" : FormatEstimate(point->perplexity, 2));
    }
    table.push_back(std::move(row));
  }
  return fmt::format("{} perplexity per word, mean ± 95 % interval over seeds:\n{}",
                     quality.split == "test" ? "Test" : "Validation", Layout(table));
}

std::string PruningText(const Pruning& pruning) {
  constexpr double kShownFraction = 0.5;
  TextTable table = {{"order", "loss increase", "within 5 % up to", "models"}};
  for (const PruningCurve& curve : pruning.pooled) {
    const auto half = std::find_if(curve.points.begin(), curve.points.end(), [&](const CurvePoint& p) {
      return std::abs(p.fraction - kShownFraction) < 1e-6;
    });
    table.push_back({curve.order, half == curve.points.end() ? "–" : FormatEstimate(half->loss_increase, 3),
                     FormatRemovable(curve), fmt::format("{}", curve.models)});
  }
  return fmt::format(
      "Half of the heads removed: increase of the test loss, nats a piece (models with at least {} "
      "heads in all layers):\n{}",
      kPooledHeads, Layout(table));
}

}  // namespace

std::string FormatSummary(const std::string& results_path) {
  const ResultsFile results(results_path);
  const Quality quality = FindQuality(results);
  const Pruning pruning = FindPruning(results, quality);
  std::map<std::string, int> states;
  for (const TrialRow& trial : results.trials) ++states[trial.state];
  std::string counts;
  for (const auto& [state, count] : states)
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, state);
  std::string text = fmt::format("{}: {} trials{}\n", results.sweep.name, results.trials.size(),
                                 counts.empty() ? "" : " (" + counts + ")");
  const bool has_quality =
      std::any_of(quality.lines.begin(), quality.lines.end(), [](const QualityLine& line) {
        return std::any_of(line.points.begin(), line.points.end(),
                           [](const auto& p) { return p.perplexity.n > 0; });
      });
  text += "\n" + (has_quality ? QualityText(quality) : "No trial has a perplexity yet.\n");
  if (!pruning.pooled.empty()) text += "\n" + PruningText(pruning);
  if (!results.problems.empty()) {
    text += fmt::format("\n{} result files could not be used:\n", results.problems.size());
    for (const ProblemRow& problem : results.problems)
      text += fmt::format("  {}: {}\n", problem.path, problem.reason);
  }
  return text;
}

}  // namespace headsweep
