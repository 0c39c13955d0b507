// A quick measurement of what one thread can do, for time estimates when none is given.
#include <algorithm>
#include <chrono>

#include "sweeps/cost.h"

namespace headsweep {
namespace {

// Function multi-versioning needs an ifunc resolver, which runs before the sanitizers are ready.
#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define HEADSWEEP_EVERY_WIDTH __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define HEADSWEEP_EVERY_WIDTH
#endif

constexpr int kChains = 8;  // independent, to hide the latency of a multiply-add
constexpr int kLanes = 16;
constexpr int kRounds = 20'000;
using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] =
    float;  // two or four registers where vectors are narrower

HEADSWEEP_EVERY_WIDTH
float MultiplyAdd(float scale, float shift) {
  Lanes x[kChains] = {};
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 8
    for (int c = 0; c < kChains; ++c) x[c] = x[c] * scale + shift;
  }
  Lanes sum = {};
  for (const Lanes& chain : x) sum += chain;
  return sum[0];
}

}  // namespace

double MeasureThreadFlopsPerSecond() {
  using Clock = std::chrono::steady_clock;
  volatile float scale = 0.999f, shift = 0.001f;  // not known to the compiler
  double best = 0;
  const auto deadline = Clock::now() + std::chrono::milliseconds(30);
  do {  // the fastest of many short runs: others may use the machine
    const auto start = Clock::now();
    volatile float sink = MultiplyAdd(scale, shift);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    (void)sink;
    best = std::max(best, 2.0 * kChains * kLanes * kRounds / seconds);
  } while (Clock::now() < deadline);
  return kMatrixEfficiency * best;
}

}  // namespace headsweep
