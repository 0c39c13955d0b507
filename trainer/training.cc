// The training stage: steps, evaluations, checkpoints, resume. Everything that a resumed run must repeat is a
// function of the configuration and the step (random numbers, learning rate) or lies in the checkpoint
// (weights, moments, cursor, history).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/log.h"
#include "cluster/base/memory.h"
#include "data/scores.h"
#include "trainer/batch_passes.h"
#include "trainer/checkpoint.h"
#include "trainer/control_protocol.h"
#include "trainer/flops.h"
#include "trainer/head_orders.h"
#include "trainer/head_surgery.h"
#include "trainer/micro_batches.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/replicas.h"
#include "trainer/stage.h"
#include "trainer/stage_files.h"
#include "trainer/step_runner.h"
#include "trainer/training_memory.h"

namespace headsweep {
namespace {

constexpr int kCheckpointsKept = 2;  // the newest, and one before in case its disk block goes bad
constexpr int kImportanceExamples =
    16;  // scored at each evaluation: a few, since only the course over time is wanted

TokenFile OpenSplit(const StageContext& context, const std::string& split) {
  TokenFile file(context.corpus.TokensPath(split));
  if (file.vocabulary() != context.corpus.vocabulary) {
    throw ConfigError(
        fmt::format("{} has {} pieces, corpus.json beside it says {}: remove {} to have it prepared again",
                    context.corpus.TokensPath(split), file.vocabulary(), context.corpus.vocabulary,
                    context.corpus.directory));
  }
  return file;
}

Packing PackingOf(const TaskConfig& task) {
  return task.packing == "sentence" ? Packing::kSentence : Packing::kStream;
}

class TrainStage {
 public:
  explicit TrainStage(const StageContext& context)
      : context_(context),
        config_(context.config.train),
        micro_batch_(MicroBatch(config_, World())),
        shape_(MakeModelShape(context.config, context.corpus.vocabulary)),
        train_file_(OpenSplit(context, "train")),
        source_(train_file_, PackingOf(context.config.task), shape_.length, context.config.seed,
                /*shuffle=*/true),
        model_(MakeModel()),
        shard_(context.config.run.shard_optimizer
                   ? ShardOf(model_->layout().size(), context.collective.rank(), World())
                   : std::pair(std::int64_t{0}, model_->layout().size())),
        optimizer_(*model_, config_, shard_.first, shard_.second),
        steps_(context, source_, *model_, optimizer_, micro_batch_),
        provenance_(MakeProvenance(context)),
        passes_(context.collective, context.stop,
                [this](const PassProgress& progress) { OnPass(progress); }) {
    const TaskConfig& task = context.config.task;
    const TokenFile valid = OpenSplit(context, "valid"), test = OpenSplit(context, "test");
    const std::int64_t wanted = config_.evaluate_examples;
    valid_ = CutBatches(ReadBatches(valid, task, wanted, /*shuffle=*/wanted > 0), micro_batch_);
    test_ = CutBatches(ReadBatches(test, task, 0, /*shuffle=*/false), micro_batch_);  // always whole
    scored_ = CutBatches(ReadBatches(valid, task, kImportanceExamples, /*shuffle=*/true), micro_batch_);
    history_.steps.reserve(static_cast<std::size_t>(config_.steps));
  }

  StageOutcome Run() {
    Resume();
    if (IsWriter()) metrics_.emplace(JoinPath(context_.attempt_directory, "metrics.h5"), provenance_);
    context_.reporter.Started(step_, config_.steps);
    try {
      while (true) {
        if (EvaluationIsDue() && !(Collect(0) && Evaluate("valid", valid_))) return Diverged();
        if (step_ == config_.steps) break;
        if (steps_.stop_agreed() || (World() == 1 && context_.stop))
          return Collect(0) ? Stopped() : Diverged();
        if (step_ > 0 && step_ % config_.checkpoint_every == 0)
          steps_.ahead() > 0 ? BeginCheckpoint() : WriteCheckpointNow();
        if (!Step()) return Diverged();
      }
      if (!IsEvaluated("test") && !Evaluate("test", test_)) return Diverged();
    } catch (const PassesStopped&) {
      return Stopped();
    }
    WriteCheckpointNow();
    return Finish(control::kFinished);
  }

 private:
  std::unique_ptr<Model> MakeModel() {
    Backend& backend = context_.backend;
    // Host memory is promised generously and taken by the kernel's killer later, and a device that refuses
    // does not say what would fit: look first.
    RequireTrainingMemory(backend, shape_, config_,
                          {.process = AvailableMemoryBytes(), .device = backend.FreeDeviceMemory()}, World(),
                          context_.config.run.shard_optimizer ? World() : 1);
    try {
      return std::make_unique<Model>(backend, shape_, micro_batch_, Model::Purpose::kTrain);
    } catch (const std::bad_alloc&) {
      throw OutOfMemory(fmt::format(
          "the device refused the {} that training {} examples at a time needs; try train.micro_batch = {}",
          FormatBytes(TrainingBytes(backend, shape_, micro_batch_)), micro_batch_,
          std::max(1, micro_batch_ / 2)));
    }
  }

  bool IsWriter() const { return context_.collective.rank() == 0; }
  int World() const { return context_.collective.world_size(); }

  // --- Resume and checkpoints ---

  void Resume() {
    const std::string mine =
        IsWriter() ? LatestCheckpoint(context_.files, CheckpointRoot(context_)).value_or("") : "";
    const std::string path =
        context_.collective.AllGather(mine).front();  // all ranks continue from the same one
    if (path.empty()) {
      model_->Initialize(context_.config.seed);
      return;
    }
    Checkpoint checkpoint = ReadCheckpoint(context_.files, path, context_.config.id);
    if (!(checkpoint.shape == shape_) || checkpoint.m.empty()) {
      throw ConfigError(fmt::format("checkpoint {} is not of a training run of this model; remove it", path));
    }
    model_->SetParameters(checkpoint.parameters);
    optimizer_.SetMoments(checkpoint.m, checkpoint.v);
    source_.Seek(checkpoint.cursor);
    step_ = checkpointed_ = checkpoint.step;
    train_seconds_ = checkpoint.train_seconds;
    checkpoint.history.steps.reserve(static_cast<std::size_t>(config_.steps));
    history_ = std::move(checkpoint.history);
    LogInfo("continuing at step {} of {} from {}", step_, config_.steps, path);
  }

  void WriteCheckpointNow() {
    BeginCheckpoint();
    CopyCheckpoint();
    SealCheckpoint();
  }

  // A checkpoint is begun when its step is enqueued, copied out before the next step's update is, and sealed
  // when its step's numbers are known: meanwhile the next step runs.
  void BeginCheckpoint() {
    if (checkpointed_ == step_) return;
    checkpointed_ = step_;
    Checkpoint& checkpoint = checkpoint_.emplace();
    checkpoint.shape = shape_;
    checkpoint.stage_id = context_.config.id;
    checkpoint.step = step_;
    checkpoint.cursor = source_.cursor();
    context_.backend.Mark();
  }

  void CopyCheckpoint() {
    if (!checkpoint_) return;
    checkpoint_->parameters = model_->GetParameters(AsOf::kMark);
    RequireEqualReplicas(context_.collective, checkpoint_->parameters, checkpoint_->step);
    const bool is_sharded = context_.config.run.shard_optimizer;
    if (is_sharded || IsWriter()) {
      checkpoint_->m = optimizer_.GetM(AsOf::kMark);
      checkpoint_->v = optimizer_.GetV(AsOf::kMark);
    }
    if (is_sharded) {
      GatherShards(context_.collective, checkpoint_->m);
      GatherShards(context_.collective, checkpoint_->v);
    }
  }

  void SealCheckpoint() {
    FlushMetrics();
    if (checkpoint_ && IsWriter()) {
      checkpoint_->history = history_;
      checkpoint_->train_seconds = train_seconds_;
      const std::string path = WriteCheckpoint(context_.files, CheckpointRoot(context_), *checkpoint_,
                                               provenance_, kCheckpointsKept, context_.fence);
      context_.reporter.Checkpointed(checkpoint_->step, path);
    }
    checkpoint_.reset();
  }

  void FlushMetrics() {
    if (metrics_) metrics_->Append(history_);
  }

  // --- Steps ---

  // False: the loss or the gradient of this step, or of the one before, is not a finite number.
  bool Step() {
    steps_.Enqueue(++step_, [this] { CopyCheckpoint(); });
    if (!Collect(steps_.ahead())) return false;
    if (checkpoint_) SealCheckpoint();
    return true;
  }

  // Looks at enqueued steps until so many are left. False: a loss or gradient norm is not a finite number;
  // the weights are those before that step, which is now the last.
  bool Collect(int left) {
    while (steps_.pending() > left) {
      const StepRow row = steps_.Collect();
      train_seconds_ += row.seconds;
      history_.steps.push_back(row);
      context_.reporter.Progress("train", row.step, config_.steps, row.loss, row.tokens_per_second);
      if (!std::isfinite(row.loss) || !std::isfinite(row.gradient_norm)) {
        step_ = row.step;
        return false;
      }
    }
    return true;
  }

  // One NaN is as good as another, but digests compare bits.
  static double Finite(double value) {
    return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
  }

  // --- Evaluation ---

  bool IsEvaluated(const std::string& split) const {
    return std::any_of(history_.evaluations.begin(), history_.evaluations.end(),
                       [&](const EvaluationRow& row) { return row.step == step_ && row.split == split; });
  }

  bool EvaluationIsDue() const {
    const bool due = step_ == config_.steps || (step_ > 0 && step_ % config_.evaluate_every == 0);
    return due && !IsEvaluated("valid");
  }

  void OnPass(const PassProgress& progress) {
    const double now = clock_.Monotonic() - pass_started_;
    const double tokens = static_cast<double>(progress.tokens - pass_tokens_);
    last_pass_tokens_ = progress.tokens;
    context_.reporter.Progress("evaluate", step_, config_.steps, progress.loss, now > 0 ? tokens / now : 0);
  }

  // Adds the rows of one evaluation (and, on the validation split, importance). False: the loss is not a
  // finite number.
  bool Evaluate(const std::string& split, std::span<const Batch> batches) {
    pass_started_ = clock_.Monotonic();
    pass_tokens_ = last_pass_tokens_;
    const LossSum sum = passes_.Loss(*model_, batches);
    EvaluationRow row;
    row.step = step_;
    row.split = split;
    row.pieces = sum.targets;
    row.nll = Finite(sum.loss / static_cast<double>(std::max<std::int64_t>(1, sum.targets)));
    row.seconds = clock_.Monotonic() - pass_started_;
    const bool sound = std::isfinite(row.nll);
    if (sound) {
      const SplitCounts& counts = split == "test" ? context_.corpus.test : context_.corpus.valid;
      row.perplexity_per_piece = PerplexityPerPiece(sum.loss, sum.targets);
      row.perplexity_per_word = PerplexityPerWord(sum.loss, sum.targets, counts);
      // Both or none: a stop while scoring leaves no half of an evaluation behind.
      if (split == "valid") AddImportance();
    } else {
      row.perplexity_per_piece = row.perplexity_per_word = std::numeric_limits<double>::quiet_NaN();
    }
    history_.evaluations.push_back(row);
    FlushMetrics();
    context_.reporter.Evaluated(row);
    return sound;
  }

  void AddImportance() {
    if (shape_.total_heads() == 0) return;
    const HeadScores sums = passes_.Importance(*model_, scored_);
    const std::vector<double> magnitudes = HeadMagnitudes(shape_, model_->GetParameters());
    std::vector<double> means = sums.per_example;
    for (double& mean : means) mean /= static_cast<double>(std::max<std::int64_t>(1, sums.examples));
    const std::vector<double> normalized = NormalizeByLayer(shape_, means);
    for (int flat = 0; flat < shape_.total_heads(); ++flat) {
      const auto i = static_cast<std::size_t>(flat);
      ImportanceRow row;
      row.step = step_;
      row.layer = HeadAt(shape_, flat).layer;
      row.head = HeadAt(shape_, flat).head;
      row.per_example = means[i];
      row.per_token = sums.per_token[i] / static_cast<double>(std::max<std::int64_t>(1, sums.tokens));
      row.normalized = normalized[i];
      row.magnitude = magnitudes[i];
      history_.importance.push_back(row);
    }
  }

  // --- Ends ---

  StageOutcome Stopped() {
    WriteCheckpointNow();
    context_.collective.Barrier();  // nobody leaves before the checkpoint is sealed
    return {control::kStopped, {}};
  }

  StageOutcome Diverged() {
    LogWarning("the loss is not a finite number at step {}: the run has diverged", step_);
    FlushMetrics();
    return Finish(control::kDiverged);
  }

  StageOutcome Finish(const std::string& outcome) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    StageSummary summary;
    summary.outcome = outcome;
    summary.weights_checksum = WeightsChecksum(model_->GetParameters());
    summary.digest = TablesDigest(history_, summary.weights_checksum);
    summary.parameters = model_->layout().size();
    summary.flops_per_step = TrainingStepFlops(shape_, config_.batch);
    summary.valid_nll = summary.valid_perplexity = summary.test_nll = summary.test_perplexity = nan;
    for (const EvaluationRow& row : history_.evaluations) {
      (row.split == "test" ? summary.test_nll : summary.valid_nll) = row.nll;
      (row.split == "test" ? summary.test_perplexity : summary.valid_perplexity) = row.perplexity_per_word;
    }
    summary.train_seconds = train_seconds_;
    summary.peak_memory_bytes = context_.backend.PeakDeviceMemory().value_or(PeakMemoryBytes());
    summary.summary_line = outcome == control::kDiverged
                               ? fmt::format("diverged at step {} of {}", step_, config_.steps)
                               : fmt::format(
                                     "perplexity per word {:.2f} valid, {:.2f} test; {} parameters, {} "
                                     "steps, {:.0f} s of training",
                                     summary.valid_perplexity, summary.test_perplexity, summary.parameters,
                                     step_, train_seconds_);
    if (IsWriter()) {
      metrics_->Close();
      SealResult(context_, provenance_, history_, summary);
    }
    context_.collective.Barrier();
    return {outcome, summary};
  }

  const StageContext& context_;
  const TrainConfig& config_;
  const int micro_batch_;
  const ModelShape shape_;
  TokenFile train_file_;
  BatchSource source_;
  std::unique_ptr<Model> model_;
  const std::pair<std::int64_t, std::int64_t> shard_;  // parameters that this process updates
  Optimizer optimizer_;
  StepRunner steps_;
  Provenance provenance_;
  BatchPasses passes_;
  std::optional<LiveMetrics> metrics_;  // of the writing rank
  SystemClock clock_;

  std::vector<Batch> valid_, test_, scored_;
  std::int64_t step_ = 0;           // optimiser steps enqueued
  std::int64_t checkpointed_ = -1;  // step of the newest checkpoint of this process
  std::optional<Checkpoint> checkpoint_;  // begun
  double train_seconds_ = 0;
  double pass_started_ = 0;
  std::int64_t pass_tokens_ = 0, last_pass_tokens_ = 0;
  StageTables history_;
};

}  // namespace

StageOutcome RunTrainStage(const StageContext& context) { return TrainStage(context).Run(); }

}  // namespace headsweep
