// Suite "ops": each op at the shapes of a training step, beside its floor measured in the same rounds.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <random>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "tests/bench/gemm_skeleton.h"
#include "tests/bench/measure.h"
#include "tests/bench/onednn_gemm.h"
#include "tests/bench/suites.h"

namespace headsweep::bench {

namespace {

// What an op costs at least: moved bytes (read plus written), or floating-point operations of products.
struct OpCase {
  std::string name;
  int calls_a_step = 1;
  double bytes = 0;  // 0: use flops
  double flops = 0;
  std::function<void()> run;
};

// Memory of one backend for all cases; filled with small random numbers so that no op meets denormals or
// infinities.
class OpBuffers {
 public:
  explicit OpBuffers(Backend& backend) : backend_(backend) {}
  ~OpBuffers() {
    for (void* memory : blocks_) backend_.Free(memory);
  }
  OpBuffers(const OpBuffers&) = delete;
  OpBuffers& operator=(const OpBuffers&) = delete;

  float* Floats(std::int64_t count) {
    auto* p = static_cast<float*>(backend_.Allocate(static_cast<std::size_t>(count) * sizeof(float)));
    blocks_.push_back(p);
    std::mt19937 random(static_cast<unsigned>(blocks_.size()));
    std::uniform_real_distribution<float> uniform(0.01f, 0.1f);
    for (std::int64_t i = 0; i < count; ++i) p[i] = uniform(random);
    return p;
  }
  Element* Elements(std::int64_t count) { return reinterpret_cast<Element*>(Floats(count)); }
  std::int32_t* Ints(std::int64_t count, int below) {
    auto* p =
        static_cast<std::int32_t*>(backend_.Allocate(static_cast<std::size_t>(count) * sizeof(std::int32_t)));
    blocks_.push_back(p);
    std::mt19937 random(7);
    for (std::int64_t i = 0; i < count; ++i)
      p[i] = static_cast<std::int32_t>(random() % static_cast<unsigned>(below));
    return p;
  }

 private:
  Backend& backend_;
  std::vector<void*> blocks_;
};

// Every op of a training step of shape s, on one backend. Byte counts are those of a perfect implementation:
// each operand once.
std::vector<OpCase> StepOps(Backend& backend, OpBuffers& memory, const StepShape& s) {
  const std::int64_t R = s.Rows(), C = s.C, F = s.F, V = s.V, width = static_cast<std::int64_t>(s.H) * s.D;
  const std::int64_t parameters = V * C + s.T * C + s.L * (4 * C * width + 2 * C * F + 9 * C + F + 3 * width);
  const auto bytes = [](std::int64_t values) { return 4.0 * static_cast<double>(values); };
  const auto product = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  };
  Element *x = memory.Elements(R * F), *y = memory.Elements(R * F), *pre = memory.Elements(R * F);
  Element *logits = memory.Elements(R * V), *weight = memory.Elements(V * C), *vector = memory.Elements(V);
  float *master = memory.Floats(parameters), *m = memory.Floats(parameters), *v = memory.Floats(parameters);
  float *gradient = memory.Floats(parameters), *stats = memory.Floats(2 * R), *lse = memory.Floats(R * s.H);
  float *delta = memory.Floats(R * s.H), *scalars = memory.Floats(4);
  const std::int32_t *tokens = memory.Ints(R, s.V), *targets = memory.Ints(R, s.V);
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
  cases.push_back({"ActivationBackward gelu", s.L, bytes(3 * R * F), 0,
                   [=, &backend] { backend.ActivationBackward(y, x, pre, R * F, Activation::kGelu); }});
  cases.push_back({"EmbeddingForward", 1, bytes(2 * R * C), 0,
                   [=, &backend] { backend.EmbeddingForward(tokens, weight, x, y, s.B, s.T, s.C, 1); }});
  cases.push_back({"EmbeddingBackward", 1, bytes(3 * R * C), 0, [=, &backend] {
                     backend.EmbeddingBackward(tokens, y, gradient, gradient + V * C, s.B, s.T, s.C, s.V, 1);
                   }});
  cases.push_back({"CrossEntropy", 1, bytes(2 * R * V), 0,
                   [=, &backend] { backend.CrossEntropy(logits, targets, stats, nullptr, R, s.V, 0, 1); }});
  cases.push_back({"SumOfSquares", 1, bytes(parameters), 0,
                   [=, &backend] { backend.SumOfSquares(gradient, parameters, scalars); }});
  cases.push_back({"AdamWUpdate", 1, bytes(7 * parameters), 0, [=, &backend] {
                     Backend::AdamW adam;
                     adam.learning_rate = 1e-6f;
                     backend.AdamWUpdate(adam, master, reinterpret_cast<Element*>(master), m, v, gradient,
                                         nullptr, parameters);
                   }});
  cases.push_back({"Fill (zero gradients)", 1, bytes(parameters), 0,
                   [=, &backend] { backend.Fill(gradient, 0, parameters); }});
  cases.push_back({"ApplyDropout", 0, bytes(2 * R * C), 0, [=, &backend] {
                     backend.ApplyDropout(x, y, s.B, s.T * C, {0.1f, 1, 2, 0});
                   }});
  cases.push_back({"Add", 0, bytes(3 * R * C), 0, [=, &backend] { backend.Add(x, y, pre, R * C); }});
  return cases;
}

// Moves `bytes` altogether (half read, half written).
void CopyFloor(float* to, const float* from, double bytes, int threads) {
  const auto half = static_cast<std::int64_t>(bytes / 2);
  cpu::ParallelRanges(threads, half, 1 << 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::memcpy(reinterpret_cast<char*>(to) + begin, reinterpret_cast<const char*>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

Table OpsTable(int threads, double seconds) {
  const StepShape shape;
  const auto backend = MakeBackend({"cpu", threads});
  OpBuffers memory(*backend);
  const std::vector<OpCase> cases = StepOps(*backend, memory, shape);
  double most_bytes = 0;
  for (const OpCase& c : cases) most_bytes = std::max(most_bytes, c.bytes);
  const auto copied = static_cast<std::int64_t>(most_bytes / 8) + 16;
  float *from = memory.Floats(copied), *to = memory.Floats(copied);

  constexpr int kSide = 1024;  // of the square product whose rate is the floor of products
  const double square_flops = 2.0 * kSide * kSide * kSide;
  float *a = memory.Floats(kSide * kSide), *b = memory.Floats(kSide * kSide),
        *c = memory.Floats(kSide * kSide);
  std::vector<Candidate> candidates = {
      {"product",
       [=] { OneDnnGemm(false, false, kSide, kSide, kSide, a, kSide, b, kSide, 0, c, kSide, threads); }}};
  for (const OpCase& op : cases) {
    candidates.push_back({op.name, op.run});
    if (op.bytes > 0) candidates.push_back({"copy", [=, &op] { CopyFloor(to, from, op.bytes, threads); }});
  }
  const std::vector<Timing> timings = MeasureInterleaved(candidates, 5, seconds);

  Table table{fmt::format("{} thread{}: products {:.0f} GFLOP/s (oneDNN, 1024 cubed)", threads,
                          threads == 1 ? "" : "s", square_flops / timings[0].Median() / 1e9),
              {"op", "calls/step", "ms", "floor ms", "ratio", "ms/step"},
              {}};
  double total = 0;
  std::size_t at = 1;
  for (const OpCase& op : cases) {
    const double time = timings[at++].Median();
    const double floor =
        op.bytes > 0 ? timings[at++].Median() : timings[0].Median() * op.flops / square_flops;
    total += op.calls_a_step * time;
    table.rows.push_back({op.name, static_cast<double>(op.calls_a_step), time * 1e3, floor * 1e3,
                          time / floor, op.calls_a_step * time * 1e3});
  }
  table.rows.push_back({std::string("all of a step"), std::string(), std::string(), std::string(),
                        std::string(), total * 1e3});
  return table;
}

}  // namespace

Report RunOps(const Options& options) {
  Report report;
  report.suite = "ops";
  report.machine = MakeBackend({"cpu", options.threads.back()})->description();
  for (const int threads : options.threads) report.tables.push_back(OpsTable(threads, options.seconds));
  report.notes = {
      "ms: medians. Floor: a copy that moves as many bytes in all, or as many operations at the rate of the "
      "square "
      "product, measured in the same rounds. Attention's operations are counted in full, not causal-halved, "
      "so "
      "its ratio may be below 1."};
  return report;
}

}  // namespace headsweep::bench
