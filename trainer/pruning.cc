// RunPruneStage (stage.h): one pruning order on one trained model, from the parent's checkpoint to a sealed
// result.h5.
#include <algorithm>
#include <limits>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/memory.h"
#include "trainer/batch_passes.h"
#include "trainer/checkpoint.h"
#include "trainer/control_protocol.h"
#include "trainer/head_orders.h"
#include "trainer/head_probe.h"
#include "trainer/head_surgery.h"
#include "trainer/pruning_curve.h"
#include "trainer/stage.h"
#include "trainer/stage_files.h"

namespace headsweep {
namespace {

// One run of a prune stage. Everything it computes is a function of its configuration, the data and the
// parent's weights, so a stage that was stopped or killed simply starts over and ends with the same digest;
// it has no checkpoint of its own.
class PruneStage {
 public:
  explicit PruneStage(const StageContext& context)
      : context_(context),
        provenance_(MakeProvenance(context)),
        passes_(context.collective, context.stop,
                [this](const PassProgress& progress) { Report(progress); }) {}

  StageOutcome Run();

 private:
  void ReadTrained();
  HeadOrder OrderHeads();
  void RecordImportance(const std::vector<ImportanceRow>& rows);
  void RecordOrder(const HeadOrder& order);
  StageSummary Summarize() const;

  // `examples` of a split; 0 = all, in order.
  std::vector<Batch> Read(const std::string& split, int examples) const;
  void Report(const PassProgress& progress) const;
  const PruneConfig& config() const { return context_.config.prune; }

  const StageContext& context_;
  const Provenance provenance_;
  const double started_ = SystemClock().Monotonic();
  PrunedModel trained_;  // nothing removed yet
  BatchPasses passes_;
  StageTables tables_;
  std::string phase_ = "score";
};

StageOutcome PruneStage::Run() {
  ReadTrained();
  const std::vector<Batch> test = Read("test", config().evaluate_examples);
  const int passes = CurvePasses(trained_.shape, config());
  passes_.Announce(passes, test);
  context_.reporter.Started(0, passes * static_cast<std::int64_t>(test.size()));

  const HeadOrder order = OrderHeads();
  phase_ = "prune";
  tables_.pruning =
      MeasureCurve(context_.backend, passes_, trained_, order, config(), test, context_.corpus.test);

  StageOutcome outcome;
  outcome.outcome = control::kFinished;
  outcome.summary = Summarize();
  if (context_.collective.rank() == 0) SealResult(context_, provenance_, tables_, outcome.summary);
  context_.collective.Barrier();
  return outcome;
}

// The parent's checkpoint of its final step: an older one would be another model.
void PruneStage::ReadTrained() {
  const StageConfig& stage = context_.config;
  const std::string path =
      fmt::format("{}/{}/checkpoint/step-{}", context_.trials_root, stage.parent, stage.train.steps);
  if (!context_.files.Exists(path))
    throw ConfigError(
        fmt::format("{}: no such checkpoint; train stage {} must finish before its heads can be pruned", path,
                    stage.parent));
  Checkpoint checkpoint = ReadCheckpoint(context_.files, path, stage.parent);
  if (checkpoint.shape != MakeModelShape(stage, context_.corpus.vocabulary))
    throw ConfigError(
        fmt::format("{}: this model has another shape than prune stage {} asks for", path, stage.id));
  trained_ = {std::move(checkpoint.shape), std::move(checkpoint.parameters)};
}

HeadOrder PruneStage::OrderHeads() {
  const std::vector<Batch> sample = Read("valid", config().score_examples);
  ModelProbe probe(context_.backend, passes_, trained_.shape, trained_.parameters, sample, config().per);
  HeadOrder order = MakeHeadOrder(probe, config());
  RecordImportance(probe.importance());
  tables_.ablation = probe.ablation();
  RecordOrder(order);
  return order;
}

void PruneStage::RecordImportance(const std::vector<ImportanceRow>& rows) {
  tables_.importance = rows;
  if (rows.empty()) return;
  std::vector<double> scores;
  for (const ImportanceRow& row : rows)
    scores.push_back(config().per == "token" ? row.per_token : row.per_example);
  if (config().normalize == "layer") scores = NormalizeByLayer(trained_.shape, std::move(scores));
  for (std::size_t i = 0; i < scores.size(); ++i) {
    tables_.importance[i].step = context_.config.train.steps;
    tables_.importance[i].normalized = scores[i];
  }
}

void PruneStage::RecordOrder(const HeadOrder& order) {
  for (std::size_t i = 0; i < order.heads.size(); ++i) {
    RemovalRow row;
    row.order = config().order;
    row.order_seed = config().seed;
    row.position = static_cast<std::int64_t>(i);
    row.layer = order.heads[i].layer;
    row.head = order.heads[i].head;
    row.score = order.scores[i];
    tables_.removal.push_back(row);
  }
}

StageSummary PruneStage::Summarize() const {
  const PruningRow& whole = tables_.pruning.front();
  const PruningRow& half = *std::find_if(tables_.pruning.begin(), tables_.pruning.end(),
                                         [](const PruningRow& row) { return row.fraction >= 0.5; });
  StageSummary summary;
  summary.outcome = control::kFinished;
  summary.weights_checksum = WeightsChecksum(trained_.parameters);
  summary.digest = TablesDigest(tables_, summary.weights_checksum);
  summary.parameters = static_cast<std::int64_t>(trained_.parameters.size());
  summary.valid_nll = summary.valid_perplexity = std::numeric_limits<double>::quiet_NaN();  // not evaluated
  summary.test_nll = whole.nll;
  summary.test_perplexity = whole.perplexity_per_word;
  summary.train_seconds = SystemClock().Monotonic() - started_;
  summary.peak_memory_bytes = context_.backend.PeakDeviceMemory().value_or(PeakMemoryBytes());
  summary.summary_line = fmt::format(
      "{}: without {} of {} heads the test loss is {:.4f} instead of {:.4f}, perplexity per word {:.2f} "
      "instead of {:.2f}",
      config().order, half.heads_removed, trained_.shape.total_heads(), half.nll, whole.nll,
      half.perplexity_per_word, whole.perplexity_per_word);
  return summary;
}

// A part of a split is a random sample of it, the same for all stages: the start of a text is one book, one
// author, …
std::vector<Batch> PruneStage::Read(const std::string& split, int examples) const {
  const TokenFile file(context_.corpus.TokensPath(split));
  return ReadBatches(file, context_.config.task, examples, /*shuffle=*/examples > 0);
}

void PruneStage::Report(const PassProgress& progress) const {
  const double seconds = SystemClock().Monotonic() - started_;
  context_.reporter.Progress(phase_, progress.batches_done, progress.batches_known, progress.loss,
                             seconds > 0 ? static_cast<double>(progress.tokens) / seconds : 0);
}

}  // namespace

StageOutcome RunPruneStage(const StageContext& context) {
  try {
    return PruneStage(context).Run();
  } catch (const PassesStopped&) {
    return {control::kStopped, {}};
  }
}

}  // namespace headsweep
