// Attention per (example, head), forward and backward. Vaswani et al. 2017, eq. 1; gates: Michel et al. 2019.
//
// One piece of work is one (b, h); pieces share nothing, so the result does not depend on threads. Queries
// are taken kQueries at a time; keys that no query of such a block sees are skipped, which saves nearly half
// the work of a causal mask. Probabilities live in scratch, (kQueries, S) at most: they are computed again in
// the backward pass from lse. Scratch rows are padded with zeros to whole vectors: S to Sp, D to Dp.
#include <cmath>
#include <limits>

#include "cluster/base/errors.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/small_product.h"
#include "kernels/cpu/vector_math.h"

namespace headsweep {

using cpu::F;
using cpu::PadToLanes;

namespace {

constexpr int kQueries =
    32;  // measured: 16, 32 and 64 are within noise at T = 128; 32 wastes least when causal

// Keys that query t of example b sees: a prefix, [0, result).
std::int64_t VisibleKeys(const AttentionShape& shape, int b, std::int64_t t) {
  std::int64_t visible = shape.S;
  if (shape.key_lengths != nullptr) visible = std::min<std::int64_t>(visible, shape.key_lengths[b]);
  if (shape.causal) visible = std::min<std::int64_t>(visible, t + 1 + shape.S - shape.T);
  return std::max<std::int64_t>(visible, 0);
}

// to (rows, Dp) = factor * from (rows, D; row stride), padding zeroed.
void Pack(const float* from, std::int64_t stride, std::int64_t rows, int D, std::int64_t Dp, float factor,
          float* to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* source = from + r * stride;
    float* target = to + r * Dp;
#pragma omp simd
    for (int d = 0; d < D; ++d) target[d] = factor * source[d];
    for (std::int64_t d = D; d < Dp; ++d) target[d] = 0;
  }
}

// to (D, Sp) = from (S, D; row stride) transposed, padding zeroed.
void PackTransposed(const float* from, std::int64_t stride, std::int64_t S, std::int64_t Sp, int D,
                    float* to) {
  for (std::int64_t s0 = 0; s0 < Sp;
       s0 += 16) {  // 16 rows at a time keep reads and writes in a few cache lines
    const std::int64_t s1 = std::min(Sp, s0 + 16);
    for (int d = 0; d < D; ++d) {
      for (std::int64_t s = s0; s < s1; ++s) to[d * Sp + s] = s < S ? from[s * stride + d] : 0.0f;
    }
  }
}

// to (rows, D; row stride) = factor * from (rows, Dp).
void Unpack(const float* from, std::int64_t Dp, std::int64_t rows, int D, float factor, float* to,
            std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
#pragma omp simd
    for (int d = 0; d < D; ++d) to[r * stride + d] = factor * from[r * Dp + d];
  }
}

// What one (b, h) works on.
struct Piece {
  int b, h;
  std::int64_t head;          // b*H + h
  std::int64_t q, kv, dense;  // offsets of this head's first value in q, in k and v, in out
};

Piece MakePiece(const AttentionShape& shape, std::int64_t head) {
  const int b = static_cast<int>(head / shape.H), h = static_cast<int>(head % shape.H);
  const std::int64_t column = static_cast<std::int64_t>(h) * shape.D;
  return {b,
          h,
          head,
          b * static_cast<std::int64_t>(shape.T) * shape.q_stride + column,
          b * static_cast<std::int64_t>(shape.S) * shape.kv_stride + column,
          (b * static_cast<std::int64_t>(shape.T) * shape.H + h) * shape.D};
}

// Position of (piece, t, s = 0) in the dropout stream, a row of the whole effective batch.
std::int64_t DropoutRow(const AttentionShape& shape, const Piece& piece, std::int64_t t) {
  const std::int64_t row = ((shape.dropout.first_example + piece.b) * shape.H + piece.h) * shape.T + t;
  return row * shape.S;
}

// Softmax of one row of logits in place, unnormalised: x[s] = exp(x[s] - max); zeros from `visible` to
// `padded`. Returns the sum; lse gets log-sum-exp.
float SoftmaxRow(float* x, std::int64_t visible, std::int64_t padded, float* lse) {
  float maximum = -std::numeric_limits<float>::infinity(), sum = 0;
#pragma omp simd reduction(max : maximum)
  for (std::int64_t s = 0; s < visible; ++s) maximum = x[s] > maximum ? x[s] : maximum;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t s = 0; s < visible; ++s) {
    const float e = cpu::Exp(x[s] - maximum);
    x[s] = e;
    sum += e;
  }
  for (std::int64_t s = visible; s < padded; ++s) x[s] = 0;
  *lse = visible == 0 ? -std::numeric_limits<float>::infinity() : maximum + std::log(sum);
  return sum;
}

void MultiplyRow(float* x, const float* by, std::int64_t count) {
#pragma omp simd
  for (std::int64_t s = 0; s < count; ++s) x[s] *= by[s];
}

void CheckShape(const char* op, const AttentionShape& shape) {
  if (shape.D < 1 || shape.D > 512) {
    throw Unsupported(fmt::format("{}: head size {} is outside 1..512", op, shape.D));
  }
}

// Hands out aligned parts of one thread's scratch.
class Parts {
 public:
  explicit Parts(float* base) : next_(base) {}
  float* Take(std::int64_t count) {
    float* part = next_;
    next_ += PadToLanes(count);
    return part;
  }

 private:
  float* next_;
};

}  // namespace

void CpuBackend::AttentionForward(const AttentionShape& shape, const Element* q, const Element* k,
                                  const Element* v, const float* gates, Element* out, Element* gated,
                                  float* lse) {
  if (shape.B == 0 || shape.H == 0 || shape.T == 0) return;
  CheckShape("AttentionForward", shape);
  const int T = shape.T, S = shape.S, D = shape.D;
  const std::int64_t Sp = PadToLanes(S), Dp = PadToLanes(D), dense = static_cast<std::int64_t>(shape.H) * D;
  const std::int64_t floats = D * Sp + Sp * Dp + 2 * kQueries * Dp + kQueries * Sp + Sp + 8 * cpu::kLanes;
  float* scratch = scratch_.Floats(static_cast<std::size_t>(PadToLanes(floats) * threads_), threads_);
  cpu::ParallelFor(
      threads_, static_cast<std::int64_t>(shape.B) * shape.H, [&](std::int64_t head, int thread) {
        Parts parts(scratch + thread * PadToLanes(floats));
        float* k_transposed = parts.Take(D * Sp);
        float* values = parts.Take(Sp * Dp);
        float* queries = parts.Take(kQueries * Dp);
        float* result = parts.Take(kQueries * Dp);
        float* weights = parts.Take(kQueries * Sp);
        float* mask = parts.Take(Sp);
        const Piece piece = MakePiece(shape, head);
        PackTransposed(F(k) + piece.kv, shape.kv_stride, S, Sp, D, k_transposed);
        Pack(F(v) + piece.kv, shape.kv_stride, S, D, Dp, 1, values);
        for (std::int64_t t0 = 0; t0 < T; t0 += kQueries) {
          const std::int64_t rows = std::min<std::int64_t>(kQueries, T - t0);
          const std::int64_t keys = VisibleKeys(shape, piece.b, t0 + rows - 1);  // of the row that sees most
          const std::int64_t padded = PadToLanes(keys);
          Pack(F(q) + piece.q + t0 * shape.q_stride, shape.q_stride, rows, D, Dp, shape.scale, queries);
          cpu::SmallProduct<false>(rows, padded, D, queries, Dp, 1, k_transposed, Sp, weights, Sp);
          float inverse[kQueries];
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t t = t0 + r, visible = VisibleKeys(shape, piece.b, t);
            float* row = weights + r * Sp;
            const float sum = SoftmaxRow(row, visible, padded, lse + piece.head * T + t);
            inverse[r] = visible == 0 ? 0.0f : 1.0f / sum;
            if (shape.dropout.rate > 0) {
              cpu::DropoutMultipliers(shape.dropout, DropoutRow(shape, piece, t), visible, mask);
              MultiplyRow(row, mask, visible);
            }
          }
          cpu::SmallProduct<false>(rows, Dp, keys, weights, Sp, 1, values, Dp, result, Dp);
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t at = piece.dense + (t0 + r) * dense;
            Unpack(result + r * Dp, Dp, 1, D, inverse[r], F(out) + at, dense);
            if (gates != nullptr) Unpack(F(out) + at, dense, 1, D, gates[piece.h], F(gated) + at, dense);
          }
        }
      });
}

// With p = softmax, m = dropout multiplier, g = gate, dP = (g dout) v^T:
//   dv = (p m)^T (g dout);  dS = p (m dP - g delta);  dq = scale dS k;  dk = dS^T (scale q);  delta = sum_d
//   dout out
void CpuBackend::AttentionBackward(const AttentionShape& shape, const Element* q, const Element* k,
                                   const Element* v, const float* gates, const Element* out, const float* lse,
                                   const Element* dout, Element* dq, Element* dk, Element* dv, float* delta) {
  if (shape.B == 0 || shape.H == 0) return;
  CheckShape("AttentionBackward", shape);
  const int T = shape.T, S = shape.S, D = shape.D;
  const std::int64_t Sp = PadToLanes(S), Dp = PadToLanes(D), dense = static_cast<std::int64_t>(shape.H) * D;
  const std::int64_t floats =
      2 * D * Sp + 3 * Sp * Dp + 3 * kQueries * Dp + 2 * kQueries * Sp + Sp + 16 * cpu::kLanes;
  float* scratch = scratch_.Floats(static_cast<std::size_t>(PadToLanes(floats) * threads_), threads_);
  cpu::ParallelFor(
      threads_, static_cast<std::int64_t>(shape.B) * shape.H, [&](std::int64_t head, int thread) {
        Parts parts(scratch + thread * PadToLanes(floats));
        float* k_transposed = parts.Take(D * Sp);
        float* v_transposed = parts.Take(D * Sp);
        float* keys_packed = parts.Take(Sp * Dp);
        float* dk_sum = parts.Take(Sp * Dp);
        float* dv_sum = parts.Take(Sp * Dp);
        float* queries = parts.Take(kQueries * Dp);
        float* doutputs = parts.Take(kQueries * Dp);
        float* dqueries = parts.Take(kQueries * Dp);
        float* p = parts.Take(kQueries * Sp);
        float* dp = parts.Take(kQueries * Sp);
        float* mask = parts.Take(Sp);
        const Piece piece = MakePiece(shape, head);
        const float gate = gates == nullptr ? 1.0f : gates[piece.h];
        PackTransposed(F(k) + piece.kv, shape.kv_stride, S, Sp, D, k_transposed);
        PackTransposed(F(v) + piece.kv, shape.kv_stride, S, Sp, D, v_transposed);
        Pack(F(k) + piece.kv, shape.kv_stride, S, D, Dp, 1, keys_packed);
        std::fill(dk_sum, dk_sum + Sp * Dp, 0.0f);
        std::fill(dv_sum, dv_sum + Sp * Dp, 0.0f);
        for (std::int64_t t0 = 0; t0 < T; t0 += kQueries) {
          const std::int64_t rows = std::min<std::int64_t>(kQueries, T - t0);
          const std::int64_t keys = VisibleKeys(shape, piece.b, t0 + rows - 1);
          const std::int64_t padded = PadToLanes(keys);
          const std::int64_t first = piece.dense + t0 * dense;
          Pack(F(q) + piece.q + t0 * shape.q_stride, shape.q_stride, rows, D, Dp, shape.scale, queries);
          Pack(F(dout) + first, dense, rows, D, Dp, gate, doutputs);
          cpu::SmallProduct<false>(rows, padded, D, queries, Dp, 1, k_transposed, Sp, p, Sp);
          cpu::SmallProduct<false>(rows, padded, D, doutputs, Dp, 1, v_transposed, Sp, dp, Sp);
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t t = t0 + r, visible = VisibleKeys(shape, piece.b, t);
            const float* dout_row = F(dout) + first + r * dense;
            const float* out_row = F(out) + first + r * dense;
            float row_delta = 0;
#pragma omp simd reduction(+ : row_delta)
            for (int d = 0; d < D; ++d) row_delta += dout_row[d] * out_row[d];
            delta[piece.head * T + t] = row_delta;
            const float log_sum = lse[piece.head * T + t], gated_delta = gate * row_delta;
            float* p_row = p + r * Sp;
            float* dp_row = dp + r * Sp;  // becomes dS; p_row becomes p m
            if (shape.dropout.rate > 0) {
              cpu::DropoutMultipliers(shape.dropout, DropoutRow(shape, piece, t), visible, mask);
#pragma omp simd
              for (std::int64_t s = 0; s < visible; ++s) {
                const float probability = cpu::Exp(p_row[s] - log_sum);
                dp_row[s] = probability * (mask[s] * dp_row[s] - gated_delta);
                p_row[s] = probability * mask[s];
              }
            } else {
#pragma omp simd
              for (std::int64_t s = 0; s < visible; ++s) {
                const float probability = cpu::Exp(p_row[s] - log_sum);
                dp_row[s] = probability * (dp_row[s] - gated_delta);
                p_row[s] = probability;
              }
            }
            for (std::int64_t s = visible; s < padded; ++s) p_row[s] = dp_row[s] = 0;
          }
          cpu::SmallProduct<true>(keys, Dp, rows, p, 1, Sp, doutputs, Dp, dv_sum, Dp);
          cpu::SmallProduct<true>(keys, Dp, rows, dp, 1, Sp, queries, Dp, dk_sum, Dp);
          cpu::SmallProduct<false>(rows, Dp, keys, dp, Sp, 1, keys_packed, Dp, dqueries, Dp);
          Unpack(dqueries, Dp, rows, D, shape.scale, F(dq) + piece.q + t0 * shape.q_stride, shape.q_stride);
        }
        Unpack(dk_sum, Dp, S, D, 1, F(dk) + piece.kv, shape.kv_stride);
        Unpack(dv_sum, Dp, S, D, 1, F(dv) + piece.kv, shape.kv_stride);
      });
}

}  // namespace headsweep
