// ModelShape and the one table of parameters: names, shapes, offsets in the flat buffer, initialisation,
// weight decay. Checkpoints, the optimiser, head removal and gradient exchange all read this table; nothing
// else knows an offset.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sweeps/stage_config.h"

namespace headsweep {

struct ModelShape {
  int vocabulary = 0;      // V, pieces really in the tokenizer
  int length = 0;          // T, longest example
  int embed = 0;           // C
  int head_size = 0;       // D
  int feed_forward = 0;    // F
  std::vector<int> heads;  // H per layer, 0 allowed
  std::string norm = "pre", activation = "gelu", positions = "learned";
  bool tied = true;

  int layers() const { return static_cast<int>(heads.size()); }
  int total_heads() const;
  bool operator==(const ModelShape&) const = default;
};

ModelShape MakeModelShape(const StageConfig& config, int vocabulary);

// Flat index of (layer, head) over all layers, and back.
struct HeadIndex {
  int layer = 0, head = 0;
  bool operator==(const HeadIndex&) const = default;
};
int FlatHead(const ModelShape& shape, HeadIndex index);
HeadIndex HeadAt(const ModelShape& shape, int flat);

enum class Initialization {
  kZero,
  kOne,
  kNormal
};  // kNormal: deviation * N(0, 1), from counter-based random numbers

struct Parameter {
  std::string name;                // "layers.0.attention.query_key_value.weight"
  std::vector<std::int64_t> dims;  // query_key_value.weight: (3, H, D, C), so that removing a head is a row
                                   // copy; attention.output.weight: (C, H, D)
  std::int64_t offset = 0;  // in values
  std::int64_t count = 0;
  Initialization initialization = Initialization::kZero;
  float deviation = 0;
  bool decays = false;  // weight decay applies (matrices yes; biases, norms no)
};

// Names: token_embedding.weight (V, C); position_embedding.weight (T, C) if learned; output.weight (V, C)
// unless tied; final_norm.{weight,bias} (C) if pre-norm; and for each layer "layers.<l>." +
// attention_norm.{weight,bias} (C), attention.query_key_value.{weight (3, H, D, C), bias (3, H, D)},
// attention.output.{weight (C, H, D), bias (C)}, feed_forward_norm.{weight,bias} (C), feed_forward.up.{weight
// (F, C), bias (F)}, feed_forward.down.{weight (C, F), bias (C)}. A layer without heads keeps its names, with
// a count of 0. No padding: offsets follow each other without holes.
class ParameterLayout {
 public:
  explicit ParameterLayout(const ModelShape& shape);
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Parameter& Find(const std::string& name) const;  // HEADSWEEP_CHECKs that it exists
  std::int64_t size() const { return size_; }            // values, all parameters
  // Decaying parameters lie first: [0, decaying_size()) decays, the rest does not, so an optimiser step is
  // two calls.
  std::int64_t decaying_size() const { return decaying_size_; }

 private:
  std::vector<Parameter> parameters_;
  std::int64_t size_ = 0, decaying_size_ = 0;
};

}  // namespace headsweep
