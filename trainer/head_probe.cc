#include "trainer/head_probe.h"

#include "cluster/base/errors.h"
#include "trainer/head_surgery.h"

namespace headsweep {

ModelProbe::ModelProbe(Backend& backend, BatchPasses& passes, const ModelShape& shape,
                       const std::vector<float>& parameters, std::span<const Batch> sample,
                       const std::string& per)
    : backend_(backend),
      passes_(passes),
      shape_(shape),
      parameters_(parameters),
      sample_(sample),
      per_token_(per == "token") {
  if (per != "token" && per != "example")
    throw ConfigError(fmt::format("prune.per = \"{}\": expected \"example\" or \"token\"", per));
}

std::vector<double> ModelProbe::Importance(const std::vector<HeadIndex>& removed) {
  passes_.Announce(1, sample_);
  const PrunedModel pruned = RemoveHeads(shape_, parameters_, removed);
  Model model(backend_, pruned.shape, LargestBatch(sample_), Model::Purpose::kTrain);
  model.SetParameters(pruned.parameters);
  model.ZeroGradients();
  const HeadScores sums = passes_.Importance(model, sample_);

  const std::vector<HeadIndex> kept = KeptHeads(shape_, removed);
  std::vector<double> scores(shape_.total_heads(), 0.0);
  for (std::size_t i = 0; i < kept.size(); ++i)
    scores[FlatHead(shape_, kept[i])] = per_token_ ? sums.per_token[i] / static_cast<double>(sums.tokens)
                                                   : sums.per_example[i] / static_cast<double>(sums.examples);
  if (removed.empty() && importance_.empty()) {
    const std::vector<double> magnitudes = Magnitudes();
    for (std::size_t i = 0; i < kept.size(); ++i) {
      ImportanceRow row;
      row.layer = kept[i].layer;
      row.head = kept[i].head;
      row.per_example = sums.per_example[i] / static_cast<double>(sums.examples);
      row.per_token = sums.per_token[i] / static_cast<double>(sums.tokens);
      row.magnitude = magnitudes[i];
      importance_.push_back(row);
    }
  }
  return scores;
}

std::vector<double> ModelProbe::AblationLosses() {
  const int heads = shape_.total_heads();
  passes_.Announce(heads + 1, sample_);
  Model model(backend_, shape_, LargestBatch(sample_), Model::Purpose::kEvaluate);
  model.SetParameters(parameters_);
  const auto nll = [&] {
    const LossSum sum = passes_.Loss(model, sample_);
    return sum.loss / static_cast<double>(sum.targets);
  };
  const double with_all = nll();
  std::vector<double> losses;
  ablation_.clear();
  for (int flat = 0; flat < heads; ++flat) {
    const HeadIndex head = HeadAt(shape_, flat);
    model.SetGates(GatesFor(shape_, {head}));
    AblationRow row;
    row.layer = head.layer;
    row.head = head.head;
    row.nll = nll();
    row.loss_increase = row.nll - with_all;
    ablation_.push_back(row);
    losses.push_back(row.loss_increase);
  }
  return losses;
}

std::vector<double> ModelProbe::Magnitudes() { return HeadMagnitudes(shape_, parameters_); }

}  // namespace headsweep
