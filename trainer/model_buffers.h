// The memory of a Model: where each parameter lies, and the arena of everything a pass writes. The arena is
// described by one function that runs twice: once to measure, once to hand out (kernels/arena.h). Letters as
// in kernels/backend.h; R = max_examples * T rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "trainer/model.h"
#include "trainer/parameter_layout.h"

namespace headsweep {

// Offsets of a layer's parameters in the flat buffers, looked up once.
struct LayerOffsets {
  std::int64_t attention_norm_weight, attention_norm_bias;
  std::int64_t qkv_weight, qkv_bias;        // (3, H, D, C), (3, H, D)
  std::int64_t output_weight, output_bias;  // (C, H, D), (C)
  std::int64_t feed_forward_norm_weight, feed_forward_norm_bias;
  std::int64_t up_weight, up_bias;      // (F, C), (F)
  std::int64_t down_weight, down_bias;  // (C, F), (C)
};

struct ModelOffsets {
  explicit ModelOffsets(const ParameterLayout& layout, const ModelShape& shape);
  std::int64_t token_embedding = 0;
  std::int64_t position_embedding = -1;                       // -1: sinusoidal
  std::int64_t final_norm_weight = -1, final_norm_bias = -1;  // -1: post-norm
  std::int64_t output_projection = 0;                         // (V, C), the token embedding's when tied
  std::vector<LayerOffsets> layers;
};

// What one layer writes. In a kTrain model every layer has its own, kept for the backward pass; in a
// kEvaluate model all layers share one set, and the stream is updated in place.
//   pre-norm:  attention_input = LN(stream); middle = stream + attention(attention_input);
//              feed_forward_input = LN(middle); next stream = middle + feed_forward(feed_forward_input)
//   post-norm: attention_input is stream; middle = stream + attention(stream); feed_forward_input =
//   LN(middle);
//              end = feed_forward_input + feed_forward(feed_forward_input); next stream = LN(end)
struct LayerBuffers {
  Element* stream;              // (R, C)
  Element* attention_input;     // (R, C)
  Element* qkv;                 // (R, 3*H*D): row = q heads, k heads, v heads
  Element* heads;               // (R, H*D) attention's output before the gates
  Element* gated;               // (R, H*D) after the gates; written only while gates are set
  float* log_sum_exp;           // (B, H, T)
  Element* middle;              // (R, C)
  Element* feed_forward_input;  // (R, C)
  Element* pre_activation;      // (R, F); kTrain only
  Element* activation;          // (R, F)
  Element* end;                 // (R, C); post-norm only
  float *attention_mean, *attention_rstd, *feed_forward_mean, *feed_forward_rstd;  // (R)
};

struct ModelBuffers {
  // Parameters (layout order). weights is master itself where the compute type is float32.
  float* master;
  Element* weights;
  float* gradients;    // nullptr in kEvaluate
  Element* sinusoids;  // (T, C) or nullptr
  float* gates;        // (all heads)
  float* scores;       // (3, all heads): per_example, per_token, squares; nullptr in kEvaluate

  // The batch.
  std::int32_t *tokens, *targets, *lengths;  // (R), (R), (max_examples)
  std::int32_t*
      zeros;  // (R) token 0 everywhere: broadcasts a bias through the embedding op (layers without heads)

  PassNumbers* numbers;  // what this pass has of its own

  // Activations.
  std::vector<LayerBuffers> layers;
  Element* final_stream;           // (R, C) after the last layer; post-norm: also `hidden`
  Element* hidden;                 // (R, C) what the output projection reads
  float *final_mean, *final_rstd;  // (R), pre-norm only
  Element* branch;  // (R, C) output of a sub-layer before it joins the stream; backward: its gradient
  Element* logits;  // (logit_rows, V): the output projection runs in pieces of so many rows
  std::int64_t logit_rows;
  float* losses;  // (R)

  // Gradients of activations, kTrain only; shared by all layers.
  Element* d_stream;         // (R, C)
  Element* d_activation;     // (R, F)
  Element *d_heads, *d_qkv;  // (R, H*D), (R, 3*H*D); share d_activation's memory, never live at the same time
  float* delta;              // (B, H, T)
};

// Describes the buffers from `base` on; nullptr only measures. Returns the bytes.
std::size_t PlanModelBuffers(const Backend& backend, const ModelShape& shape, int max_examples,
                             Model::Purpose purpose, void* base, ModelBuffers& buffers);

}  // namespace headsweep
