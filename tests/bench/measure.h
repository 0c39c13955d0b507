// Timing on machines that other people use too: everything that will be compared is run in turn, many times,
// and compared by medians (and minima) of the same run. Never compare numbers of two runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace headsweep::bench {

struct Timing {
  std::vector<double> seconds;  // sorted
  std::vector<double>
      cpu_seconds;  // of the whole process, sorted: with one thread, free of what others do to the machine

  double Median() const;
  double MedianCpu() const;
  double Minimum() const { return seconds.front(); }
};

struct Candidate {
  std::string name;
  std::function<void()> run;
};

// Runs all candidates once without looking (warm-up), then in turn until each has `rounds` samples and the
// whole has taken at least `seconds`, but never more than 1000 rounds. Order is rotated every round, so that
// none always follows the same.
std::vector<Timing> MeasureInterleaved(const std::vector<Candidate>& candidates, int rounds, double seconds);

}  // namespace headsweep::bench
