// Private half of Model: state and the passes. Public methods are in model.cc, the forward pass in
// model_forward.cc, the backward pass in model_backward.cc.
#pragma once

#include <memory>
#include <vector>

#include "trainer/model.h"
#include "trainer/model_buffers.h"

namespace headsweep {

inline constexpr float kNormEpsilon = 1e-5f;

// One pass over one batch that already lies on the device.
struct Pass {
  int B = 0, T = 0;
  std::int64_t R = 0;                     // B * T
  const std::int32_t* lengths = nullptr;  // device, (B); nullptr: every row is full
  bool keep_activations = false;          // a backward pass follows
  float dropout = 0;
  std::uint64_t seed = 0;
};

// Passes of one kind, forward and backward, as the backend keeps them. Kind: all that the enqueued ops depend
// on.
struct RecordedPass {
  struct Kind {
    int B, T;
    bool padded, gates, pieces;
    float dropout, label_smoothing;
    std::uint64_t seed;
    bool operator==(const Kind&) const = default;
  };
  Kind kind;
  // One, or with `pieces` one for each on_layer_done.
  std::vector<std::unique_ptr<Backend::Recording>> stretches;
};

// Places of dropout in a layer; the embedding counts as a place of layer L.
enum class DropoutPlace { kAttention, kAttentionOutput, kFeedForwardOutput, kEmbedding };
inline constexpr std::uint64_t kDropoutPlaces = 4;

struct Model::Impl {
  Impl(Backend& backend, const ModelShape& shape, int max_examples, Purpose purpose);
  ~Impl();

  // model.cc
  Pass LoadBatch(const Batch& batch);     // checks and copies tokens, targets, lengths
  LossSum SumLosses(const Batch& batch);  // copies losses out; adds in float64, in order
  void SetParameters(const float* values);

  // model_forward.cc
  void Forward(const Pass& pass);  // tokens -> hidden
  // hidden -> losses, in pieces of logit_rows rows. each(first_row, rows) sees a piece's logits before the
  // loss overwrites anything (tests, Logits()).
  template <class Each>
  void ForEachLogits(const Pass& pass, Each each);
  void LossForward(const Pass& pass);
  AttentionShape AttentionOf(const Pass& pass, int layer) const;
  // Sites of step 0; the pass's numbers move them to those of its step.
  Dropout DropoutAt(const Pass& pass, int layer, DropoutPlace place) const;
  void DropOut(const Pass& pass, const Element* x, Element* y, int layer, DropoutPlace place);

  // model_backward.cc
  Pass LoadTrainingBatch(const Batch& batch, const ForwardBackwardOptions& options);
  // recorded: nullptr = enqueued as it is.
  void ForwardBackward(const Pass& pass, const ForwardBackwardOptions& options, const Batch* scored,
                       RecordedPass* recorded);
  RecordedPass* RecordedPassOf(const Pass& pass, const ForwardBackwardOptions& options);
  void AddScores(const Batch& batch, HeadScores& scores);

  const Element* W(std::int64_t offset) const { return backend.Offset(buffers.weights, offset); }
  float* G(std::int64_t offset) const { return buffers.gradients + offset; }
  int width(int layer) const {
    return shape.heads[static_cast<std::size_t>(layer)] * shape.head_size;
  }  // H*D
  int HeadsBefore(int layer) const { return first_head[static_cast<std::size_t>(layer)]; }
  const float* GatesOf(int layer) const { return gates_set ? buffers.gates + HeadsBefore(layer) : nullptr; }
  // What the attention's output projection reads.
  const Element* ProjectedHeads(const LayerBuffers& layer) const {
    return gates_set ? layer.gated : layer.heads;
  }

  Backend& backend;
  ModelShape shape;
  ParameterLayout layout;
  ModelOffsets offsets;
  Purpose purpose;
  int max_examples;
  bool pre_norm;
  Activation activation;
  float embedding_scale;
  std::vector<int> first_head;  // flat index of each layer's first head
  bool gates_set = false;

  std::size_t arena_bytes = 0;
  void* arena = nullptr;
  ModelBuffers buffers{};
  std::vector<float> host_losses;  // (R)
  std::vector<float> host_scores;  // (3, all heads)
  std::vector<RecordedPass> recorded_passes;

 private:
  void AttentionForward(const Pass& pass, int layer);
  void FeedForwardForward(const Pass& pass, int layer);
  void LossBackward(const Pass& pass, float label_smoothing);
  void EmbeddingBackward(const Pass& pass);
  void FeedForwardBackward(const Pass& pass, int layer);
  void AttentionBackward(const Pass& pass, int layer, const Batch* scored, float gradient_scale);
  void ScoreHeads(const Pass& pass, int layer, const Batch& batch, float gradient_scale);
  const Element* BranchGradient(const Pass& pass, int layer, DropoutPlace place);
};

template <class Each>
void Model::Impl::ForEachLogits(const Pass& pass, Each each) {
  const int C = shape.embed, V = shape.vocabulary;
  for (std::int64_t row = 0; row < pass.R; row += buffers.logit_rows) {
    const std::int64_t rows = pass.R - row < buffers.logit_rows ? pass.R - row : buffers.logit_rows;
    backend.LinearForward(backend.Offset(buffers.hidden, row * C), W(offsets.output_projection), nullptr,
                          buffers.logits, nullptr, rows, C, V, Activation::kNone);
    each(row, rows);
  }
}

}  // namespace headsweep
