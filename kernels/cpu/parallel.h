// Loops over independent pieces of work on a fixed number of OpenMP threads.
// Determinism: pieces are cut by the caller from shapes alone, never from the thread count, so that which
// thread does a piece cannot change a bit. Teams always have the same size: libgomp then reuses its team and
// allocates nothing.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace headsweep::cpu {

// Calls work(piece, thread) for piece = 0 .. pieces - 1, thread in [0, threads). work must not throw.
template <class Work>
void ParallelFor(int threads, std::int64_t pieces, const Work& work) {
  if (threads == 1 || pieces <= 1) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) work(piece, 0);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num();
#pragma omp for schedule(dynamic, 1) nowait
    for (std::int64_t piece = 0; piece < pieces; ++piece) work(piece, thread);
  }
}

// Calls work(begin, end, thread) for consecutive ranges of at most `grain` that cover [0, count).
template <class Work>
void ParallelRanges(int threads, std::int64_t count, std::int64_t grain, const Work& work) {
  ParallelFor(threads, (count + grain - 1) / grain, [&](std::int64_t piece, int thread) {
    work(piece * grain, std::min(count, (piece + 1) * grain), thread);
  });
}

// 8192 values: 32 KiB of each operand, far above the cost of handing out a piece (about 0.1 us), far below an
// L2 cache.
inline constexpr std::int64_t kElementGrain = 8192;

// Rows so that a piece holds about kElementGrain values.
inline std::int64_t RowGrain(std::int64_t columns) {
  return std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(1, columns));
}

}  // namespace headsweep::cpu
