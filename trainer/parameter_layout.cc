#include "trainer/parameter_layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// GPT-2's initialisation (Radford et al. 2019): weights N(0, 0.02), and projections into the residual stream
// divided by sqrt(number of such projections), so that the stream's variance does not grow with depth.
constexpr float kDeviation = 0.02f;

// Collects parameters in the order of the model; decaying ones are moved to the front afterwards.
class Table {
 public:
  void Matrix(std::string name, std::vector<std::int64_t> dims, float deviation) {
    Add({std::move(name), std::move(dims), 0, 0, Initialization::kNormal, deviation, /*decays=*/true});
  }
  void Vector(std::string name, std::vector<std::int64_t> dims, Initialization initialization) {
    Add({std::move(name), std::move(dims), 0, 0, initialization, 0, /*decays=*/false});
  }
  void Norm(const std::string& name, int C) {
    Vector(name + ".weight", {C}, Initialization::kOne);
    Vector(name + ".bias", {C}, Initialization::kZero);
  }
  std::vector<Parameter> Take() { return std::move(parameters_); }

 private:
  void Add(Parameter parameter) {
    parameter.count =
        std::accumulate(parameter.dims.begin(), parameter.dims.end(), std::int64_t{1}, std::multiplies<>());
    parameters_.push_back(std::move(parameter));
  }
  std::vector<Parameter> parameters_;
};

std::vector<Parameter> DescribeModel(const ModelShape& shape) {
  const int V = shape.vocabulary, T = shape.length, C = shape.embed, D = shape.head_size,
            F = shape.feed_forward;
  const float into_stream = kDeviation / std::sqrt(2.0f * static_cast<float>(std::max(1, shape.layers())));
  Table table;
  table.Matrix("token_embedding.weight", {V, C}, kDeviation);
  if (shape.positions == "learned") table.Matrix("position_embedding.weight", {T, C}, kDeviation);
  for (int layer = 0; layer < shape.layers(); ++layer) {
    const std::string name = fmt::format("layers.{}.", layer);
    const int H = shape.heads[static_cast<std::size_t>(layer)];
    table.Norm(name + "attention_norm", C);
    table.Matrix(name + "attention.query_key_value.weight", {3, H, D, C}, kDeviation);
    table.Vector(name + "attention.query_key_value.bias", {3, H, D}, Initialization::kZero);
    table.Matrix(name + "attention.output.weight", {C, H, D}, into_stream);
    table.Vector(name + "attention.output.bias", {C}, Initialization::kZero);
    table.Norm(name + "feed_forward_norm", C);
    table.Matrix(name + "feed_forward.up.weight", {F, C}, kDeviation);
    table.Vector(name + "feed_forward.up.bias", {F}, Initialization::kZero);
    table.Matrix(name + "feed_forward.down.weight", {C, F}, into_stream);
    table.Vector(name + "feed_forward.down.bias", {C}, Initialization::kZero);
  }
  if (shape.norm == "pre") table.Norm("final_norm", C);
  if (!shape.tied) table.Matrix("output.weight", {V, C}, kDeviation);
  return table.Take();
}

}  // namespace

int ModelShape::total_heads() const { return std::accumulate(heads.begin(), heads.end(), 0); }

ModelShape MakeModelShape(const StageConfig& config, int vocabulary) {
  const ModelConfig& model = config.model;
  HEADSWEEP_CHECK(static_cast<int>(model.heads.size()) == model.layers,
                  "model.heads has {} entries for {} layers", model.heads.size(), model.layers);
  ModelShape shape;
  shape.vocabulary = vocabulary;
  shape.length = config.task.length;
  shape.embed = model.embed;
  shape.head_size = model.head_size;
  shape.feed_forward = model.feed_forward;
  shape.heads = model.heads;
  shape.norm = model.norm;
  shape.activation = model.activation;
  shape.positions = model.positions;
  shape.tied = model.tied;
  return shape;
}

int FlatHead(const ModelShape& shape, HeadIndex index) {
  HEADSWEEP_CHECK(index.layer >= 0 && index.layer < shape.layers(), "layer {} of {}", index.layer,
                  shape.layers());
  const auto layer = shape.heads.begin() + index.layer;
  HEADSWEEP_CHECK(index.head >= 0 && index.head < *layer, "head {} of {} in layer {}", index.head, *layer,
                  index.layer);
  return std::accumulate(shape.heads.begin(), layer, 0) + index.head;
}

HeadIndex HeadAt(const ModelShape& shape, int flat) {
  HEADSWEEP_CHECK(flat >= 0 && flat < shape.total_heads(), "head {} of {}", flat, shape.total_heads());
  HeadIndex index{0, flat};
  while (index.head >= shape.heads[static_cast<std::size_t>(index.layer)]) {
    index.head -= shape.heads[static_cast<std::size_t>(index.layer)];
    ++index.layer;
  }
  return index;
}

ParameterLayout::ParameterLayout(const ModelShape& shape) : parameters_(DescribeModel(shape)) {
  std::stable_partition(parameters_.begin(), parameters_.end(), [](const Parameter& p) { return p.decays; });
  for (Parameter& parameter : parameters_) {
    parameter.offset = size_;
    size_ += parameter.count;
    if (parameter.decays) decaying_size_ = size_;
  }
}

const Parameter& ParameterLayout::Find(const std::string& name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& parameter) { return parameter.name == name; });
  HEADSWEEP_CHECK(found != parameters_.end(), "no parameter is called {}", name);
  return *found;
}

}  // namespace headsweep
