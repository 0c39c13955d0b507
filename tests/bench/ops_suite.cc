// Suite "ops": each op at the shapes of a training step, beside its floor measured in the same rounds.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "tests/bench/device_suites.h"
#include "tests/bench/gemm_skeleton.h"
#include "tests/bench/measure.h"
#include "tests/bench/onednn_gemm.h"
#include "tests/bench/op_cases.h"
#include "tests/bench/suites.h"

namespace headsweep::bench {

namespace {

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
  if (options.device != "cpu") return RunDeviceOps(options);
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
