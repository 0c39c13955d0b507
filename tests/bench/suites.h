// The suites of headsweep-bench.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/report.h"

namespace headsweep::bench {

struct Options {
  std::vector<int> threads = {1, 2};
  double seconds = 20;                // of measuring, at least, for each table
  std::string device = "cpu";         // BackendOptions::device and ::precision
  std::string precision = "float32";  // on cards "bfloat16" unless asked for otherwise
};

// Each op at the step's shapes beside its floor: a copy that moves as many bytes, or a product of as many
// operations.
Report RunOps(const Options& options);
// Attention over head sizes and lengths, beside PyTorch's.
Report RunAttention(const Options& options);
// Our matrix products beside oneDNN's.
Report RunProducts(const Options& options);
// A whole training step beside the GEMM skeleton of the same shapes, and the heap allocations of a step.
Report RunStep(const Options& options);
// A step of two processes: the time it waits for sums of gradients, with and without buckets that leave early.
Report RunCollective(const Options& options);
// The step of 1, 2 and 4 processes beside what `headsweep plan` makes of the step of one.
Report RunScaling(const Options& options);
// What the launcher costs: no-op trials beside GNU parallel, the coordinator alone, sweeps of 100,000 trials, 1,000 nodes.
Report RunLauncher(const Options& options);

}  // namespace headsweep::bench
