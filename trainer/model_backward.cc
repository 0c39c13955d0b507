// Backward pass. d_stream holds the gradient of the residual stream and is updated in place from the loss to
// the embedding; branch is the gradient of one sub-layer's output or input. Nothing else of size (R, C) is
// needed.
#include <algorithm>
#include <functional>
#include <numeric>

#include "cluster/base/errors.h"
#include "trainer/model_impl.h"

namespace headsweep {
namespace {

// Targets of each example, in order; -1 when they differ.
std::int64_t CommonTargetCount(const Batch& batch) {
  return batch.B > 0 && batch.target_count == std::int64_t{batch.B} * batch.T ? batch.T : -1;
}

std::int64_t TargetCount(const Batch& batch, int example) {
  const std::int32_t* row = batch.targets.data() + std::int64_t{example} * batch.T;
  return std::count_if(row, row + batch.T, [](std::int32_t target) { return target >= 0; });
}

}  // namespace

// Loss, logits' gradient and the output projection's backward pass, piece by piece. Leaves the gradient of
// hidden in d_stream.
void Model::Impl::LossBackward(const Pass& pass, float label_smoothing) {
  const int C = shape.embed, V = shape.vocabulary;
  ForEachLogits(pass, [&](std::int64_t row, std::int64_t rows) {
    backend.CrossEntropy(buffers.logits, buffers.targets + row, buffers.losses + row, nullptr, rows, V,
                         label_smoothing, /*gradient_scale=*/1, buffers.numbers);
    backend.LinearBackward(buffers.logits, backend.Offset(buffers.hidden, row * C),
                           W(offsets.output_projection), backend.Offset(buffers.d_stream, row * C),
                           G(offsets.output_projection), nullptr, rows, C, V,
                           /*accumulate_dx=*/false);
  });
}

// Gradient of a sub-layer's output before its dropout: d_stream itself, or its masked copy in branch.
const Element* Model::Impl::BranchGradient(const Pass& pass, int layer, DropoutPlace place) {
  if (pass.dropout <= 0) return buffers.d_stream;
  DropOut(pass, buffers.d_stream, buffers.branch, layer, place);
  return buffers.branch;
}

void Model::Impl::FeedForwardBackward(const Pass& pass, int layer) {
  const LayerOffsets& at = offsets.layers[static_cast<std::size_t>(layer)];
  const LayerBuffers& b = buffers.layers[static_cast<std::size_t>(layer)];
  const int C = shape.embed, F = shape.feed_forward;
  if (!pre_norm) {
    backend.LayerNormBackward(buffers.d_stream, b.end, W(at.feed_forward_norm_weight), b.feed_forward_mean,
                              b.feed_forward_rstd, nullptr, buffers.d_stream, G(at.feed_forward_norm_weight),
                              G(at.feed_forward_norm_bias), pass.R, C);
  }
  const Element* d_output = BranchGradient(pass, layer, DropoutPlace::kFeedForwardOutput);
  backend.LinearBackward(d_output, b.activation, W(at.down_weight), /*dx=*/nullptr, G(at.down_weight),
                         G(at.down_bias), pass.R, F, C, false);
  backend.LinearBackwardThroughActivation(d_output, W(at.down_weight), b.pre_activation, buffers.d_activation,
                                          pass.R, F, C, activation);
  if (pre_norm) {
    backend.LinearBackward(buffers.d_activation, b.feed_forward_input, W(at.up_weight), buffers.branch,
                           G(at.up_weight), G(at.up_bias), pass.R, C, F, false);
    backend.LayerNormBackward(buffers.branch, b.middle, W(at.feed_forward_norm_weight), b.feed_forward_mean,
                              b.feed_forward_rstd, buffers.d_stream, buffers.d_stream,
                              G(at.feed_forward_norm_weight), G(at.feed_forward_norm_bias), pass.R, C);
  } else {  // the sub-layer's input is the stream itself: its gradient is added
    backend.LinearBackward(buffers.d_activation, b.feed_forward_input, W(at.up_weight), buffers.d_stream,
                           G(at.up_weight), G(at.up_bias), pass.R, C, F, true);
  }
}

void Model::Impl::AttentionBackward(const Pass& pass, int layer, const Batch* scored, float gradient_scale) {
  const LayerOffsets& at = offsets.layers[static_cast<std::size_t>(layer)];
  const LayerBuffers& b = buffers.layers[static_cast<std::size_t>(layer)];
  const int C = shape.embed, HD = width(layer);
  if (!pre_norm) {
    backend.LayerNormBackward(buffers.d_stream, b.middle, W(at.attention_norm_weight), b.attention_mean,
                              b.attention_rstd, nullptr, buffers.d_stream, G(at.attention_norm_weight),
                              G(at.attention_norm_bias), pass.R, C);
  }
  const Element* d_output = BranchGradient(pass, layer, DropoutPlace::kAttentionOutput);
  if (HD == 0) {
    backend.EmbeddingBackward(buffers.zeros, d_output, G(at.output_bias), nullptr, pass.B, pass.T, C, /*V=*/1,
                              1);
    return;  // nothing reads the sub-layer's input; in pre-norm its norm has no gradient
  }
  backend.LinearBackward(d_output, ProjectedHeads(b), W(at.output_weight), buffers.d_heads,
                         G(at.output_weight), G(at.output_bias), pass.R, HD, C, false);
  backend.AttentionBackward(AttentionOf(pass, layer), b.qkv, backend.Offset(b.qkv, HD),
                            backend.Offset(b.qkv, 2 * HD), GatesOf(layer), b.heads, b.log_sum_exp,
                            buffers.d_heads, buffers.d_qkv, backend.Offset(buffers.d_qkv, HD),
                            backend.Offset(buffers.d_qkv, 2 * HD), buffers.delta);
  if (scored != nullptr) ScoreHeads(pass, layer, *scored, gradient_scale);
  if (pre_norm) {
    backend.LinearBackward(buffers.d_qkv, b.attention_input, W(at.qkv_weight), buffers.branch,
                           G(at.qkv_weight), G(at.qkv_bias), pass.R, C, 3 * HD, false);
    backend.LayerNormBackward(buffers.branch, b.stream, W(at.attention_norm_weight), b.attention_mean,
                              b.attention_rstd, buffers.d_stream, buffers.d_stream,
                              G(at.attention_norm_weight), G(at.attention_norm_bias), pass.R, C);
  } else {
    backend.LinearBackward(buffers.d_qkv, b.attention_input, W(at.qkv_weight), buffers.d_stream,
                           G(at.qkv_weight), G(at.qkv_bias), pass.R, C, 3 * HD, true);
  }
}

// delta is the gradient of gradient_scale * (sum of losses); importance is of the mean loss of each example,
// so it is divided by gradient_scale and by the example's number of targets. One call when all examples have
// equally many.
void Model::Impl::ScoreHeads(const Pass& pass, int layer, const Batch& batch, float gradient_scale) {
  const int H = shape.heads[static_cast<std::size_t>(layer)], all = shape.total_heads();
  float* per_example = buffers.scores + HeadsBefore(layer);
  float* per_token = per_example + all;
  float* squares = per_token + all;
  const auto add = [&](int first, int count, std::int64_t targets) {
    if (targets == 0) return;
    backend.HeadImportance(buffers.delta + std::int64_t{first} * H * pass.T, count, H, pass.T,
                           1.0f / (gradient_scale * static_cast<float>(targets)), per_example, per_token,
                           squares, nullptr);
  };
  if (const std::int64_t targets = CommonTargetCount(batch); targets >= 0) {
    add(0, pass.B, targets);
  } else {
    for (int b = 0; b < pass.B; ++b) add(b, 1, TargetCount(batch, b));
  }
}

void Model::Impl::AddScores(const Batch& batch, HeadScores& scores) {
  const auto all = static_cast<std::size_t>(shape.total_heads());
  backend.CopyOut(host_scores.data(), buffers.scores, static_cast<std::int64_t>(3 * all));
  std::vector<double>* sums[] = {&scores.per_example, &scores.per_token, &scores.squares};
  for (std::size_t kind = 0; kind < 3; ++kind) {
    sums[kind]->resize(all, 0.0);
    for (std::size_t h = 0; h < all; ++h) (*sums[kind])[h] += host_scores[kind * all + h];
  }
  for (int b = 0; b < batch.B; ++b) scores.examples += TargetCount(batch, b) > 0 ? 1 : 0;
  scores.tokens += batch.target_count;
}

void Model::Impl::EmbeddingBackward(const Pass& pass) {
  if (pass.dropout > 0)
    DropOut(pass, buffers.d_stream, buffers.d_stream, shape.layers(), DropoutPlace::kEmbedding);
  backend.EmbeddingBackward(buffers.tokens, buffers.d_stream, G(offsets.token_embedding),
                            offsets.position_embedding >= 0 ? G(offsets.position_embedding) : nullptr, pass.B,
                            pass.T, shape.embed, shape.vocabulary, embedding_scale);
}

Pass Model::Impl::LoadTrainingBatch(const Batch& batch, const ForwardBackwardOptions& options) {
  HEADSWEEP_CHECK(purpose == Purpose::kTrain, "a model for evaluation has no backward pass");
  HEADSWEEP_CHECK(options.gradient_scale > 0, "gradient scale {}", options.gradient_scale);
  Pass pass = LoadBatch(batch);
  pass.keep_activations = true;
  pass.dropout = options.dropout;
  pass.seed = options.seed;
  PassNumbers numbers;
  numbers.site = static_cast<std::uint64_t>(options.step) * static_cast<std::uint64_t>(shape.layers() + 1) *
                 kDropoutPlaces;
  numbers.first_example = batch.first_example;
  numbers.gradient_scale = options.gradient_scale;
  backend.CopyIn(buffers.numbers, numbers);
  return pass;
}

// The kept pass of this kind, a new one for a kind that was not seen before; nullptr when there are too many:
// of short rows alone, whose batches may or may not be full, come two kinds a size.
RecordedPass* Model::Impl::RecordedPassOf(const Pass& pass, const ForwardBackwardOptions& options) {
  constexpr std::size_t kMost = 8;
  const RecordedPass::Kind kind{pass.B,
                                pass.T,
                                pass.lengths != nullptr,
                                gates_set,
                                static_cast<bool>(options.on_layer_done),
                                pass.dropout,
                                options.label_smoothing,
                                pass.seed};
  for (RecordedPass& known : recorded_passes)
    if (known.kind == kind) return &known;
  if (recorded_passes.size() >= kMost) return nullptr;
  RecordedPass& added = recorded_passes.emplace_back();
  added.kind = kind;
  added.stretches.resize(kind.pieces ? static_cast<std::size_t>(shape.layers()) + 2 : 1);
  return &added;
}

void Model::Impl::ForwardBackward(const Pass& pass, const ForwardBackwardOptions& options,
                                  const Batch* scored, RecordedPass* recorded) {
  const int L = shape.layers();
  const auto from_tokens_to_layers = [&] {
    Forward(pass);
    LossBackward(pass, options.label_smoothing);
    if (pre_norm) {
      backend.LayerNormBackward(buffers.d_stream, buffers.final_stream, W(offsets.final_norm_weight),
                                buffers.final_mean, buffers.final_rstd, nullptr, buffers.d_stream,
                                G(offsets.final_norm_weight), G(offsets.final_norm_bias), pass.R,
                                shape.embed);
    }
  };
  const auto through_layer = [&](int layer) {
    FeedForwardBackward(pass, layer);
    AttentionBackward(pass, layer, scored, options.gradient_scale);
  };
  std::size_t stretch = 0;
  const auto enqueue = [&](const auto& work) {
    recorded == nullptr ? work() : backend.Repeat(recorded->stretches.at(stretch++), std::cref(work));
  };
  if (!options.on_layer_done) {
    enqueue([&] {
      from_tokens_to_layers();
      for (int layer = L - 1; layer >= 0; --layer) through_layer(layer);
      EmbeddingBackward(pass);
    });
    return;
  }
  enqueue(from_tokens_to_layers);
  options.on_layer_done(L);
  for (int layer = L - 1; layer >= 0; --layer) {
    enqueue([&] { through_layer(layer); });
    options.on_layer_done(layer);
  }
  enqueue([&] { EmbeddingBackward(pass); });
  options.on_layer_done(-1);
}

}  // namespace headsweep
