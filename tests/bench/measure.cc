#include "tests/bench/measure.h"

#include <algorithm>
#include <chrono>
#include <ctime>

namespace headsweep::bench {

namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double CpuNow() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double MedianOfSorted(const std::vector<double>& values) {
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

double Timing::Median() const { return MedianOfSorted(seconds); }
double Timing::MedianCpu() const { return MedianOfSorted(cpu_seconds); }

std::vector<Timing> MeasureInterleaved(const std::vector<Candidate>& candidates, int rounds, double seconds) {
  constexpr int kMostRounds = 1000;
  for (const Candidate& candidate : candidates) candidate.run();
  std::vector<Timing> timings(candidates.size());
  const double start = Now();
  for (int round = 0; round < kMostRounds && (round < rounds || Now() - start < seconds); ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const std::size_t at = (i + static_cast<std::size_t>(round)) % candidates.size();
      const double before = Now(), cpu_before = CpuNow();
      candidates[at].run();
      timings[at].seconds.push_back(Now() - before);
      timings[at].cpu_seconds.push_back(CpuNow() - cpu_before);
    }
  }
  for (Timing& timing : timings) {
    std::sort(timing.seconds.begin(), timing.seconds.end());
    std::sort(timing.cpu_seconds.begin(), timing.cpu_seconds.end());
  }
  return timings;
}

}  // namespace headsweep::bench
