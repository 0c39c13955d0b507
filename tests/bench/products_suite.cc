// Suite "products": our matrix products beside oneDNN's, at the shapes of a training step and some awkward
// ones.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "kernels/cpu/gemm.h"
#include "tests/bench/gemm_skeleton.h"
#include "tests/bench/measure.h"
#include "tests/bench/onednn_gemm.h"
#include "tests/bench/suites.h"

namespace headsweep::bench {

namespace {

struct ProductCase {
  std::string name;
  bool transpose_a, transpose_b;
  std::int64_t M, N, K;
  double Flops() const {
    return 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
  }
  std::int64_t lda() const { return transpose_a ? M : K; }
  std::int64_t ldb() const { return transpose_b ? K : N; }
};

std::vector<ProductCase> Cases(const StepShape& s) {
  std::vector<ProductCase> cases;
  const std::int64_t R = s.Rows();
  const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
    cases.push_back({fmt::format("{} y = x W'", name), false, true, R, out, in});
    cases.push_back({fmt::format("{} dx = dy W", name), false, false, R, in, out});
    cases.push_back({fmt::format("{} dW = dy' x", name), true, false, out, in, R});
  };
  linear("qkv", s.C, 3 * s.H * s.D);
  linear("output", s.H * s.D, s.C);
  linear("ff1", s.C, s.F);
  linear("ff2", s.F, s.C);
  linear("head", s.C, s.V);
  cases.push_back({"square", false, false, 1024, 1024, 1024});
  cases.push_back({"odd", false, true, 997, 509, 251});
  cases.push_back({"few rows", false, true, 32, 1024, 256});
  cases.push_back({"tiny", false, false, 64, 64, 64});
  return cases;
}

std::vector<float> Operand(std::int64_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

Table ProductsTable(int threads, double seconds) {
  const std::vector<ProductCase> cases = Cases(StepShape{});
  std::int64_t a = 0, b = 0, c = 0;
  for (const ProductCase& p : cases) {
    a = std::max(a, p.M * p.K);
    b = std::max(b, p.N * p.K);
    c = std::max(c, p.M * p.N);
  }
  const std::vector<float> A = Operand(a), B = Operand(b);
  std::vector<float> C(static_cast<std::size_t>(c));
  cpu::Scratch scratch;
  std::vector<Candidate> candidates;
  for (const ProductCase& p : cases) {
    const int calls =
        std::max(1, static_cast<int>(1e7 / p.Flops()));  // so that a sample is far above a timer's error
    candidates.push_back({p.name, [&, p, calls] {
                            for (int i = 0; i < calls; ++i) {
                              OneDnnGemm(p.transpose_a, p.transpose_b, p.M, p.N, p.K, A.data(), p.lda(),
                                         B.data(), p.ldb(), 0, C.data(), p.N, threads);
                            }
                          }});
    candidates.push_back({p.name, [&, p, calls] {
                            for (int i = 0; i < calls; ++i) {
                              cpu::Gemm(p.transpose_a, p.transpose_b, p.M, p.N, p.K, A.data(), p.lda(),
                                        B.data(), p.ldb(), false, C.data(), p.N, threads, scratch);
                            }
                          }});
  }
  const std::vector<Timing> timings = MeasureInterleaved(candidates, 10, seconds);
  Table table{
      fmt::format("{} thread{}", threads, threads == 1 ? "" : "s"),
      {"product", "M x N x K", "oneDNN GFLOP/s", "ours GFLOP/s", "time ratio of medians", "of minima"},
      {}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Timing &peer = timings[2 * i], &ours = timings[2 * i + 1];
    const double flops = cases[i].Flops() * std::max(1, static_cast<int>(1e7 / cases[i].Flops())) / 1e9;
    table.rows.push_back({cases[i].name, fmt::format("{} x {} x {}", cases[i].M, cases[i].N, cases[i].K),
                          flops / peer.Median(), flops / ours.Median(), ours.Median() / peer.Median(),
                          ours.Minimum() / peer.Minimum()});
  }
  return table;
}

}  // namespace

Report RunProducts(const Options& options) {
  Report report;
  report.suite = "products";
  report.machine = fmt::format("{}; peer: {}", cpu::GemmDescription(), OneDnnVersion());
  for (const int threads : options.threads) report.tables.push_back(ProductsTable(threads, options.seconds));
  report.notes = {"W', dy': transposed. A ratio below 1 means that ours is faster."};
  return report;
}

}  // namespace headsweep::bench
