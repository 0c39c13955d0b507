#include "trainer/batch_passes.h"

#include <algorithm>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// Measured on a CPU (4 layers, width 128, 4000 pieces): 512 to 4096 rows are equally fast, and the memory of
// a model, which a short stage touches for the first time, grows with them. A constant, so that results do
// not depend on the machine.
constexpr int kRowsPerBatch = 512;

// Of the fixed random sample. Any number does; the same one for all stages, so that their scores can be
// compared.
constexpr std::uint64_t kSampleSeed = 0;

}  // namespace

std::vector<Batch> ReadBatches(const TokenFile& file, const TaskConfig& task, std::int64_t wanted,
                               bool shuffle) {
  const Packing packing = task.packing == "sentence" ? Packing::kSentence : Packing::kStream;
  BatchSource source(file, packing, task.length, kSampleSeed, shuffle);
  std::int64_t left = wanted > 0 ? std::min(wanted, source.examples()) : source.examples();
  const std::int64_t most = std::max(1, kRowsPerBatch / task.length);
  std::vector<Batch> batches;
  while (left > 0) {
    Batch batch;
    HEADSWEEP_CHECK(source.Next(static_cast<int>(std::min(left, most)), batch),
                    "the source promised {} more examples", left);
    left -= batch.B;
    batches.push_back(std::move(batch));
  }
  return batches;
}

int LargestBatch(std::span<const Batch> batches) {
  int most = 1;
  for (const Batch& batch : batches) most = std::max(most, batch.B);
  return most;
}

BatchPasses::BatchPasses(Collective& collective, const std::atomic<bool>& stop,
                         std::function<void(const PassProgress&)> after_batch)
    : collective_(collective), stop_(stop), after_batch_(std::move(after_batch)) {}

void BatchPasses::Announce(int passes, std::span<const Batch> batches) {
  for (std::size_t i = 0; i < batches.size(); ++i)
    if (IsMine(i)) progress_.batches_known += passes;
}

LossSum BatchPasses::Loss(Model& model, std::span<const Batch> batches) {
  std::vector<double> losses(batches.size(), 0.0);
  LossSum sum;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    sum.targets += batches[i].target_count;
    if (!IsMine(i)) continue;
    const LossSum loss = model.Evaluate(batches[i]);
    losses[i] = loss.loss;
    Finish(loss);
  }
  Exchange(losses);
  for (const double loss : losses) sum.loss += loss;
  return sum;
}

HeadScores BatchPasses::Importance(Model& model, std::span<const Batch> batches) {
  const std::size_t heads = model.shape().total_heads();
  const std::size_t width = 3 * heads + 1;
  std::vector<double> sums(batches.size() * width, 0.0);  // (batch, scores by kind and head | examples)
  HeadScores total;
  for (auto* scores : {&total.per_example, &total.per_token, &total.squares}) scores->assign(heads, 0.0);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    total.tokens += batches[i].target_count;
    if (!IsMine(i)) continue;
    HeadScores scores;
    ForwardBackwardOptions options;
    options.gradient_scale = 1.0f / static_cast<float>(std::max<std::int64_t>(1, batches[i].target_count));
    options.scores = &scores;
    const LossSum loss = model.ForwardBackward(batches[i], options);
    auto out = sums.begin() + static_cast<std::ptrdiff_t>(i * width);
    for (const auto* kind : {&scores.per_example, &scores.per_token, &scores.squares}) {
      HEADSWEEP_CHECK(kind->size() == heads, "{} scores for {} heads", kind->size(), heads);
      out = std::copy(kind->begin(), kind->end(), out);
    }
    *out = static_cast<double>(scores.examples);
    Finish(loss);
  }
  Exchange(sums);
  auto in = sums.begin();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    for (auto* kind : {&total.per_example, &total.per_token, &total.squares})
      for (double& score : *kind) score += *in++;
    total.examples += static_cast<std::int64_t>(*in++);
  }
  return total;
}

bool BatchPasses::IsMine(std::size_t batch) const {
  return static_cast<int>(batch % collective_.world_size()) == collective_.rank();
}

void BatchPasses::Finish(const LossSum& loss) {
  ++progress_.batches_done;
  progress_.batches_known = std::max(progress_.batches_known, progress_.batches_done);
  progress_.tokens += loss.targets;
  progress_.loss = loss.targets > 0 ? loss.loss / static_cast<double>(loss.targets) : 0;
  after_batch_(progress_);
  if (collective_.world_size() == 1 && stop_) throw PassesStopped{};
}

// Adding zeros of the ranks that did not run a batch changes no bit of it.
void BatchPasses::Exchange(std::vector<double>& values) {
  if (collective_.world_size() == 1) return;
  values.push_back(stop_ ? 1.0 : 0.0);
  collective_.AllReduceSum(values.data(), static_cast<std::int64_t>(values.size()));
  if (values.back() > 0) throw PassesStopped{};
  values.pop_back();
}

}  // namespace headsweep
