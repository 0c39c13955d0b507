#include "trainer/step_runner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cluster/base/errors.h"
#include "trainer/micro_batches.h"
#include "trainer/replicas.h"
#include "trainer/schedule.h"

namespace headsweep {
namespace {

// One NaN is as good as another, but digests compare bits.
double OneKindOfNaN(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

}  // namespace

// Several processes agree about each step before the next one, so none runs ahead.
StepRunner::StepRunner(const StageContext& context, BatchSource& source, Model& model, Optimizer& optimizer,
                       int micro_batch)
    : context_(context),
      config_(context.config.train),
      source_(source),
      model_(model),
      optimizer_(optimizer),
      exchange_(context.collective, model, std::int64_t{context.config.run.bucket_megabytes} << 20),
      micro_batch_(micro_batch),
      ahead_(World() == 1 && model.backend().RunsBehind() ? 1 : 0) {
  const auto [begin, end] = ShardOf(config_.batch, context_.collective.rank(), World());
  for (Step& step : steps_)
    step.numbers = model.backend().MakeMailbox((end - begin) * model.shape().length + 1);
}

void StepRunner::Enqueue(std::int64_t number, const std::function<void()>& before_update) {
  HEADSWEEP_CHECK(pending() < 2, "{} steps are pending", pending());
  Step& step = steps_[enqueued_++ % 2];
  step.started = clock_.Monotonic();
  step.row = StepRow{};
  step.row.step = number;
  step.row.targets = ReadShare();
  step.row.learning_rate = LearningRate(config_, number);
  EnqueueGradients(step);
  before_update();
  const float* norm = optimizer_.Clip();
  optimizer_.Update(step.row.learning_rate, number);
  if (World() > 1 && context_.config.run.shard_optimizer) GatherWeights(context_.collective, model_);
  step.numbers->Post(std::int64_t{step.B} * step.T, norm, 1);
}

// batch_ = this process's rows of the next effective batch. Returns the targets of the whole one: the mean is
// over them, so uneven shares are exact.
std::int64_t StepRunner::ReadShare() {
  const auto [begin, end] = ShardOf(config_.batch, context_.collective.rank(), World());
  const std::int64_t targets = source_.TargetsOfNext(config_.batch);
  source_.Skip(begin);
  source_.Next(static_cast<int>(end - begin), batch_);
  source_.Skip(config_.batch - end);
  batch_.first_example = begin;
  return targets;
}

// Gradients of the mean loss over all targets of the effective batch. Sums of gradients leave while the last
// piece's backward pass runs.
void StepRunner::EnqueueGradients(Step& step) {
  ForwardBackwardOptions options;
  options.gradient_scale = 1.0f / static_cast<float>(std::max<std::int64_t>(1, step.row.targets));
  options.label_smoothing = static_cast<float>(config_.label_smoothing);
  options.dropout = static_cast<float>(context_.config.model.dropout);
  options.seed = context_.config.seed;
  options.step = step.row.step;
  step.B = batch_.B;
  step.T = batch_.T;
  model_.ZeroGradients();
  for (int first = 0; first < batch_.B; first += micro_batch_) {
    const int count = std::min(micro_batch_, batch_.B - first);
    if (first + count == batch_.B && World() > 1)
      options.on_layer_done = [this](int layer) { exchange_.LayerDone(layer); };
    if (count < batch_.B) CutBatch(batch_, first, count, part_);
    model_.ForwardBackward(count < batch_.B ? part_ : batch_, options, *step.numbers,
                           std::int64_t{first} * batch_.T);
  }
  if (World() > 1) exchange_.Finish();
}

StepRow StepRunner::Collect() {
  HEADSWEEP_CHECK(pending() > 0, "no step is pending");
  Step& step = steps_[collected_++ % 2];
  const float* numbers = step.numbers->Wait();
  double loss = SumOfLosses(step, numbers);
  if (World() > 1) {
    double sums[] = {loss, context_.stop ? 1.0 : 0.0};
    context_.collective.AllReduceSum(sums, 2);
    loss = sums[0];
    stop_agreed_ = sums[1] > 0;
  }
  StepRow& row = step.row;
  row.loss = OneKindOfNaN(loss / static_cast<double>(std::max<std::int64_t>(1, row.targets)));
  row.gradient_norm = OneKindOfNaN(numbers[std::int64_t{step.B} * step.T]);
  const double now = clock_.Monotonic();
  row.seconds = now - std::max(step.started, last_collected_);
  row.tokens_per_second = row.seconds > 0 ? static_cast<double>(row.targets) / row.seconds : 0;
  last_collected_ = now;
  return row;
}

// Piece by piece, each in order, in float64: the same bits wherever the numbers come from.
double StepRunner::SumOfLosses(const Step& step, const float* losses) const {
  double sum = 0;
  for (int first = 0; first < step.B; first += micro_batch_) {
    double of_piece = 0;
    const std::int64_t count = std::int64_t{std::min(micro_batch_, step.B - first)} * step.T;
    for (std::int64_t i = 0; i < count; ++i) of_piece += *losses++;
    sum += of_piece;
  }
  return sum;
}

}  // namespace headsweep
