#include "tests/bench/measure.h"

#include <algorithm>
#include <chrono>

namespace headsweep::bench {

namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double Timing::Median() const {
  const std::size_t middle = seconds.size() / 2;
  return seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
}

std::vector<Timing> MeasureInterleaved(const std::vector<Candidate>& candidates, int rounds, double seconds) {
  constexpr int kMostRounds = 1000;
  for (const Candidate& candidate : candidates) candidate.run();
  std::vector<Timing> timings(candidates.size());
  const double start = Now();
  for (int round = 0; round < kMostRounds && (round < rounds || Now() - start < seconds); ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const std::size_t at = (i + static_cast<std::size_t>(round)) % candidates.size();
      const double before = Now();
      candidates[at].run();
      timings[at].seconds.push_back(Now() - before);
    }
  }
  for (Timing& timing : timings) std::sort(timing.seconds.begin(), timing.seconds.end());
  return timings;
}

}  // namespace headsweep::bench
