// Suites "ops" and "step" on a device.
#include <fmt/format.h>

#include "tests/bench/device_suites.h"
#include "tests/bench/op_cases.h"
#include "tests/bench/training_step.h"
#include "trainer/flops.h"

namespace headsweep::bench {
namespace {

std::string Describe(const StepShape& s) {
  return fmt::format("layers {}, embed {}, heads {} of {}, feed-forward {}, T {}, B {}, vocabulary {}", s.L,
                     s.C, s.H, s.D, s.F, s.T, s.B, s.V);
}

}  // namespace

Report RunDeviceOps(const Options& options) {
  const auto backend = MakeDevice(options);
  const DeviceRates rates = MeasureRates(*backend, options);
  const StepShape shape = DeviceShape(options);
  OpBuffers memory(*backend);
  const std::vector<OpCase> cases = StepOps(*backend, memory, shape);

  Table table{fmt::format("{}; {}", Describe(shape), rates.Describe(options.precision)),
              {"op", "calls/step", "ms", "floor ms", "ratio", "ms/step", "GB/s", "TFLOP/s"},
              {}};
  double total = 0;
  for (const OpCase& op : cases) {
    const double time = MedianSeconds(*backend, op.run, options.seconds / static_cast<double>(cases.size()));
    const double floor = op.bytes > 0 ? op.bytes / rates.bytes : op.flops / rates.flops;
    total += op.calls_a_step * time;
    table.rows.push_back({op.name, static_cast<double>(op.calls_a_step), time * 1e3, floor * 1e3,
                          time / floor, op.calls_a_step * time * 1e3,
                          op.bytes > 0 ? Cell(op.bytes / time / 1e9) : Cell(std::string()),
                          op.flops > 0 ? Cell(op.flops / time / 1e12) : Cell(std::string())});
  }
  const std::string none;
  table.rows.push_back({std::string("all of a step"), none, none, none, none, total * 1e3, none, none});
  Report report;
  report.suite = "ops";
  report.machine = backend->description();
  report.tables.push_back(table);
  report.notes = {
      "ms: medians of the device's own time. Floor: bytes that must be moved at the rate of copies, or "
      "operations at the rate of "
      "the square product. Small operands may stay in the cache, so a ratio may be below 1. Attention's "
      "operations are counted "
      "in full, not causal-halved."};
  return report;
}

Report RunDeviceStep(const Options& options) {
  const StepShape shape = DeviceShape(options);
  DeviceRates rates;
  {
    const auto backend = MakeDevice(options);
    rates = MeasureRates(*backend, options);
  }
  const double flops = TrainingStepFlops(ModelShapeOf(shape), shape.B);
  Table table{fmt::format("{}; {}", Describe(shape), rates.Describe(options.precision)),
              {"precision", "enqueued", "step ms", "tokens/s", "TFLOP/s", "of the product's rate"},
              {}};
  Report report;
  report.suite = "step";
  for (const bool run_ahead : {true, false}) {
    BackendOptions device;
    device.device = options.device;
    device.threads = options.threads.back();
    device.precision = options.precision;
    device.run_ahead = run_ahead;
    TrainingStep step(shape, device);
    step.Step();  // a graph is recorded the second time; MedianSeconds runs once before it looks
    const double time = MedianSeconds(
        step.backend(), [&] { step.Step(); }, options.seconds / 2);
    table.rows.push_back({options.precision, std::string(run_ahead ? "as graphs" : "op by op"), time * 1e3,
                          static_cast<double>(shape.Rows()) / time, flops / time / 1e12,
                          flops / time / rates.flops});
    report.machine = step.backend().description();
  }
  report.tables.push_back(table);
  report.notes = {
      "A step is forward, backward, clipping and AdamW on the same batch. Operations are those of its matrix "
      "products, attention "
      "in full (trainer/flops.h); the last column is model FLOP utilisation against the square product "
      "measured above."};
  return report;
}

}  // namespace headsweep::bench
