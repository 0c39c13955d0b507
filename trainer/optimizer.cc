#include "trainer/optimizer.h"

#include "cluster/base/errors.h"
#include "kernels/arena.h"

namespace headsweep {
namespace {

// A few floats beside the moments, each on a cache line of its own.
constexpr std::int64_t kScalars = 3;
constexpr std::int64_t kAlignment = 64;

std::int64_t Padded(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::int64_t Optimizer::PlannedBytes(const ParameterLayout& layout) {
  return 2 * Padded(layout.size() * std::int64_t{sizeof(float)}) + kScalars * kAlignment;
}

Optimizer::Optimizer(Model& model, const TrainConfig& config)
    : model_(model), backend_(model.backend()), config_(config) {
  HEADSWEEP_CHECK(model.gradients() != nullptr, "an optimiser for a model without gradients");
  memory_ = backend_.Allocate(static_cast<std::size_t>(PlannedBytes(model.layout())));
  ArenaCursor arena(backend_, memory_);
  m_ = arena.Floats(model.layout().size());
  v_ = arena.Floats(model.layout().size());
  sum_of_squares_ = arena.Floats(1);
  norm_ = arena.Floats(1);
  clip_scale_ = arena.Floats(1);
}

Optimizer::~Optimizer() { backend_.Free(memory_); }

double Optimizer::GradientNorm() {
  backend_.SumOfSquares(model_.gradients(), model_.layout().size(), sum_of_squares_);
  backend_.ClipScale(sum_of_squares_, static_cast<float>(config_.clip_norm), norm_, clip_scale_);
  float norm = 0;
  backend_.CopyOut(&norm, norm_, 1);
  return norm;
}

void Optimizer::Update(double learning_rate, std::int64_t step) {
  Backend::AdamW adam;
  adam.learning_rate = static_cast<float>(learning_rate);
  adam.beta1 = static_cast<float>(config_.beta1);
  adam.beta2 = static_cast<float>(config_.beta2);
  adam.epsilon = static_cast<float>(config_.epsilon);
  adam.step = step;
  const auto update = [&](std::int64_t begin, std::int64_t end, double decay) {
    adam.weight_decay = static_cast<float>(decay);
    backend_.AdamWUpdate(adam, model_.master() + begin, backend_.Offset(model_.weights(), begin), m_ + begin,
                         v_ + begin, model_.gradients() + begin, clip_scale_, end - begin);
  };
  const ParameterLayout& layout = model_.layout();
  update(0, layout.decaying_size(), config_.weight_decay);
  update(layout.decaying_size(), layout.size(), 0);
}

std::vector<float> Optimizer::GetM() const {
  std::vector<float> values(static_cast<std::size_t>(model_.layout().size()));
  backend_.CopyOut(values.data(), m_, model_.layout().size());
  return values;
}

std::vector<float> Optimizer::GetV() const {
  std::vector<float> values(static_cast<std::size_t>(model_.layout().size()));
  backend_.CopyOut(values.data(), v_, model_.layout().size());
  return values;
}

void Optimizer::SetMoments(std::span<const float> m, std::span<const float> v) {
  const auto count = static_cast<std::size_t>(model_.layout().size());
  HEADSWEEP_CHECK(m.size() == count && v.size() == count, "{} and {} moments for {} parameters", m.size(),
                  v.size(), count);
  backend_.CopyIn(m_, m.data(), model_.layout().size());
  backend_.CopyIn(v_, v.data(), model_.layout().size());
}

}  // namespace headsweep
