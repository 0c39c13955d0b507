#include "trainer/model_buffers.h"

#include <algorithm>

#include "kernels/arena.h"

namespace headsweep {
namespace {

// Logits of a piece of the batch take about this much: large enough for full GEMM speed, small enough that a
// long batch with a large vocabulary does not need gigabytes (chosen; a step of 1024 rows x 8192 pieces still
// runs in one piece).
constexpr std::int64_t kLogitBytes = std::int64_t{32} << 20;

class Planner {
 public:
  Planner(const Backend& backend, const ModelShape& shape, int max_examples, Model::Purpose purpose,
          void* base)
      : element_bytes_(static_cast<std::int64_t>(backend.element_bytes())),
        arena_(backend, base),
        shape_(shape),
        train_(purpose == Model::Purpose::kTrain),
        pre_norm_(shape.norm == "pre"),
        B_(max_examples),
        R_(std::int64_t{max_examples} * shape.length),
        C_(shape.embed),
        F_(shape.feed_forward),
        max_heads_(shape.heads.empty() ? 0 : *std::max_element(shape.heads.begin(), shape.heads.end())) {}

  std::size_t Plan(ModelBuffers& buffers) {
    PlanParameters(buffers);
    PlanBatch(buffers);
    PlanLayers(buffers);
    PlanHead(buffers);
    if (train_) PlanBackward(buffers);
    return arena_.bytes();
  }

 private:
  void PlanParameters(ModelBuffers& b) {
    const std::int64_t count = ParameterLayout(shape_).size();
    b.master = arena_.Floats(count);
    b.weights =
        element_bytes_ == sizeof(float) ? reinterpret_cast<Element*>(b.master) : arena_.Elements(count);
    b.gradients = train_ ? arena_.Floats(count) : nullptr;
    b.sinusoids =
        shape_.positions == "sinusoidal" ? arena_.Elements(std::int64_t{shape_.length} * C_) : nullptr;
    b.gates = arena_.Floats(shape_.total_heads());
    b.scores = train_ ? arena_.Floats(3 * std::int64_t{shape_.total_heads()}) : nullptr;
  }

  void PlanBatch(ModelBuffers& b) {
    b.tokens = arena_.Ints(R_);
    b.targets = arena_.Ints(R_);
    b.lengths = arena_.Ints(B_);
    b.zeros = arena_.Ints(R_);
    b.numbers = arena_.Values<PassNumbers>(1);
  }

  // Stream and norm buffers of one layer; `shared` (kEvaluate) lets the stream stay in place.
  LayerBuffers PlanLayer(int H, bool shared) {
    const std::int64_t HD = std::int64_t{H} * shape_.head_size;
    LayerBuffers layer{};
    layer.stream = arena_.Elements(R_ * C_);
    layer.attention_input = pre_norm_ ? arena_.Elements(R_ * C_) : layer.stream;
    layer.qkv = arena_.Elements(R_ * 3 * HD);
    layer.heads = arena_.Elements(R_ * HD);
    layer.gated = arena_.Elements(R_ * HD);
    layer.log_sum_exp = arena_.Floats(R_ * H);
    layer.middle = shared ? layer.stream : arena_.Elements(R_ * C_);
    layer.feed_forward_input = shared && pre_norm_ ? layer.attention_input : arena_.Elements(R_ * C_);
    layer.pre_activation = shared ? nullptr : arena_.Elements(R_ * F_);
    layer.activation = arena_.Elements(R_ * F_);
    if (!pre_norm_) layer.end = shared ? layer.feed_forward_input : arena_.Elements(R_ * C_);
    layer.attention_mean = arena_.Floats(R_);
    layer.attention_rstd = arena_.Floats(R_);
    layer.feed_forward_mean = arena_.Floats(R_);
    layer.feed_forward_rstd = arena_.Floats(R_);
    return layer;
  }

  void PlanLayers(ModelBuffers& b) {
    b.layers.clear();
    if (train_) {
      for (const int H : shape_.heads) b.layers.push_back(PlanLayer(H, false));
      b.final_stream = arena_.Elements(R_ * C_);
    } else {
      b.layers.assign(shape_.heads.size(), PlanLayer(max_heads_, true));
      b.final_stream = b.layers.empty() ? arena_.Elements(R_ * C_) : b.layers[0].stream;
    }
    b.branch = arena_.Elements(R_ * C_);
  }

  void PlanHead(ModelBuffers& b) {
    const std::int64_t V = shape_.vocabulary;
    b.hidden = pre_norm_ ? arena_.Elements(R_ * C_) : b.final_stream;
    b.final_mean = pre_norm_ ? arena_.Floats(R_) : nullptr;
    b.final_rstd = pre_norm_ ? arena_.Floats(R_) : nullptr;
    b.logit_rows =
        std::clamp<std::int64_t>(kLogitBytes / (V * element_bytes_), std::min<std::int64_t>(R_, 64), R_);
    b.logits = arena_.Elements(b.logit_rows * V);
    b.losses = arena_.Floats(R_);
  }

  void PlanBackward(ModelBuffers& b) {
    const std::int64_t HD = std::int64_t{max_heads_} * shape_.head_size;
    const std::int64_t d_heads_size = (R_ * HD + 31) / 32 * 32;  // keeps d_qkv on a cache line
    b.d_stream = arena_.Elements(R_ * C_);
    b.d_activation = arena_.Elements(std::max(R_ * F_, d_heads_size + R_ * 3 * HD));
    b.d_heads = b.d_activation;
    b.d_qkv = b.d_activation == nullptr ? nullptr
                                        : reinterpret_cast<Element*>(reinterpret_cast<char*>(b.d_activation) +
                                                                     d_heads_size * element_bytes_);
    b.delta = arena_.Floats(R_ * max_heads_);
  }

  std::int64_t element_bytes_;
  ArenaCursor arena_;
  const ModelShape& shape_;
  bool train_, pre_norm_;
  int B_;
  std::int64_t R_;
  int C_, F_, max_heads_;
};

}  // namespace

ModelOffsets::ModelOffsets(const ParameterLayout& layout, const ModelShape& shape) {
  const auto at = [&](const std::string& name) { return layout.Find(name).offset; };
  token_embedding = at("token_embedding.weight");
  if (shape.positions == "learned") position_embedding = at("position_embedding.weight");
  if (shape.norm == "pre") {
    final_norm_weight = at("final_norm.weight");
    final_norm_bias = at("final_norm.bias");
  }
  output_projection = shape.tied ? token_embedding : at("output.weight");
  for (int layer = 0; layer < shape.layers(); ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".";
    layers.push_back({at(name + "attention_norm.weight"), at(name + "attention_norm.bias"),
                      at(name + "attention.query_key_value.weight"),
                      at(name + "attention.query_key_value.bias"), at(name + "attention.output.weight"),
                      at(name + "attention.output.bias"), at(name + "feed_forward_norm.weight"),
                      at(name + "feed_forward_norm.bias"), at(name + "feed_forward.up.weight"),
                      at(name + "feed_forward.up.bias"), at(name + "feed_forward.down.weight"),
                      at(name + "feed_forward.down.bias")});
  }
}

std::size_t PlanModelBuffers(const Backend& backend, const ModelShape& shape, int max_examples,
                             Model::Purpose purpose, void* base, ModelBuffers& buffers) {
  return Planner(backend, shape, max_examples, purpose, base).Plan(buffers);
}

}  // namespace headsweep
