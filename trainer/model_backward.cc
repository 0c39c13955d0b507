// Backward pass. d_stream holds the gradient of the residual stream and is updated in place from the loss to
// the embedding; branch is the gradient of one sub-layer's output or input. Nothing else of size (R, C) is
// needed.
#include <algorithm>
#include <numeric>

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
void Model::Impl::LossBackward(const Pass& pass, float gradient_scale, float label_smoothing) {
  const int C = shape.embed, V = shape.vocabulary;
  ForEachLogits(pass, [&](std::int64_t row, std::int64_t rows) {
    backend.CrossEntropy(buffers.logits, buffers.targets + row, buffers.losses + row, nullptr, rows, V,
                         label_smoothing, gradient_scale);
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
  backend.LinearBackward(d_output, b.activation, W(at.down_weight), buffers.d_activation, G(at.down_weight),
                         G(at.down_bias), pass.R, F, C, false);
  backend.ActivationBackward(buffers.d_activation, b.pre_activation, buffers.d_activation, pass.R * F,
                             activation);
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

void Model::Impl::Backward(const Pass& pass, const ForwardBackwardOptions& options, const Batch* scored) {
  const int C = shape.embed, L = shape.layers();
  HeadScores* scores = options.scores;
  const auto done = [&](int layer) {
    if (options.on_layer_done) options.on_layer_done(layer);
  };
  if (scores != nullptr) backend.Fill(buffers.scores, 0, 3 * std::int64_t{shape.total_heads()});
  LossBackward(pass, options.gradient_scale, options.label_smoothing);
  if (pre_norm) {
    backend.LayerNormBackward(buffers.d_stream, buffers.final_stream, W(offsets.final_norm_weight),
                              buffers.final_mean, buffers.final_rstd, nullptr, buffers.d_stream,
                              G(offsets.final_norm_weight), G(offsets.final_norm_bias), pass.R, C);
  }
  done(L);
  for (int layer = L - 1; layer >= 0; --layer) {
    FeedForwardBackward(pass, layer);
    AttentionBackward(pass, layer, scores != nullptr ? scored : nullptr, options.gradient_scale);
    done(layer);
  }
  if (pass.dropout > 0) DropOut(pass, buffers.d_stream, buffers.d_stream, L, DropoutPlace::kEmbedding);
  backend.EmbeddingBackward(buffers.tokens, buffers.d_stream, G(offsets.token_embedding),
                            offsets.position_embedding >= 0 ? G(offsets.position_embedding) : nullptr, pass.B,
                            pass.T, C, shape.vocabulary, embedding_scale);
  done(-1);
  if (scores != nullptr) AddScores(*scored, *scores);
}

}  // namespace headsweep
