#include "trainer/optimizer.h"

#include <algorithm>
#include <array>

#include "cluster/base/errors.h"
#include "kernels/arena.h"

namespace headsweep {
namespace {

// A few floats beside the moments, each on a cache line of its own.
constexpr std::int64_t kScalars = 4;
constexpr std::int64_t kAlignment = 64;

std::int64_t Padded(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::int64_t Optimizer::PlannedBytes(std::int64_t parameters) {
  return 2 * Padded(parameters * std::int64_t{sizeof(float)}) + kScalars * kAlignment;
}

Optimizer::Optimizer(Model& model, const TrainConfig& config, std::int64_t begin, std::int64_t end)
    : model_(model), backend_(model.backend()), config_(config), begin_(begin), end_(end) {
  HEADSWEEP_CHECK(model.gradients() != nullptr, "an optimiser for a model without gradients");
  memory_ = backend_.Allocate(static_cast<std::size_t>(PlannedBytes(end - begin)));
  ArenaCursor arena(backend_, memory_);
  m_ = arena.Floats(end - begin);
  v_ = arena.Floats(end - begin);
  sum_of_squares_ = arena.Floats(1);
  norm_ = arena.Floats(1);
  clip_scale_ = arena.Floats(1);
  rates_ = arena.Floats(3);
}

Optimizer::~Optimizer() { backend_.Free(memory_); }

const float* Optimizer::Clip() {
  backend_.Repeat(clipping_, [this] {
    backend_.SumOfSquares(model_.gradients(), model_.layout().size(), sum_of_squares_);
    backend_.ClipScale(sum_of_squares_, static_cast<float>(config_.clip_norm), norm_, clip_scale_);
  });
  return norm_;
}

double Optimizer::GradientNorm() {
  float norm = 0;
  backend_.CopyOut(&norm, Clip(), 1);
  return norm;
}

Backend::AdamW Optimizer::Adam(double weight_decay) const {
  Backend::AdamW adam;
  adam.beta1 = static_cast<float>(config_.beta1);
  adam.beta2 = static_cast<float>(config_.beta2);
  adam.epsilon = static_cast<float>(config_.epsilon);
  adam.weight_decay = static_cast<float>(weight_decay);
  return adam;
}

void Optimizer::Update(double learning_rate, std::int64_t step) {
  const std::array<float, 3> rates = Adam(0).Rates(static_cast<float>(learning_rate), step);
  backend_.CopyIn(rates_, rates.data(), 3);
  backend_.Repeat(update_, [this] {
    const ParameterLayout& layout = model_.layout();
    UpdateRange(0, layout.decaying_size(), config_.weight_decay);
    UpdateRange(layout.decaying_size(), layout.size(), 0);
  });
}

void Optimizer::UpdateRange(std::int64_t from, std::int64_t to, double weight_decay) {
  const std::int64_t begin = std::max(from, begin_), end = std::min(to, end_);
  if (begin >= end) return;
  backend_.AdamWUpdate(Adam(weight_decay), rates_, model_.master() + begin,
                       backend_.Offset(model_.weights(), begin), m_ + (begin - begin_), v_ + (begin - begin_),
                       model_.gradients() + begin, clip_scale_, end - begin);
}

std::vector<float> Optimizer::Whole(const float* part, AsOf when) const {
  std::vector<float> values(static_cast<std::size_t>(model_.layout().size()));
  when == AsOf::kMark ? backend_.CopyOutMarked(values.data() + begin_, part, end_ - begin_)
                      : backend_.CopyOut(values.data() + begin_, part, end_ - begin_);
  return values;
}

void Optimizer::SetMoments(std::span<const float> m, std::span<const float> v) {
  const auto count = static_cast<std::size_t>(model_.layout().size());
  HEADSWEEP_CHECK(m.size() == count && v.size() == count, "{} and {} moments for {} parameters", m.size(),
                  v.size(), count);
  backend_.CopyIn(m_, m.data() + begin_, end_ - begin_);
  backend_.CopyIn(v_, v.data() + begin_, end_ - begin_);
}

}  // namespace headsweep
