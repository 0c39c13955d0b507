#include "trainer/head_surgery.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// A parameter that is cut by heads, seen as (outer, heads, inner).
struct HeadBlocks {
  std::int64_t outer = 1, heads = 0, inner = 1;
};

// Which axis of which parameters counts heads; the only knowledge of the layout in this file.
std::optional<HeadBlocks> FindHeadBlocks(const Parameter& parameter) {
  const std::string_view name = parameter.name;
  std::size_t axis;
  if (name.ends_with(".attention.query_key_value.weight") ||
      name.ends_with(".attention.query_key_value.bias") || name.ends_with(".attention.output.weight")) {
    axis = 1;  // (3, H, D, C), (3, H, D) and (C, H, D)
  } else {
    return std::nullopt;
  }
  HEADSWEEP_CHECK(parameter.dims.size() > axis + 1, "parameter {} has no head axis", parameter.name);
  HeadBlocks blocks;
  blocks.heads = parameter.dims[axis];
  for (std::size_t i = 0; i < axis; ++i) blocks.outer *= parameter.dims[i];
  for (std::size_t i = axis + 1; i < parameter.dims.size(); ++i) blocks.inner *= parameter.dims[i];
  return blocks;
}

// "layers.<n>.…" -> n.
int LayerOf(const Parameter& parameter) {
  constexpr std::string_view kPrefix = "layers.";
  HEADSWEEP_CHECK(parameter.name.starts_with(kPrefix), "parameter {} belongs to no layer", parameter.name);
  return std::stoi(parameter.name.substr(kPrefix.size()));
}

// By layer and head: true where the head goes.
std::vector<std::vector<bool>> RemovalMask(const ModelShape& shape, const std::vector<HeadIndex>& removed) {
  std::vector<std::vector<bool>> mask;
  for (const int heads : shape.heads) mask.emplace_back(heads, false);
  for (const auto& [layer, head] : removed) {
    HEADSWEEP_CHECK(layer >= 0 && layer < shape.layers() && head >= 0 && head < shape.heads[layer],
                    "layer {} head {} is not in this model", layer, head);
    HEADSWEEP_CHECK(!mask[layer][head], "layer {} head {} is removed twice", layer, head);
    mask[layer][head] = true;
  }
  return mask;
}

void CheckSize(const ParameterLayout& layout, const std::vector<float>& parameters) {
  HEADSWEEP_CHECK(static_cast<std::int64_t>(parameters.size()) == layout.size(),
                  "{} parameters were given, the model's shape needs {}", parameters.size(), layout.size());
}

}  // namespace

PrunedModel RemoveHeads(const ModelShape& shape, const std::vector<float>& parameters,
                        const std::vector<HeadIndex>& removed) {
  const auto mask = RemovalMask(shape, removed);
  PrunedModel pruned{shape, {}};
  for (int layer = 0; layer < shape.layers(); ++layer)
    pruned.shape.heads[layer] -= static_cast<int>(std::count(mask[layer].begin(), mask[layer].end(), true));

  const ParameterLayout from(shape), to(pruned.shape);
  CheckSize(from, parameters);
  pruned.parameters.resize(to.size());
  for (const Parameter& target : to.parameters()) {
    const Parameter& source = from.Find(target.name);
    const float* in = parameters.data() + source.offset;
    float* out = pruned.parameters.data() + target.offset;
    const std::optional<HeadBlocks> blocks = FindHeadBlocks(source);
    if (!blocks) {
      HEADSWEEP_CHECK(source.dims == target.dims, "parameter {} changes its shape when heads go",
                      source.name);
      std::copy_n(in, source.count, out);
      continue;
    }
    const std::vector<bool>& gone = mask[LayerOf(source)];
    for (std::int64_t outer = 0; outer < blocks->outer; ++outer)
      for (std::int64_t head = 0; head < blocks->heads; ++head, in += blocks->inner)
        if (!gone[head]) out = std::copy_n(in, blocks->inner, out);
    HEADSWEEP_CHECK(out == pruned.parameters.data() + target.offset + target.count,
                    "parameter {} was not filled by the heads that stay", target.name);
  }
  return pruned;
}

std::vector<HeadIndex> KeptHeads(const ModelShape& shape, const std::vector<HeadIndex>& removed) {
  const auto mask = RemovalMask(shape, removed);
  std::vector<HeadIndex> kept;
  for (int layer = 0; layer < shape.layers(); ++layer)
    for (int head = 0; head < shape.heads[layer]; ++head)
      if (!mask[layer][head]) kept.push_back({layer, head});
  return kept;
}

std::vector<float> GatesFor(const ModelShape& shape, const std::vector<HeadIndex>& removed) {
  const auto mask = RemovalMask(shape, removed);
  std::vector<float> gates;
  for (const auto& layer : mask)
    for (const bool gone : layer) gates.push_back(gone ? 0.0f : 1.0f);
  return gates;
}

std::vector<double> HeadMagnitudes(const ModelShape& shape, const std::vector<float>& parameters) {
  const ParameterLayout layout(shape);
  CheckSize(layout, parameters);
  std::vector<double> magnitudes(shape.total_heads(), 0.0);
  for (const Parameter& parameter : layout.parameters()) {
    const std::optional<HeadBlocks> blocks = FindHeadBlocks(parameter);
    if (!blocks || blocks->heads == 0) continue;
    double* squares = magnitudes.data() + FlatHead(shape, {LayerOf(parameter), 0});
    const float* value = parameters.data() + parameter.offset;
    for (std::int64_t outer = 0; outer < blocks->outer; ++outer)
      for (std::int64_t head = 0; head < blocks->heads; ++head)
        for (std::int64_t i = 0; i < blocks->inner; ++i, ++value)
          squares[head] += static_cast<double>(*value) * *value;
  }
  for (double& magnitude : magnitudes) magnitude = std::sqrt(magnitude);
  return magnitudes;
}

}  // namespace headsweep
