// The answer in words: what the report opens with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "results/findings.h"

namespace headsweep {
namespace {

struct Place {
  const QualityLine* line = nullptr;
  const QualityPoint* point = nullptr;
};

// Points with a score, best first.
std::vector<Place> Ranking(const Quality& quality) {
  std::vector<Place> places;
  for (const QualityLine& line : quality.lines) {
    for (const QualityPoint& point : line.points) {
      if (point.perplexity.n > 0) places.push_back({&line, &point});
    }
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return a.point->perplexity.mean < b.point->perplexity.mean;
  });
  return places;
}

std::string Interval(const Estimate& estimate, const std::string& of) {
  if (estimate.has_interval()) return fmt::format("95 % interval over {} {}", estimate.n, of);
  return "one seed, so no interval";
}

std::string BestSentence(const Quality& quality, const std::vector<Place>& ranking) {
  const Place& best = ranking.front();
  std::string text =
      fmt::format("Best of {}: {}, {} perplexity {} per word ({}).", ranking.size(),
                  Describe(quality, *best.line, *best.point), quality.split,
                  FormatEstimate(best.point->perplexity, 2), Interval(best.point->perplexity, "seeds"));
  // A point that is the same trials under another name (two ways to write one head size) is no competitor.
  const auto next = std::find_if(ranking.begin() + 1, ranking.end(),
                                 [&](const Place& p) { return p.point->trials != best.point->trials; });
  if (next == ranking.end()) return text;
  const Estimate &a = best.point->perplexity, &b = next->point->perplexity;
  text += fmt::format(" Next: {}, {}", Describe(quality, *next->line, *next->point), FormatEstimate(b, 2));
  if (a.has_interval() && b.has_interval()) {
    text += a.high() < b.low() ? "; the intervals do not overlap."
                               : "; the intervals overlap, so the sweep does not tell the two apart.";
  } else {
    text += "; without more seeds the two cannot be told apart.";
  }
  return text;
}

// How a line behaves along x: where its best point is and what lies beyond it.
std::string TrendSentence(const Quality& quality, const QualityLine& line) {
  std::vector<const QualityPoint*> points;
  for (const QualityPoint& point : line.points) {
    if (point.perplexity.n > 0) points.push_back(&point);
  }
  if (points.size() < 2) return "";
  const auto best = std::min_element(
      points.begin(), points.end(),
      [](const QualityPoint* a, const QualityPoint* b) { return a->perplexity.mean < b->perplexity.mean; });
  const auto worst = std::max_element(
      points.begin(), points.end(),
      [](const QualityPoint* a, const QualityPoint* b) { return a->perplexity.mean < b->perplexity.mean; });
  const QualityPoint &first = *points.front(), &last = *points.back();
  const auto change = [](const QualityPoint& from, const QualityPoint& to) {
    return 100 * (to.perplexity.mean / from.perplexity.mean - 1);
  };
  const std::string name = line.label.empty() ? "" : fmt::format("With {}, ", line.label);
  const std::string subject = name.empty() ? "Perplexity" : "perplexity";
  const Estimate &low = (*best)->perplexity, &high = (*worst)->perplexity;
  if (low.has_interval() && high.has_interval() && low.high() >= high.low()) {
    return fmt::format(
        "{}{} differs by {:.1f} % at most (lowest at {} = {}, highest at {}), and these two intervals "
        "overlap.",
        name, subject, change(**best, **worst), quality.x_name, (*best)->x_label, (*worst)->x_label);
  }
  if (*best == &last) {
    return fmt::format("{}{} falls all the way to the largest value, {} = {}: {:.1f} % lower than at {}.",
                       name, subject, quality.x_name, last.x_label, -change(first, last), first.x_label);
  }
  if (*best == &first) {
    return fmt::format("{}{} is lowest at {} = {} and {:.1f} % higher at {}.", name, subject, quality.x_name,
                       first.x_label, change(first, last), last.x_label);
  }
  return fmt::format("{}{} is lowest at {} = {}: {:.1f} % higher at {}, {:.1f} % higher at {}.", name,
                     subject, quality.x_name, (*best)->x_label, change(**best, first), first.x_label,
                     change(**best, last), last.x_label);
}

std::string PruningSentence(const Pruning& pruning) {
  if (pruning.pooled.empty()) return "";
  std::vector<const PruningCurve*> curves;
  int fewest = pruning.pooled.front().models, most = fewest;
  for (const PruningCurve& curve : pruning.pooled) {
    curves.push_back(&curve);
    fewest = std::min(fewest, curve.models);
    most = std::max(most, curve.models);
  }
  std::stable_sort(curves.begin(), curves.end(), [](const PruningCurve* a, const PruningCurve* b) {
    return a->removable.mean > b->removable.mean;
  });
  std::string list;
  for (const PruningCurve* curve : curves) {
    list += fmt::format("{}{} in the order \u201c{}\u201d", list.empty() ? "" : ", ", FormatRemovable(*curve),
                        curve->order);
  }
  return fmt::format(
      "Without retraining, test perplexity stays within {:.0f} % of the whole model's while removing {} of "
      "the heads "
      "(mean, least and most of {}{} models with at least {} heads in all layers).",
      100 * (kTolerance - 1), list, fewest == most ? "" : fmt::format("{} to ", fewest), most, kPooledHeads);
}

}  // namespace

std::vector<std::string> Answer(const ResultsFile& results, const Quality& quality, const Pruning& pruning) {
  std::vector<std::string> sentences;
  const std::vector<Place> ranking = Ranking(quality);
  if (ranking.empty()) {
    sentences.push_back(results.trials.empty() ? "The sweep has no trials."
                                               : "No trial has a perplexity yet, so there is no answer yet.");
    return sentences;
  }
  sentences.push_back(BestSentence(quality, ranking));
  constexpr std::size_t kMostTrends = 4;  // more lines than that are for the chart to tell
  for (std::size_t i = 0; i < quality.lines.size() && i < kMostTrends; ++i) {
    const std::string trend = TrendSentence(quality, quality.lines[i]);
    if (!trend.empty()) sentences.push_back(trend);
  }
  const std::string pruned = PruningSentence(pruning);
  if (!pruned.empty()) sentences.push_back(pruned);
  if (!results.sweep.partial.empty()) sentences.push_back("Partial: " + results.sweep.partial + ".");
  return sentences;
}

}  // namespace headsweep
