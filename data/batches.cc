#include "data/batches.h"

#include <algorithm>

#include "cluster/base/errors.h"
#include "data/permutation.h"
#include "data/token_format.h"

namespace headsweep {
namespace {

std::int64_t CountExamples(const TokenFile& file, Packing packing, int T, bool shuffle) {
  if (packing == Packing::kSentence) return file.sentences();
  // In training the tail shorter than T is left out (rows stay full); evaluation must predict every token.
  if (shuffle) return std::max<std::int64_t>(file.size() / T, file.size() > 0 ? 1 : 0);
  return (file.size() + T - 1) / T;
}

// Both packings are windows of the file: predict tokens [begin, end); the input before the first is `start`.
struct Window {
  std::int64_t begin;
  std::int64_t end;
  std::int32_t start;
};

Window WindowOf(const TokenFile& file, Packing packing, int T, std::int64_t example) {
  if (packing == Packing::kSentence) {
    const std::int64_t begin = file.SentenceStart(example);
    return {begin, std::min(file.SentenceStart(example + 1), begin + T), kBeginToken};
  }
  const std::int64_t begin = example * T;
  return {begin, std::min(file.size(), begin + T), begin == 0 ? kEndToken : file[begin - 1]};
}

}  // namespace

BatchSource::BatchSource(const TokenFile& file, Packing packing, int T, std::uint64_t seed, bool shuffle)
    : file_(file), packing_(packing), T_(T), seed_(seed), shuffle_(shuffle) {
  if (T < 1) throw ConfigError(fmt::format("length of an example is {}, must be at least 1", T));
  examples_ = CountExamples(file, packing, T, shuffle);
  if (examples_ == 0) throw ConfigError("a split without any sentence: give a longer text");
}

std::int64_t BatchSource::targets() const {
  std::int64_t sum = 0;
  if (packing_ == Packing::kStream) return std::min(file_.size(), examples_ * T_);
  for (std::int64_t i = 0; i < examples_; ++i)
    sum += std::min<std::int64_t>(T_, file_.SentenceStart(i + 1) - file_.SentenceStart(i));
  return sum;
}

std::int64_t BatchSource::ExampleAt(std::int64_t epoch, std::int64_t position) const {
  return shuffle_ ? Permutation(examples_, seed_, epoch)(position) : position;
}

bool BatchSource::Next(int count, Batch& batch) {
  HEADSWEEP_CHECK(count >= 1, "a batch of {} examples", count);
  const int B =
      shuffle_ ? count : static_cast<int>(std::min<std::int64_t>(count, examples_ - cursor_.position));
  if (B <= 0) return false;
  batch.B = B;
  batch.T = T_;
  batch.first_example = 0;
  batch.target_count = 0;
  batch.tokens.resize(static_cast<std::size_t>(B) * T_);
  batch.targets.resize(static_cast<std::size_t>(B) * T_);
  batch.lengths.resize(B);
  for (int row = 0; row < B; ++row) {
    FillRow(ExampleAt(cursor_.epoch, cursor_.position), row, batch);
    Skip(1);
  }
  if (batch.target_count == static_cast<std::int64_t>(B) * T_) batch.lengths.clear();
  return true;
}

void BatchSource::FillRow(std::int64_t example, int row, Batch& batch) const {
  const Window window = WindowOf(file_, packing_, T_, example);
  std::int32_t* tokens = batch.tokens.data() + static_cast<std::size_t>(row) * T_;
  std::int32_t* targets = batch.targets.data() + static_cast<std::size_t>(row) * T_;
  const int length = static_cast<int>(window.end - window.begin);
  std::int32_t input = window.start;
  for (int t = 0; t < length; ++t) {
    tokens[t] = input;
    targets[t] = input = file_[window.begin + t];
  }
  std::fill(tokens + length, tokens + T_, kPadToken);
  std::fill(targets + length, targets + T_, -1);
  batch.lengths[row] = length;
  batch.target_count += length;
}

std::int64_t BatchSource::TargetsOfNext(int count) const {
  HEADSWEEP_CHECK(shuffle_, "only training looks ahead");
  std::int64_t targets = 0;
  BatchCursor at = cursor_;
  for (int i = 0; i < count; ++i) {
    const Window window = WindowOf(file_, packing_, T_, ExampleAt(at.epoch, at.position));
    targets += window.end - window.begin;
    if (++at.position == examples_) at = {at.epoch + 1, 0};
  }
  return targets;
}

void BatchSource::Skip(std::int64_t count) { Seek({cursor_.epoch, cursor_.position + count}); }

void BatchSource::Seek(const BatchCursor& cursor) {
  HEADSWEEP_CHECK(cursor.epoch >= 0 && cursor.position >= 0, "cursor at epoch {}, position {}", cursor.epoch,
                  cursor.position);
  cursor_ = cursor;
  if (shuffle_) {
    cursor_.epoch += cursor_.position / examples_;
    cursor_.position %= examples_;
  } else {
    cursor_.position = std::min(cursor_.position, examples_);
  }
}

}  // namespace headsweep
