// Suite "step": a whole training step against its own matrix products.
#include <fmt/format.h>

#include <memory>

#include "tests/bench/device_suites.h"
#include "tests/bench/gemm_skeleton.h"
#include "tests/bench/measure.h"
#include "tests/bench/onednn_gemm.h"
#include "tests/bench/suites.h"
#include "tests/bench/training_step.h"
#include "tests/support/allocations.h"

namespace headsweep::bench {

namespace {

// Allocations of one step, once every scratch buffer has its size. OpenMP keeps one team at a time, so steps
// of another thread count in between would make it build a new one: these steps run alone.
testing::AllocationCount AllocationsOfAStep(TrainingStep& step) {
  for (int i = 0; i < 2; ++i) step.Step();
  const testing::AllocationCount before = testing::CountAllocations();
  step.Step();
  return testing::CountAllocations() - before;
}

}  // namespace

Report RunStep(const Options& options) {
  if (options.device != "cpu") return RunDeviceStep(options);
  const StepShape shape;
  Report report;
  report.suite = "step";
  std::vector<std::unique_ptr<TrainingStep>> steps;
  std::vector<std::unique_ptr<GemmSkeleton>> skeletons;
  std::vector<Candidate> candidates;
  for (const int threads : options.threads) {
    steps.push_back(std::make_unique<TrainingStep>(shape, BackendOptions{"cpu", threads}));
    skeletons.push_back(std::make_unique<GemmSkeleton>(shape, threads));
    candidates.push_back({"skeleton", [skeleton = skeletons.back().get()] { skeleton->Step(); }});
    candidates.push_back({"step", [step = steps.back().get()] { step->Step(); }});
  }
  report.machine = steps.back()->backend().description() + "; skeleton: " + OneDnnVersion();
  const std::vector<Timing> timings = MeasureInterleaved(candidates, 10, options.seconds);

  Table table{
      fmt::format(
          "layers {}, embed {}, heads {}, T {}, B {}, vocabulary {}: {:.2f} GFLOP a step in matrix products",
          shape.L, shape.C, shape.H, shape.T, shape.B, shape.V, shape.Flops() / 1e9),
      {"threads", "skeleton ms", "skeleton min", "GFLOP/s", "step ms", "step min", "tokens/s",
       "ratio of medians", "of minima", "of CPU time", "allocations", "page faults"},
      {}};
  for (std::size_t i = 0; i < options.threads.size(); ++i) {
    const Timing &skeleton = timings[2 * i], &step = timings[2 * i + 1];
    const testing::AllocationCount counted = AllocationsOfAStep(*steps[i]);
    table.rows.push_back(
        {static_cast<double>(options.threads[i]), skeleton.Median() * 1e3, skeleton.Minimum() * 1e3,
         shape.Flops() / skeleton.Median() / 1e9, step.Median() * 1e3, step.Minimum() * 1e3,
         static_cast<double>(shape.Rows()) / step.Median(), step.Median() / skeleton.Median(),
         step.Minimum() / skeleton.Minimum(), step.MedianCpu() / skeleton.MedianCpu(),
         static_cast<double>(counted.allocations), static_cast<double>(counted.page_faults)});
  }
  report.tables.push_back(table);
  report.notes = {fmt::format(
      "{} rounds, everything in turn; a step is forward, backward, clipping and AdamW. Allocations and "
      "page faults are those of one step in steady state, of the whole process. CPU time is fair on a busy "
      "machine with 1 thread; with more it counts "
      "waiting threads too.",
      timings[0].seconds.size())};
  return report;
}

}  // namespace headsweep::bench
