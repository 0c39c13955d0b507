// What a process costs: wall time, CPU time of it alone (not of the processes it starts), and its peak memory.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace headsweep::bench {

struct ProcessCost {
  double wall = 0, cpu = 0;    // seconds; CPU of the process alone, in steps of 10 ms
  double children_cpu = 0;     // seconds, of those it waited for
  double peak_megabytes = 0;   // VmHWM of it alone, as last seen while it ran (looked at every 5 ms)
};

// Runs a program to its end, its output appended to `log`. Throws Error when it does not end with one of the exit codes `accepted`.
ProcessCost MeasureProgram(const std::vector<std::string>& command,
                           const std::vector<std::pair<std::string, std::string>>& environment, const std::string& log,
                           const std::vector<int>& accepted = {0});

// Runs `work` in a forked child and returns what it cost and what it answered. The child must be forked before this process has
// threads. Throws Error when work throws.
struct ForkedCost {
  ProcessCost cost;
  std::vector<double> answers;
};
ForkedCost MeasureForked(const std::function<std::vector<double>()>& work);

}  // namespace headsweep::bench
