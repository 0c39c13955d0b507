#include "trainer/model.h"

#include <algorithm>
#include <cmath>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "kernels/philox.h"
#include "trainer/model_impl.h"

namespace headsweep {
namespace {

// Sinusoidal positions (Vaswani et al. 2017, section 3.5): even columns sine, odd ones cosine, wavelengths in
// a geometric progression from 2 pi to 10000 * 2 pi.
std::vector<float> Sinusoids(int T, int C) {
  std::vector<float> table(static_cast<std::size_t>(T) * static_cast<std::size_t>(C));
  for (int t = 0; t < T; ++t) {
    for (int c = 0; c < C; ++c) {
      const double angle = t / std::pow(10000.0, static_cast<double>(c / 2 * 2) / C);
      table[static_cast<std::size_t>(t) * static_cast<std::size_t>(C) + static_cast<std::size_t>(c)] =
          static_cast<float>(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return table;
}

Activation ActivationOf(const std::string& name) {
  if (name == "gelu") return Activation::kGelu;
  if (name == "relu") return Activation::kRelu;
  throw ConfigError(fmt::format("model.activation = \"{}\": expected \"gelu\" or \"relu\"", name));
}

void CheckShape(const ModelShape& shape) {
  if (shape.norm != "pre" && shape.norm != "post") {
    throw ConfigError(fmt::format("model.norm = \"{}\": expected \"pre\" or \"post\"", shape.norm));
  }
  if (shape.positions != "learned" && shape.positions != "sinusoidal") {
    throw ConfigError(
        fmt::format("model.positions = \"{}\": expected \"learned\" or \"sinusoidal\"", shape.positions));
  }
  const bool positive = shape.vocabulary > 0 && shape.length > 0 && shape.embed > 0 && shape.head_size > 0 &&
                        shape.feed_forward > 0 && shape.layers() > 0;
  const bool heads = std::all_of(shape.heads.begin(), shape.heads.end(), [](int H) { return H >= 0; });
  if (!positive || !heads) {
    throw ConfigError(fmt::format(
        "a model needs at least one piece, token, column, layer and feed-forward unit, and no negative head "
        "count: "
        "vocabulary {}, length {}, embed {}, head_size {}, feed_forward {}, layers {}",
        shape.vocabulary, shape.length, shape.embed, shape.head_size, shape.feed_forward, shape.layers()));
  }
}

// Parameters draw from streams of their own: the name's hash. The top bit keeps them apart from dropout's
// sites.
std::uint64_t StreamOf(const std::string& name) { return Checksum(name) | (std::uint64_t{1} << 63); }

}  // namespace

// --- Impl ---

Model::Impl::Impl(Backend& backend_in, const ModelShape& shape_in, int max_examples_in, Purpose purpose_in)
    : backend(backend_in),
      shape((CheckShape(shape_in), shape_in)),
      layout(shape),
      offsets(layout, shape),
      purpose(purpose_in),
      max_examples(max_examples_in),
      pre_norm(shape.norm == "pre"),
      activation(ActivationOf(shape.activation)),
      // Sinusoids have amplitude 1: embeddings are scaled up to be heard beside them (Vaswani et al. 2017,
      // section 3.4).
      embedding_scale(shape.positions == "sinusoidal" ? std::sqrt(static_cast<float>(shape.embed)) : 1.0f) {
  HEADSWEEP_CHECK(max_examples > 0, "a model for {} examples", max_examples);
  int heads = 0;
  for (const int H : shape.heads) {
    first_head.push_back(heads);
    heads += H;
  }
  arena_bytes = PlanModelBuffers(backend, shape, max_examples, purpose, nullptr, buffers);
  arena = backend.Allocate(arena_bytes);
  const std::size_t handed_out = PlanModelBuffers(backend, shape, max_examples, purpose, arena, buffers);
  HEADSWEEP_CHECK(handed_out == arena_bytes, "planned {} bytes, handed out {}", arena_bytes, handed_out);
  host_losses.resize(static_cast<std::size_t>(max_examples) * static_cast<std::size_t>(shape.length));
  host_scores.resize(3 * static_cast<std::size_t>(heads));
  if (buffers.sinusoids != nullptr) {
    const std::vector<float> table = Sinusoids(shape.length, shape.embed);
    backend.CopyIn(buffers.sinusoids, table.data(), static_cast<std::int64_t>(table.size()));
  }
}

Model::Impl::~Impl() { backend.Free(arena); }

void Model::Impl::SetParameters(const float* values) {
  backend.CopyIn(buffers.master, values, layout.size());
  if (static_cast<void*>(buffers.weights) != buffers.master) {
    backend.CopyIn(buffers.weights, values, layout.size());
  }
}

Pass Model::Impl::LoadBatch(const Batch& batch) {
  const std::int64_t R = std::int64_t{batch.B} * batch.T;
  HEADSWEEP_CHECK(batch.B >= 0 && batch.B <= max_examples && batch.T >= 0 && batch.T <= shape.length,
                  "batch of {} x {} for a model of at most {} x {}", batch.B, batch.T, max_examples,
                  shape.length);
  HEADSWEEP_CHECK(static_cast<std::int64_t>(batch.tokens.size()) == R &&
                      static_cast<std::int64_t>(batch.targets.size()) == R &&
                      (batch.lengths.empty() || static_cast<int>(batch.lengths.size()) == batch.B),
                  "batch {} x {} with {} tokens, {} targets, {} lengths", batch.B, batch.T,
                  batch.tokens.size(), batch.targets.size(), batch.lengths.size());
  for (std::int64_t r = 0; r < R; ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (batch.tokens[i] < 0 || batch.tokens[i] >= shape.vocabulary || batch.targets[i] >= shape.vocabulary) {
      throw ConfigError(
          fmt::format("row {} of a batch has token {} and target {}, but the model knows only {} pieces: "
                      "the token file does not belong to this model",
                      r, batch.tokens[i], batch.targets[i], shape.vocabulary));
    }
  }
  backend.CopyIn(buffers.tokens, batch.tokens.data(), R);
  backend.CopyIn(buffers.targets, batch.targets.data(), R);
  Pass pass;
  pass.B = batch.B;
  pass.T = batch.T;
  pass.R = R;
  if (!batch.lengths.empty()) {
    backend.CopyIn(buffers.lengths, batch.lengths.data(), batch.B);
    pass.lengths = buffers.lengths;
  }
  return pass;
}

LossSum Model::Impl::SumLosses(const Batch& batch) {
  const std::int64_t R = std::int64_t{batch.B} * batch.T;
  backend.CopyOut(host_losses.data(), buffers.losses, R);
  LossSum sum;
  for (std::int64_t r = 0; r < R; ++r) {
    if (batch.targets[static_cast<std::size_t>(r)] < 0) continue;
    sum.loss += host_losses[static_cast<std::size_t>(r)];
    ++sum.targets;
  }
  return sum;
}

// --- Model ---

Model::Model(Backend& backend, const ModelShape& shape, int max_examples, Purpose purpose)
    : impl_(std::make_unique<Impl>(backend, shape, max_examples, purpose)) {}
Model::~Model() = default;

std::size_t Model::PlannedBytes(const Backend& backend, const ModelShape& shape, int max_examples,
                                Purpose purpose) {
  ModelBuffers ignored{};
  return PlanModelBuffers(backend, shape, max_examples, purpose, nullptr, ignored);
}

const ModelShape& Model::shape() const { return impl_->shape; }
const ParameterLayout& Model::layout() const { return impl_->layout; }
Backend& Model::backend() { return impl_->backend; }
std::size_t Model::memory_bytes() const { return impl_->arena_bytes; }
float* Model::master() { return impl_->buffers.master; }
Element* Model::weights() { return impl_->buffers.weights; }
float* Model::gradients() { return impl_->buffers.gradients; }

void Model::Initialize(std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(impl_->layout.size()));
  for (const Parameter& parameter : impl_->layout.parameters()) {
    float* out = values.data() + parameter.offset;
    if (parameter.initialization != Initialization::kNormal) {
      std::fill_n(out, parameter.count, parameter.initialization == Initialization::kOne ? 1.0f : 0.0f);
      continue;
    }
    const std::uint64_t stream = StreamOf(parameter.name);
    for (std::int64_t i = 0; i < parameter.count; ++i) {
      out[i] =
          static_cast<float>(parameter.deviation * RandomNormal(seed, stream, static_cast<std::uint64_t>(i)));
    }
  }
  impl_->SetParameters(values.data());
}

void Model::SetParameters(std::span<const float> values) {
  HEADSWEEP_CHECK(static_cast<std::int64_t>(values.size()) == impl_->layout.size(),
                  "{} values for {} parameters", values.size(), impl_->layout.size());
  impl_->SetParameters(values.data());
}

std::vector<float> Model::GetParameters(AsOf when) const {
  std::vector<float> values(static_cast<std::size_t>(impl_->layout.size()));
  const float* master = impl_->buffers.master;
  when == AsOf::kMark ? impl_->backend.CopyOutMarked(values.data(), master, impl_->layout.size())
                      : impl_->backend.CopyOut(values.data(), master, impl_->layout.size());
  return values;
}

std::vector<float> Model::GetGradients() const {
  HEADSWEEP_CHECK(impl_->purpose == Purpose::kTrain, "a model for evaluation has no gradients");
  std::vector<float> values(static_cast<std::size_t>(impl_->layout.size()));
  impl_->backend.CopyOut(values.data(), impl_->buffers.gradients, impl_->layout.size());
  return values;
}

void Model::SetGates(std::span<const float> gates) {
  HEADSWEEP_CHECK(static_cast<int>(gates.size()) == impl_->shape.total_heads(), "{} gates for {} heads",
                  gates.size(), impl_->shape.total_heads());
  impl_->backend.CopyIn(impl_->buffers.gates, gates.data(), static_cast<std::int64_t>(gates.size()));
  impl_->gates_set = true;
}

void Model::ClearGates() { impl_->gates_set = false; }

LossSum Model::Evaluate(const Batch& batch, std::vector<float>* per_target) {
  const Pass pass = impl_->LoadBatch(batch);
  impl_->Forward(pass);
  impl_->LossForward(pass);
  const LossSum sum = impl_->SumLosses(batch);
  if (per_target != nullptr)
    per_target->assign(impl_->host_losses.begin(), impl_->host_losses.begin() + pass.R);
  return sum;
}

std::vector<float> Model::Logits(const Batch& batch) {
  const Pass pass = impl_->LoadBatch(batch);
  impl_->Forward(pass);
  const std::int64_t V = impl_->shape.vocabulary;
  std::vector<float> logits(static_cast<std::size_t>(pass.R * V));
  impl_->ForEachLogits(pass, [&](std::int64_t row, std::int64_t rows) {
    impl_->backend.CopyOut(logits.data() + row * V, impl_->buffers.logits, rows * V);
  });
  return logits;
}

void Model::ZeroGradients() {
  HEADSWEEP_CHECK(impl_->purpose == Purpose::kTrain, "a model for evaluation has no gradients");
  impl_->backend.Fill(impl_->buffers.gradients, 0, impl_->layout.size());
}

LossSum Model::ForwardBackward(const Batch& batch, const ForwardBackwardOptions& options) {
  const Pass pass = impl_->LoadTrainingBatch(batch, options);
  if (options.scores != nullptr)
    impl_->backend.Fill(impl_->buffers.scores, 0, 3 * std::int64_t{impl_->shape.total_heads()});
  impl_->ForwardBackward(pass, options, options.scores != nullptr ? &batch : nullptr, /*recorded=*/nullptr);
  if (options.scores != nullptr) impl_->AddScores(batch, *options.scores);
  return impl_->SumLosses(batch);
}

void Model::ForwardBackward(const Batch& batch, const ForwardBackwardOptions& options,
                            Backend::Mailbox& losses, std::int64_t at) {
  HEADSWEEP_CHECK(options.scores == nullptr, "scores are for a pass that is waited for");
  const Pass pass = impl_->LoadTrainingBatch(batch, options);
  impl_->ForwardBackward(pass, options, nullptr, impl_->RecordedPassOf(pass, options));
  losses.Post(at, impl_->buffers.losses, pass.R);
}

}  // namespace headsweep
