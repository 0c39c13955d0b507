#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "results/findings.h"

namespace headsweep {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Sample {
  double fraction = 0, perplexity = 0, loss_increase = 0, seconds = 0;
};

// One curve as it was measured: one prune stage, one order seed.
struct Measured {
  std::string trial, order;
  std::int64_t heads = 0;
  std::vector<Sample> samples;  // by fraction
};

using CurveKey = std::tuple<std::string, std::string, std::uint64_t>;  // stage, order, seed

std::vector<Measured> ReadCurves(const ResultsFile& results) {
  std::map<std::string, std::string> labels;
  for (const StageRow& stage : results.stages) labels[stage.stage] = stage.label;
  std::map<CurveKey, Measured> curves;
  std::vector<CurveKey> order_of_appearance;
  results.ForEachRow<PruningRow>(
      PruningSchema(), [&](const auto& trial, const auto& stage, const PruningRow& row) {
        const CurveKey key{stage, row.order, row.order_seed};
        const auto [place, is_new] = curves.try_emplace(key);
        Measured& curve = place->second;
        if (is_new) {
          order_of_appearance.push_back(key);
          curve.trial = trial;
          curve.order = labels[stage].empty() ? row.order : labels[stage];
          curve.heads = row.heads_removed + row.heads_left;
        }
        curve.samples.push_back({row.fraction, row.perplexity_per_word, row.loss_increase, row.seconds});
      });
  std::vector<Measured> list;
  for (const CurveKey& key : order_of_appearance) {
    Measured& curve = curves[key];
    std::sort(curve.samples.begin(), curve.samples.end(),
              [](const Sample& a, const Sample& b) { return a.fraction < b.fraction; });
    list.push_back(std::move(curve));
  }
  return list;
}

// One model's curve: ratios to its own unpruned point, the seeds of a random order averaged.
struct ModelCurve {
  std::int64_t heads = 0;
  std::map<std::int64_t, std::vector<Sample>>
      at;  // fraction in millionths -> one a seed; perplexity: the ratio, seconds: the speed
  std::vector<double> removable;
};

std::int64_t Millionths(double fraction) { return std::llround(fraction * 1e6); }

void AddCurve(const Measured& curve, ModelCurve& model) {
  const Sample& whole = curve.samples.front();
  if (Millionths(whole.fraction) != 0) return;  // without the unpruned point there is nothing to compare with
  model.heads = curve.heads;
  double removable = 0;
  bool within = true;
  for (const Sample& sample : curve.samples) {
    const double ratio = sample.perplexity / whole.perplexity;
    within = within && ratio <= kTolerance;  // NaN ends it
    if (within) removable = sample.fraction;
    model.at[Millionths(sample.fraction)].push_back(
        {sample.fraction, ratio, sample.loss_increase,
         sample.seconds > 0 ? whole.seconds / sample.seconds : kNaN});
  }
  model.removable.push_back(removable);
}

template <class Get>
double MeanOf(const std::vector<Sample>& samples, Get get) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(get(sample));
  return MeanWithInterval(values).mean;
}

PruningCurve Average(const std::string& group, const std::string& order,
                     const std::vector<const ModelCurve*>& models) {
  PruningCurve curve;
  curve.group = group;
  curve.order = order;
  curve.models = static_cast<int>(models.size());
  curve.heads = kNaN;
  std::set<std::int64_t> fractions, heads;
  std::vector<double> removable;
  for (const ModelCurve* model : models) {
    for (const auto& [fraction, samples] : model->at) fractions.insert(fraction);
    heads.insert(model->heads);
    removable.push_back(MeanWithInterval(model->removable).mean);
  }
  if (heads.size() == 1) curve.heads = static_cast<double>(*heads.begin());
  curve.removable = MeanWithInterval(removable);
  curve.removable_low = *std::min_element(removable.begin(), removable.end());
  curve.removable_high = *std::max_element(removable.begin(), removable.end());
  for (const std::int64_t fraction : fractions) {
    std::vector<double> ratios, increases, speeds;
    for (const ModelCurve* model : models) {
      const auto samples = model->at.find(fraction);
      if (samples == model->at.end()) continue;
      ratios.push_back(MeanOf(samples->second, [](const Sample& s) { return s.perplexity; }));
      increases.push_back(MeanOf(samples->second, [](const Sample& s) { return s.loss_increase; }));
      speeds.push_back(MeanOf(samples->second, [](const Sample& s) { return s.seconds; }));
    }
    curve.points.push_back({static_cast<double>(fraction) * 1e-6, MeanWithInterval(ratios),
                            MeanWithInterval(increases), MeanWithInterval(speeds)});
  }
  return curve;
}

}  // namespace

Pruning FindPruning(const ResultsFile& results, const Quality& quality) {
  std::map<std::string, std::map<std::string, ModelCurve>> models;  // order -> trial -> curve
  std::vector<std::string> orders;
  for (const Measured& curve : ReadCurves(results)) {
    if (std::find(orders.begin(), orders.end(), curve.order) == orders.end()) orders.push_back(curve.order);
    AddCurve(curve, models[curve.order][curve.trial]);
  }
  Pruning pruning;
  for (const std::string& order : orders) {
    std::vector<const ModelCurve*> pooled;
    for (const auto& [trial, model] : models[order]) {
      if (model.heads >= kPooledHeads) pooled.push_back(&model);
    }
    if (!pooled.empty()) {
      pruning.pooled.push_back(
          Average(fmt::format("all models with at least {} heads", kPooledHeads), order, pooled));
    }
  }
  for (const QualityLine& line : quality.lines) {
    for (const QualityPoint& point : line.points) {
      for (const std::string& order : orders) {
        std::vector<const ModelCurve*> group;
        for (const std::string& trial : point.trials) {
          const auto model = models[order].find(trial);
          if (model != models[order].end() && model->second.heads > 0) group.push_back(&model->second);
        }
        if (!group.empty()) pruning.groups.push_back(Average(Describe(quality, line, point), order, group));
      }
    }
  }
  return pruning;
}

}  // namespace headsweep
