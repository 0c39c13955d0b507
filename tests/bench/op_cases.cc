#include "tests/bench/op_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace headsweep::bench {
namespace {

constexpr std::int64_t kPattern = 1 << 16;  // values drawn; longer buffers repeat them

std::vector<float> SmallNumbers(unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0.01f, 0.1f);
  std::vector<float> numbers(static_cast<std::size_t>(kPattern));
  for (float& number : numbers) number = uniform(random);
  return numbers;
}

}  // namespace

OpBuffers::~OpBuffers() {
  for (void* memory : blocks_) backend_.Free(memory);
}

template <class Value, class Host>
Value* OpBuffers::Filled(std::int64_t count, std::size_t value_bytes, const std::vector<Host>& pattern) {
  char* memory = static_cast<char*>(backend_.Allocate(static_cast<std::size_t>(count) * value_bytes));
  blocks_.push_back(memory);
  for (std::int64_t done = 0; done < count; done += kPattern) {
    auto* to = reinterpret_cast<Value*>(memory + static_cast<std::size_t>(done) * value_bytes);
    backend_.CopyIn(to, pattern.data(), std::min(kPattern, count - done));
  }
  return reinterpret_cast<Value*>(memory);
}

float* OpBuffers::Floats(std::int64_t count) {
  return Filled<float>(count, sizeof(float), SmallNumbers(static_cast<unsigned>(blocks_.size()) + 1));
}

Element* OpBuffers::Elements(std::int64_t count) {
  return Filled<Element>(count, backend_.element_bytes(),
                         SmallNumbers(static_cast<unsigned>(blocks_.size()) + 1));
}

std::int32_t* OpBuffers::Ints(std::int64_t count, int below) {
  std::mt19937 random(7);
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(kPattern));
  for (std::int32_t& number : numbers)
    number = static_cast<std::int32_t>(random() % static_cast<unsigned>(below));
  return Filled<std::int32_t>(count, sizeof(std::int32_t), numbers);
}

std::vector<OpCase> StepOps(Backend& backend, OpBuffers& memory, const StepShape& s) {
  const std::int64_t R = s.Rows(), C = s.C, F = s.F, V = s.V, width = static_cast<std::int64_t>(s.H) * s.D;
  const std::int64_t parameters = V * C + s.T * C + s.L * (4 * C * width + 2 * C * F + 9 * C + F + 3 * width);
  // Values of the compute type, and of float32.
  const auto bytes = [&](std::int64_t elements, std::int64_t floats = 0) {
    return static_cast<double>(backend.element_bytes()) * static_cast<double>(elements) +
           4.0 * static_cast<double>(floats);
  };
  const auto product = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  };
  const std::int64_t widest = std::max({F, C, 3 * width});  // of a layer's rows
  Element *x = memory.Elements(R * widest), *y = memory.Elements(R * widest),
          *pre = memory.Elements(R * widest);
  Element *logits = memory.Elements(R * V),
          *weight = memory.Elements(std::max(V, widest) * std::max(C, width));
  Element* vector = memory.Elements(std::max(V, widest));
  float *master = memory.Floats(parameters), *m = memory.Floats(parameters), *v = memory.Floats(parameters);
  float *gradient = memory.Floats(parameters), *stats = memory.Floats(2 * R), *lse = memory.Floats(R * s.H);
  float *delta = memory.Floats(R * s.H), *scalars = memory.Floats(4), *rates = memory.Floats(3);
  const std::int32_t *tokens = memory.Ints(R, s.V), *targets = memory.Ints(R, s.V);
  const bool mixed = backend.element_bytes() != sizeof(float);  // weights are a rounded copy of the master's
  Element* weights = mixed ? memory.Elements(parameters) : reinterpret_cast<Element*>(master);
  AttentionShape attention{s.B, s.T, s.T, s.H, s.D, 3 * width, 3 * width, true, nullptr, 0.17f, {}};
  AttentionShape dropped = attention;
  dropped.dropout = {0.1f, 1, 2, 0};

  std::vector<OpCase> cases;
  const auto linear = [&](const char* name, std::int64_t in, std::int64_t out, Activation activation,
                          int calls) {
    const int I = static_cast<int>(in), O = static_cast<int>(out);
    cases.push_back({fmt::format("LinearForward {} {}x{}x{}", name, R, out, in), calls, 0,
                     product(R, out, in), [=, &backend] {
                       backend.LinearForward(x, weight, vector, out == V ? logits : y,
                                             activation == Activation::kNone ? nullptr : pre, R, I, O,
                                             activation);
                     }});
    cases.push_back({fmt::format("LinearBackward {} {}x{}x{}", name, R, out, in), calls, 0,
                     2 * product(R, out, in), [=, &backend] {
                       backend.LinearBackward(out == V ? logits : y, x, weight, pre, gradient, m, R, I, O,
                                              false);
                     }});
  };
  linear("qkv", C, 3 * width, Activation::kNone, s.L);
  linear("output", width, C, Activation::kNone, s.L);
  linear("ff1+gelu", C, F, Activation::kGelu, s.L);
  linear("ff2", F, C, Activation::kNone, s.L);
  linear("head", C, V, Activation::kNone, 1);
  const double attention_flops =
      4.0 * static_cast<double>(R) * static_cast<double>(width) * s.T;  // not causal-halved
  cases.push_back({"AttentionForward causal", s.L, 0, attention_flops, [=, &backend] {
                     backend.AttentionForward(attention, x, backend.Offset(x, width),
                                              backend.Offset(x, 2 * width), nullptr, y, nullptr, lse);
                   }});
  cases.push_back({"AttentionBackward causal", s.L, 0, 2 * attention_flops, [=, &backend] {
                     backend.AttentionBackward(
                         attention, x, backend.Offset(x, width), backend.Offset(x, 2 * width), nullptr, y,
                         lse, y, pre, backend.Offset(pre, width), backend.Offset(pre, 2 * width), delta);
                   }});
  cases.push_back({"AttentionForward causal, dropout", 0, 0, attention_flops, [=, &backend] {
                     backend.AttentionForward(dropped, x, backend.Offset(x, width),
                                              backend.Offset(x, 2 * width), nullptr, y, nullptr, lse);
                   }});
  cases.push_back({"LayerNormForward", 1, bytes(2 * R * C), 0, [=, &backend] {
                     backend.LayerNormForward(x, nullptr, nullptr, vector, vector, y, stats, stats + R, R,
                                              s.C, 1e-5f);
                   }});
  cases.push_back({"LayerNormForward residual", 2 * s.L, bytes(4 * R * C), 0, [=, &backend] {
                     backend.LayerNormForward(x, pre, pre, vector, vector, y, stats, stats + R, R, s.C,
                                              1e-5f);
                   }});
  cases.push_back({"LayerNormBackward residual", 2 * s.L + 1, bytes(4 * R * C), 0, [=, &backend] {
                     backend.LayerNormBackward(y, x, vector, stats, stats + R, pre, pre, m, v, R, s.C);
                   }});
  cases.push_back({fmt::format("LinearBackward through gelu {}x{}x{}", R, F, C), 0, 0, product(R, F, C),
                   [=, &backend] {
                     backend.LinearBackwardThroughActivation(y, weight, pre, x, R, static_cast<int>(F),
                                                             static_cast<int>(C), Activation::kGelu);
                   }});
  cases.push_back({"ActivationBackward gelu", s.L, bytes(3 * R * F), 0,
                   [=, &backend] { backend.ActivationBackward(y, x, pre, R * F, Activation::kGelu); }});
  cases.push_back({"EmbeddingForward", 1, bytes(2 * R * C), 0,
                   [=, &backend] { backend.EmbeddingForward(tokens, weight, x, y, s.B, s.T, s.C, 1); }});
  cases.push_back({"EmbeddingBackward", 1, bytes(3 * R * C), 0, [=, &backend] {
                     backend.EmbeddingBackward(tokens, y, gradient, gradient + V * C, s.B, s.T, s.C, s.V, 1);
                   }});
  cases.push_back({"CrossEntropy", 1, bytes(2 * R * V), 0, [=, &backend] {
                     backend.CrossEntropy(logits, targets, stats, nullptr, R, s.V, 0, 1, nullptr);
                   }});
  cases.push_back({"SumOfSquares", 1, bytes(0, parameters), 0,
                   [=, &backend] { backend.SumOfSquares(gradient, parameters, scalars); }});
  cases.push_back({"AdamWUpdate", 1, bytes(mixed ? parameters : 0, 7 * parameters), 0, [=, &backend] {
                     Backend::AdamW adam;
                     backend.AdamWUpdate(adam, rates, master, weights, m, v, gradient, nullptr, parameters);
                   }});
  cases.push_back({"Fill (zero gradients)", 1, bytes(0, parameters), 0,
                   [=, &backend] { backend.Fill(gradient, 0, parameters); }});
  cases.push_back({"ApplyDropout", 0, bytes(2 * R * C), 0, [=, &backend] {
                     backend.ApplyDropout(x, y, s.B, s.T * C, {0.1f, 1, 2, 0});
                   }});
  cases.push_back({"Add", 0, bytes(3 * R * C), 0, [=, &backend] { backend.Add(x, y, pre, R * C); }});
  return cases;
}

}  // namespace headsweep::bench
