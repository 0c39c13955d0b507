// Sums over long vectors (gradient norms, losses) and over heads (importance). Float64 inside, one partial
// sum per fixed range, added up in order: the same bits for any thread count.
#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"

namespace headsweep {

namespace {

// A function of its own: inlined into a parallel region, GCC 12 no longer vectorises it.
template <class Term>
[[gnu::noinline]] double RangeSum(const float* x, std::int64_t count, Term term) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += term(static_cast<double>(x[i]));
  return sum;
}

template <class Term>
float Reduce(const float* x, std::int64_t count, int threads, cpu::Scratch& scratch, Term term) {
  constexpr std::int64_t kGrain = 2 * cpu::kElementGrain;
  const std::int64_t pieces = (count + kGrain - 1) / kGrain;
  double* partial = scratch.Doubles(static_cast<std::size_t>(pieces), threads);
  cpu::ParallelRanges(threads, count, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    partial[begin / kGrain] = RangeSum(x + begin, end - begin, term);
  });
  double total = 0;
  for (std::int64_t piece = 0; piece < pieces; ++piece) total += partial[piece];
  return static_cast<float>(total);
}

}  // namespace

void CpuBackend::SumOfSquares(const float* x, std::int64_t count, float* result) {
  result[0] = Reduce(x, count, threads_, scratch_, [](double value) { return value * value; });
}

void CpuBackend::Sum(const float* x, std::int64_t count, float* result) {
  result[0] = Reduce(x, count, threads_, scratch_, [](double value) { return value; });
}

void CpuBackend::HeadImportance(const float* delta, int B, int H, int T, float scale, float* per_example,
                                float* per_token, float* squares, float* gate_gradient) {
  cpu::ParallelFor(threads_, H, [&](std::int64_t h, int) {
    double sum_example = 0, sum_token = 0, sum_squares = 0, sum_gate = 0;
    for (int b = 0; b < B; ++b) {
      const float* row = delta + (static_cast<std::int64_t>(b) * H + h) * T;
      double sum = 0, absolute = 0;
#pragma omp simd reduction(+ : sum, absolute)
      for (int t = 0; t < T; ++t) {
        const double value = static_cast<double>(scale) * row[t];
        sum += value;
        absolute += std::abs(value);
      }
      sum_example += std::abs(sum);
      sum_token += absolute;
      sum_squares += sum * sum;
      sum_gate += sum;
    }
    if (per_example != nullptr) per_example[h] += static_cast<float>(sum_example);
    if (per_token != nullptr) per_token[h] += static_cast<float>(sum_token);
    if (squares != nullptr) squares[h] += static_cast<float>(sum_squares);
    if (gate_gradient != nullptr) gate_gradient[h] += static_cast<float>(sum_gate);
  });
}

}  // namespace headsweep
