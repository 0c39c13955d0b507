// Suite "attention": forward and backward over head sizes and lengths, beside PyTorch's
// scaled_dot_product_attention where python3 has torch.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "cluster/base/errors.h"
#include "cluster/base/run_program.h"
#include "tests/bench/device_suites.h"
#include "tests/bench/op_cases.h"

namespace headsweep::bench {
namespace {

struct AttentionCase {
  int B = 0, H = 0, T = 0, D = 0;
  bool causal = false;
  // A multiply and an add count as two; causal ones are half as many.
  double ForwardFlops() const {
    const double full = 4.0 * B * H * static_cast<double>(T) * T * D;
    return causal ? full / 2 : full;
  }
  double BackwardFlops() const { return 2.5 * ForwardFlops(); }  // five products where forward has two
  std::string Words() const { return fmt::format("{} {} {} {} {}", B, H, T, D, causal ? 1 : 0); }
};

// The same number of tokens and the same width for all, so that rates can be compared.
std::vector<AttentionCase> Cases(const Options& options) {
  const bool card = options.device == "cuda", cpu = options.device == "cpu";
  const int tokens = card ? 16384 : cpu ? 1024 : 32, width = card ? 2048 : cpu ? 512 : 64;
  const std::vector<int> head_sizes =
      card || cpu ? std::vector<int>{32, 64, 128, 256, 512} : std::vector<int>{32, 64};
  const std::vector<int> lengths = card  ? std::vector<int>{128, 512, 2048}
                                   : cpu ? std::vector<int>{128, 512}
                                         : std::vector<int>{16};
  std::vector<AttentionCase> cases;
  for (const bool causal : {false, true})
    for (const int D : head_sizes)
      for (const int T : lengths) cases.push_back({tokens / T, std::max(1, width / D), T, D, causal});
  return cases;
}

struct Times {
  double forward = 0, backward = 0;
};

Times Measure(Backend& backend, const AttentionCase& c, double seconds) {
  OpBuffers memory(backend);
  const std::int64_t width = std::int64_t{c.H} * c.D, rows = std::int64_t{c.B} * c.T;
  Element *qkv = memory.Elements(3 * rows * width), *dqkv = memory.Elements(3 * rows * width);
  Element *out = memory.Elements(rows * width), *dout = memory.Elements(rows * width);
  float *lse = memory.Floats(rows * c.H), *delta = memory.Floats(rows * c.H);
  const AttentionShape shape{
      c.B,       c.T,       c.T,      c.H,     c.D,
      3 * width, 3 * width, c.causal, nullptr, 1.0f / std::sqrt(static_cast<float>(c.D)),
      {}};
  const auto part = [&](Element* p, int i) { return backend.Offset(p, i * width); };
  Times times;
  times.forward = MedianSeconds(
      backend,
      [&] { backend.AttentionForward(shape, qkv, part(qkv, 1), part(qkv, 2), nullptr, out, nullptr, lse); },
      seconds);
  times.backward = MedianSeconds(
      backend,
      [&] {
        backend.AttentionBackward(shape, qkv, part(qkv, 1), part(qkv, 2), nullptr, out, lse, dout, dqkv,
                                  part(dqkv, 1), part(dqkv, 2), delta);
      },
      seconds);
  return times;
}

// Reads cases "B H T D causal", one a line of argument 3; prints "forward backward" seconds for each.
constexpr const char* kTorchScript = R"(
import sys, time, torch
import torch.nn.functional as F
device, precision = sys.argv[1], sys.argv[2]
dtype = {'float32': torch.float32, 'bfloat16': torch.bfloat16}[precision]
torch.backends.cuda.matmul.allow_tf32 = False
def seconds(run):
    run()
    def once(n):
        if device == 'cuda':
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(n): run()
            end.record()
            torch.cuda.synchronize()
            return begin.elapsed_time(end) / 1e3 / n
        begin = time.perf_counter()
        for _ in range(n): run()
        return (time.perf_counter() - begin) / n
    n = max(1, int(2e-3 / max(once(1), 1e-7)))
    return sorted(once(n) for _ in range(7))[3]
for line in sys.argv[3].splitlines():
    B, H, T, D, causal = map(int, line.split())
    q, k, v = (torch.rand(B, T, H, D, device=device, dtype=dtype).transpose(1, 2).requires_grad_() for _ in range(3))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))
    grad = torch.rand_like(out)
    with torch.no_grad():
        forward = seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal)))
    backward = seconds(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
    print(forward, backward, flush=True)
print('torch', torch.__version__)
)";

// PyTorch's times; version is "" where there is no PyTorch, or it failed: why says so.
std::vector<Times> MeasureTorch(const Options& options, const std::vector<AttentionCase>& cases,
                                std::string& version, std::string& why) {
  std::string lines;
  for (const AttentionCase& c : cases) lines += c.Words() + "\n";
  std::vector<Times> times;
  if (FindProgram("python3").empty()) {
    why = "no python3";
    return times;
  }
  const char* device = options.device == "cuda" ? "cuda" : "cpu";
  std::vector<std::pair<std::string, std::string>>
      environment;  // python3 is the machine's own: not with libraries we carry
  if (const char* outer = std::getenv("HEADSWEEP_OUTER_LIBRARY_PATH"))
    environment = {{"LD_LIBRARY_PATH", outer}};
  try {
    const ProgramResult result = RunProgram({"python3", "-c", kTorchScript, device, options.precision, lines},
                                            120, /*merge_errors=*/true, environment);
    std::istringstream output(result.output);
    Times row;
    while (times.size() < cases.size() && output >> row.forward >> row.backward) times.push_back(row);
    std::string word;
    if (result.exit_code == 0 && times.size() == cases.size() && output >> word >> version) return times;
    const std::size_t last = result.output.find_last_of(
        '\n', result.output.size() - std::min<std::size_t>(result.output.size(), 2));
    why = result.output.substr(last == std::string::npos ? 0 : last + 1);
  } catch (const Error& error) {
    why = error.what();
  }
  version.clear();
  return {};
}

}  // namespace

Report RunAttention(const Options& options) {
  const auto backend = MakeDevice(options);
  const std::vector<AttentionCase> cases = Cases(options);
  std::string version, why;
  const std::vector<Times> torch = MeasureTorch(options, cases, version, why);
  const double unit = options.device == "cuda" ? 1e12 : 1e9;
  const char* rate = options.device == "cuda" ? "TFLOP/s" : "GFLOP/s";
  Table table{fmt::format("{}, B x T constant", options.precision),
              {"head size", "heads", "T", "B", "causal", "forward ms", fmt::format("forward {}", rate),
               "backward ms", fmt::format("backward {}", rate)},
              {}};
  if (!torch.empty())
    for (const char* column : {"torch forward ms", "torch backward ms", "forward ratio", "backward ratio"})
      table.columns.emplace_back(column);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const AttentionCase& c = cases[i];
    const Times times = Measure(*backend, c, options.seconds / static_cast<double>(2 * cases.size()));
    std::vector<Cell> row = {static_cast<double>(c.D),
                             static_cast<double>(c.H),
                             static_cast<double>(c.T),
                             static_cast<double>(c.B),
                             std::string(c.causal ? "yes" : "no"),
                             times.forward * 1e3,
                             c.ForwardFlops() / times.forward / unit,
                             times.backward * 1e3,
                             c.BackwardFlops() / times.backward / unit};
    if (!torch.empty())
      for (const double value : {torch[i].forward * 1e3, torch[i].backward * 1e3,
                                 times.forward / torch[i].forward, times.backward / torch[i].backward})
        row.emplace_back(value);
    table.rows.push_back(row);
  }
  Report report;
  report.suite = "attention";
  report.machine = backend->description();
  report.tables.push_back(table);
  report.notes = {
      "Operations: 4 B H T T D forward, 2.5 times as many backward, half of it when causal. Ratio: our time "
      "over PyTorch's.",
      version.empty() ? "PyTorch: not measured (" + why + ")"
                      : "PyTorch " + version + ", scaled_dot_product_attention"};
  return report;
}

}  // namespace headsweep::bench
