// Forward pass. Vaswani et al. 2017; pre-norm: Xiong et al. 2020; dropout sites: Vaswani section 5.4 and its
// code (embeddings, attention probabilities, sub-layer outputs). Residual additions are part of the layer
// norm that follows them.
#include <cmath>

#include "trainer/model_impl.h"

namespace headsweep {

Dropout Model::Impl::DropoutAt(const Pass& pass, int layer, DropoutPlace place) const {
  Dropout dropout;
  dropout.rate = pass.dropout;
  dropout.seed = pass.seed;
  dropout.site = static_cast<std::uint64_t>(layer) * kDropoutPlaces + static_cast<std::uint64_t>(place);
  dropout.numbers = buffers.numbers;
  return dropout;
}

void Model::Impl::DropOut(const Pass& pass, const Element* x, Element* y, int layer, DropoutPlace place) {
  backend.ApplyDropout(x, y, pass.B, std::int64_t{pass.T} * shape.embed, DropoutAt(pass, layer, place));
}

AttentionShape Model::Impl::AttentionOf(const Pass& pass, int layer) const {
  AttentionShape attention;
  attention.B = pass.B;
  attention.T = attention.S = pass.T;
  attention.H = shape.heads[static_cast<std::size_t>(layer)];
  attention.D = shape.head_size;
  attention.q_stride = attention.kv_stride = 3 * std::int64_t{width(layer)};
  attention.causal = true;
  attention.key_lengths = pass.lengths;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_size));
  attention.dropout = DropoutAt(pass, layer, DropoutPlace::kAttention);
  return attention;
}

// branch = attention sub-layer of attention_input, dropout included.
void Model::Impl::AttentionForward(const Pass& pass, int layer) {
  const LayerOffsets& at = offsets.layers[static_cast<std::size_t>(layer)];
  const LayerBuffers& b = buffers.layers[static_cast<std::size_t>(layer)];
  const int C = shape.embed, HD = width(layer);
  if (HD == 0) {  // no heads left: every row is the output bias, as "token 0" of a table with one row
    backend.EmbeddingForward(buffers.zeros, W(at.output_bias), nullptr, buffers.branch, pass.B, pass.T, C, 1);
  } else {
    backend.LinearForward(b.attention_input, W(at.qkv_weight), W(at.qkv_bias), b.qkv, nullptr, pass.R, C,
                          3 * HD, Activation::kNone);
    backend.AttentionForward(AttentionOf(pass, layer), b.qkv, backend.Offset(b.qkv, HD),
                             backend.Offset(b.qkv, 2 * HD), GatesOf(layer), b.heads,
                             gates_set ? b.gated : nullptr, b.log_sum_exp);
    backend.LinearForward(ProjectedHeads(b), W(at.output_weight), W(at.output_bias), buffers.branch, nullptr,
                          pass.R, HD, C, Activation::kNone);
  }
  if (pass.dropout > 0) DropOut(pass, buffers.branch, buffers.branch, layer, DropoutPlace::kAttentionOutput);
}

// branch = feed-forward sub-layer of feed_forward_input, dropout included.
void Model::Impl::FeedForwardForward(const Pass& pass, int layer) {
  const LayerOffsets& at = offsets.layers[static_cast<std::size_t>(layer)];
  const LayerBuffers& b = buffers.layers[static_cast<std::size_t>(layer)];
  const int C = shape.embed, F = shape.feed_forward;
  backend.LinearForward(b.feed_forward_input, W(at.up_weight), W(at.up_bias), b.activation,
                        pass.keep_activations ? b.pre_activation : nullptr, pass.R, C, F, activation);
  backend.LinearForward(b.activation, W(at.down_weight), W(at.down_bias), buffers.branch, nullptr, pass.R, F,
                        C, Activation::kNone);
  if (pass.dropout > 0)
    DropOut(pass, buffers.branch, buffers.branch, layer, DropoutPlace::kFeedForwardOutput);
}

void Model::Impl::Forward(const Pass& pass) {
  const int C = shape.embed, L = shape.layers();
  const Element* positions =
      offsets.position_embedding >= 0 ? W(offsets.position_embedding) : buffers.sinusoids;
  Element* embedded = L > 0 ? buffers.layers[0].stream : buffers.final_stream;
  backend.EmbeddingForward(buffers.tokens, W(offsets.token_embedding), positions, embedded, pass.B, pass.T, C,
                           embedding_scale);
  if (pass.dropout > 0) DropOut(pass, embedded, embedded, L, DropoutPlace::kEmbedding);

  for (int layer = 0; layer < L; ++layer) {
    const LayerOffsets& at = offsets.layers[static_cast<std::size_t>(layer)];
    const LayerBuffers& b = buffers.layers[static_cast<std::size_t>(layer)];
    const bool last = layer + 1 == L;
    Element* next = last ? buffers.final_stream : buffers.layers[static_cast<std::size_t>(layer) + 1].stream;
    if (pre_norm) {
      if (layer ==
          0) {  // later layers were normalised together with the residual addition that made their stream
        backend.LayerNormForward(b.stream, nullptr, nullptr, W(at.attention_norm_weight),
                                 W(at.attention_norm_bias), b.attention_input, b.attention_mean,
                                 b.attention_rstd, pass.R, C, kNormEpsilon);
      }
      AttentionForward(pass, layer);
      backend.LayerNormForward(buffers.branch, b.stream, b.middle, W(at.feed_forward_norm_weight),
                               W(at.feed_forward_norm_bias), b.feed_forward_input, b.feed_forward_mean,
                               b.feed_forward_rstd, pass.R, C, kNormEpsilon);
      FeedForwardForward(pass, layer);
      if (last) {
        backend.LayerNormForward(buffers.branch, b.middle, next, W(offsets.final_norm_weight),
                                 W(offsets.final_norm_bias), buffers.hidden, buffers.final_mean,
                                 buffers.final_rstd, pass.R, C, kNormEpsilon);
      } else {
        const LayerOffsets& at_next = offsets.layers[static_cast<std::size_t>(layer) + 1];
        const LayerBuffers& n = buffers.layers[static_cast<std::size_t>(layer) + 1];
        backend.LayerNormForward(buffers.branch, b.middle, next, W(at_next.attention_norm_weight),
                                 W(at_next.attention_norm_bias), n.attention_input, n.attention_mean,
                                 n.attention_rstd, pass.R, C, kNormEpsilon);
      }
    } else {
      AttentionForward(pass, layer);
      backend.LayerNormForward(buffers.branch, b.stream, b.middle, W(at.attention_norm_weight),
                               W(at.attention_norm_bias), b.feed_forward_input, b.attention_mean,
                               b.attention_rstd, pass.R, C, kNormEpsilon);
      FeedForwardForward(pass, layer);
      backend.LayerNormForward(buffers.branch, b.feed_forward_input, b.end, W(at.feed_forward_norm_weight),
                               W(at.feed_forward_norm_bias), next, b.feed_forward_mean, b.feed_forward_rstd,
                               pass.R, C, kNormEpsilon);
    }
  }
}

void Model::Impl::LossForward(const Pass& pass) {
  ForEachLogits(pass, [&](std::int64_t row, std::int64_t rows) {
    backend.CrossEntropy(buffers.logits, buffers.targets + row, buffers.losses + row, nullptr, rows,
                         shape.vocabulary,
                         /*smoothing=*/0, /*gradient_scale=*/0, nullptr);
  });
}

}  // namespace headsweep
