// Attention per (example, head), forward and backward. Vaswani et al. 2017, eq. 1; gates: Michel et al. 2019.
//
// One piece of work is one (b, h); pieces share nothing, so the result does not depend on threads. Queries
// are taken kQueries at a time, and lie across the lanes of vectors: logits and probabilities of a block are
// stored transposed, (S, kQueries), so that the softmax over keys needs no sum across lanes and no remainder
// loop, whatever S is. Keys that no query of a block sees are skipped, which saves nearly half the work of a
// causal mask. Probabilities never leave this scratch: the backward pass computes them again from lse.
// Scratch rows are padded with zeros to whole vectors, D to Dp.
#include <cmath>
#include <limits>

#include "cluster/base/errors.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/small_product.h"
#include "kernels/cpu/transpose.h"
#include "kernels/cpu/vector_math.h"

namespace headsweep {

using cpu::F;
using cpu::kLanes;
using cpu::PadToLanes;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kQueries =
    32;  // two AVX-512 vectors: with 8 rows, a tile of small_product.h. A multiple of every kLanes

// Keys that query t of example b sees: a prefix, [0, result).
std::int64_t VisibleKeys(const AttentionShape& shape, int b, std::int64_t t) {
  std::int64_t visible = shape.S;
  if (shape.key_lengths != nullptr) visible = std::min<std::int64_t>(visible, shape.key_lengths[b]);
  if (shape.causal) visible = std::min<std::int64_t>(visible, t + 1 + shape.S - shape.T);
  return std::max<std::int64_t>(visible, 0);
}

// to (rows, Dp) = from (rows, D; row stride), padding zeroed.
void Pack(const float* from, std::int64_t stride, std::int64_t rows, int D, std::int64_t Dp, float* to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy(from + r * stride, from + r * stride + D, to + r * Dp);
    std::fill(to + r * Dp + D, to + (r + 1) * Dp, 0.0f);
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

// Asks for rows that will be written later: far apart as they are, no hardware prefetcher sees them coming.
void PrefetchForWriting(const float* rows, std::int64_t stride, std::int64_t begin, std::int64_t end, int D) {
  constexpr int kLine = 16;
  for (std::int64_t r = begin; r < end; ++r) {
    for (int d = 0; d < D; d += kLine) __builtin_prefetch(rows + r * stride + d, 1);
  }
}

float Dot(const float* a, const float* b, int count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
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

// A block of queries of one piece, and what each sees.
struct Block {
  std::int64_t first;              // query
  std::int64_t rows;               // queries, at most kQueries
  std::int64_t lanes;              // rows, padded
  std::int64_t keys;               // seen by at least one of them
  std::int64_t all;                // seen by every one of them: no mask is needed below
  std::int32_t visible[kQueries];  // per lane; 0 in padding
};

Block MakeBlock(const AttentionShape& shape, const Piece& piece, std::int64_t first) {
  Block block{};
  block.first = first;
  block.rows = std::min<std::int64_t>(kQueries, shape.T - first);
  block.lanes = PadToLanes(block.rows);
  for (std::int64_t r = 0; r < block.rows; ++r) {
    block.visible[r] = static_cast<std::int32_t>(VisibleKeys(shape, piece.b, first + r));
  }
  block.keys = block.visible[block.rows - 1];  // the last query sees most, the first one least
  block.all = block.visible[0];
  return block;
}

// Dropout multipliers of a block, transposed like its probabilities: mask (keys, kQueries). rows: scratch
// (kQueries, Sp).
void BlockMask(const AttentionShape& shape, const Piece& piece, const Block& block, float* rows,
               std::int64_t Sp, float* mask) {
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::int64_t row =
        ((shape.dropout.first_example + piece.b) * shape.H + piece.h) * shape.T + block.first + r;
    cpu::DropoutMultipliers(shape.dropout, row * shape.S, block.keys, rows + r * Sp);
  }
  cpu::TransposeBlock(rows, Sp, block.rows, block.keys, 1, mask, kQueries);
}

// Softmax over the keys of a block, lane by lane, in place and unnormalised: x[s][lane] = exp(x - maximum), 0
// where not visible. sums and maxima: per lane; a lane that sees nothing has sum 0 and maximum 0.
void SoftmaxBlock(const Block& block, float* x, float* sums, float* maxima) {
  for (std::int64_t group = 0; group < block.lanes; group += kLanes) {
    float maximum[kLanes], sum[kLanes];
    std::fill(maximum, maximum + kLanes, -kInfinity);
    std::fill(sum, sum + kLanes, 0.0f);
    for (std::int64_t s = 0; s < block.all; ++s) {
      const float* row = x + s * kQueries + group;
#pragma omp simd
      for (int i = 0; i < kLanes; ++i) maximum[i] = row[i] > maximum[i] ? row[i] : maximum[i];
    }
    for (std::int64_t s = block.all; s < block.keys; ++s) {
      float* row = x + s * kQueries + group;
#pragma omp simd
      for (int i = 0; i < kLanes; ++i) {
        row[i] = s < block.visible[group + i] ? row[i] : -kInfinity;
        maximum[i] = row[i] > maximum[i] ? row[i] : maximum[i];
      }
    }
#pragma omp simd
    for (int i = 0; i < kLanes; ++i) maximum[i] = maximum[i] == -kInfinity ? 0.0f : maximum[i];
    for (std::int64_t s = 0; s < block.keys; ++s) {
      float* row = x + s * kQueries + group;
#pragma omp simd
      for (int i = 0; i < kLanes; ++i) {
        const float e = cpu::ExpOfNonPositive(row[i] - maximum[i]);
        row[i] = e;
        sum[i] += e;
      }
    }
    std::copy(sum, sum + kLanes, sums + group);
    std::copy(maximum, maximum + kLanes, maxima + group);
  }
}

AttentionShape Settled(AttentionShape shape) {
  if (shape.dropout.rate > 0) shape.dropout = cpu::Settled(shape.dropout);
  return shape;
}

void CheckShape(const char* op, const AttentionShape& shape) {
  if (shape.D < 1 || shape.D > 512) {
    throw Unsupported(fmt::format("{}: head size {} is outside 1..512", op, shape.D));
  }
  if (!(shape.scale > 0)) throw Unsupported(fmt::format("{}: scale {} is not positive", op, shape.scale));
}

// Hands out aligned parts of one thread's scratch; with nullptr it only counts.
class Parts {
 public:
  explicit Parts(float* base) : base_(base) {}
  float* Take(std::int64_t count) {
    float* part = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (count + 15) / 16 * 16;
    return part;
  }
  std::int64_t used() const { return used_; }

 private:
  float* base_;
  std::int64_t used_ = 0;
};

// Scratch of one thread. Widths of rows: see the head of this file.
struct ForwardScratch {
  ForwardScratch(Parts& parts, const AttentionShape& shape) {
    const std::int64_t Sp = PadToLanes(shape.S), Dp = PadToLanes(shape.D);
    k = parts.Take(Sp * Dp);
    v = parts.Take(Sp * Dp);
    q_transposed = parts.Take(shape.D * kQueries);
    p = parts.Take(Sp * kQueries);
    result = parts.Take(kQueries * Dp);
    if (shape.dropout.rate > 0) {
      mask = parts.Take(Sp * kQueries);
      mask_rows = parts.Take(Sp * kQueries);
    }
  }
  float *k, *v, *q_transposed, *p, *result;
  float *mask = nullptr, *mask_rows = nullptr;  // only with dropout
};

struct BackwardScratch {
  BackwardScratch(Parts& parts, const AttentionShape& shape) {
    const std::int64_t Sp = PadToLanes(shape.S), Dp = PadToLanes(shape.D);
    for (float** part : {&k, &v, &dk, &dv}) *part = parts.Take(Sp * Dp);
    for (float** part : {&q, &dout, &dq}) *part = parts.Take(kQueries * Dp);
    for (float** part : {&q_transposed, &dout_transposed}) *part = parts.Take(shape.D * kQueries);
    for (float** part : {&p, &dp}) *part = parts.Take(Sp * kQueries);
    if (shape.dropout.rate > 0) {
      mask = parts.Take(Sp * kQueries);
      mask_rows = parts.Take(Sp * kQueries);
    }
  }
  float *k, *v, *dk, *dv, *q, *dout, *dq, *q_transposed, *dout_transposed, *p, *dp;
  float *mask = nullptr, *mask_rows = nullptr;
};

// From logits and dP of a block to what the products need, in place: p becomes softmax * mask, dp becomes dS.
//   dS = softmax * (mask * dP - gated_delta). mask: nullptr without dropout.
void SoftmaxBackwardBlock(const Block& block, const float* lse, const float* gated_delta, const float* mask,
                          float* p, float* dp) {
  for (std::int64_t s = 0; s < block.keys; ++s) {
    float* p_row = p + s * kQueries;
    float* dp_row = dp + s * kQueries;
    const float* mask_row = mask == nullptr ? nullptr : mask + s * kQueries;
    const auto lanes = static_cast<int>(block.lanes);
    if (s >= block.all) {
#pragma omp simd
      for (int i = 0; i < lanes; ++i) p_row[i] = s < block.visible[i] ? p_row[i] : -kInfinity;
    }
    if (mask_row == nullptr) {
#pragma omp simd
      for (int i = 0; i < lanes; ++i) {
        const float probability = cpu::ExpOfNonPositive(p_row[i] - lse[i]);
        p_row[i] = probability;
        dp_row[i] = probability * (dp_row[i] - gated_delta[i]);
      }
    } else {
#pragma omp simd
      for (int i = 0; i < lanes; ++i) {
        const float probability = cpu::ExpOfNonPositive(p_row[i] - lse[i]);
        p_row[i] = probability * mask_row[i];
        dp_row[i] = probability * (mask_row[i] * dp_row[i] - gated_delta[i]);
      }
    }
  }
}

struct ForwardTensors {
  const float *q, *k, *v, *gates;
  float *out, *gated, *lse;
};

void ForwardPiece(const AttentionShape& shape, const ForwardTensors& tensors, std::int64_t head,
                  const ForwardScratch& mine) {
  const int T = shape.T, S = shape.S, D = shape.D;
  const std::int64_t Dp = PadToLanes(D), dense = static_cast<std::int64_t>(shape.H) * D;
  const Piece piece = MakePiece(shape, head);
  Pack(tensors.k + piece.kv, shape.kv_stride, S, D, Dp, mine.k);
  Pack(tensors.v + piece.kv, shape.kv_stride, S, D, Dp, mine.v);
  for (std::int64_t first = 0; first < T; first += kQueries) {
    const Block block = MakeBlock(shape, piece, first);
    cpu::TransposeBlock(tensors.q + piece.q + first * shape.q_stride, shape.q_stride, block.rows, D,
                        shape.scale, mine.q_transposed, kQueries);
    cpu::SmallProduct<false>(block.keys, block.lanes, D, mine.k, Dp, 1, mine.q_transposed, kQueries, mine.p,
                             kQueries);
    float sums[kQueries], maxima[kQueries];
    SoftmaxBlock(block, mine.p, sums, maxima);
    if (mine.mask != nullptr) {
      BlockMask(shape, piece, block, mine.mask_rows, PadToLanes(S), mine.mask);
#pragma omp simd
      for (std::int64_t i = 0; i < block.keys * kQueries; ++i) mine.p[i] *= mine.mask[i];
    }
    cpu::SmallProduct<false>(block.rows, Dp, block.keys, mine.p, 1, kQueries, mine.v, Dp, mine.result, Dp);
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const bool blind = block.visible[r] == 0;
      tensors.lse[piece.head * T + first + r] = blind ? -kInfinity : maxima[r] + std::log(sums[r]);
      float* out = tensors.out + piece.dense + (first + r) * dense;
      Unpack(mine.result + r * Dp, Dp, 1, D, blind ? 0.0f : 1.0f / sums[r], out, dense);
      if (tensors.gates != nullptr) {
        Unpack(out, dense, 1, D, tensors.gates[piece.h], tensors.gated + piece.dense + (first + r) * dense,
               dense);
      }
    }
  }
}

struct BackwardTensors {
  const float *q, *k, *v, *gates, *out, *lse, *dout;
  float *dq, *dk, *dv, *delta;
};

// With p = softmax, m = dropout multiplier, g = gate, dP = (g dout) v^T:
//   dv = g (p m)^T dout;  dS = p (m dP - g delta);  dq = scale dS k;  dk = scale dS^T q;  delta = sum_d dout
//   out
// With one key alone softmax is a constant: dq and dk are no differences of roundings, but 0.
void BackwardPiece(const AttentionShape& shape, const BackwardTensors& tensors, std::int64_t head,
                   const BackwardScratch& mine) {
  const int T = shape.T, S = shape.S, D = shape.D;
  const std::int64_t Sp = PadToLanes(S), Dp = PadToLanes(D), dense = static_cast<std::int64_t>(shape.H) * D;
  const Piece piece = MakePiece(shape, head);
  const float gate = tensors.gates == nullptr ? 1.0f : tensors.gates[piece.h];
  const float scale = T > 0 && VisibleKeys(shape, piece.b, T - 1) == 1 ? 0.0f : shape.scale;  // of dq and dk
  Pack(tensors.k + piece.kv, shape.kv_stride, S, D, Dp, mine.k);
  Pack(tensors.v + piece.kv, shape.kv_stride, S, D, Dp, mine.v);
  std::fill(mine.dk, mine.dk + Sp * Dp, 0.0f);
  std::fill(mine.dv, mine.dv + Sp * Dp, 0.0f);
  for (std::int64_t first = 0; first < T; first += kQueries) {
    const Block block = MakeBlock(shape, piece, first);
    PrefetchForWriting(tensors.dq + piece.q, shape.q_stride, first, first + block.rows, D);
    const std::int64_t begin = first * S / T,
                       end = (first + block.rows) * S / T;  // this block's share of dk and dv
    PrefetchForWriting(tensors.dk + piece.kv, shape.kv_stride, begin, end, D);
    PrefetchForWriting(tensors.dv + piece.kv, shape.kv_stride, begin, end, D);
    const float* q_rows = tensors.q + piece.q + first * shape.q_stride;
    const float* dout_rows = tensors.dout + piece.dense + first * dense;
    const float* out_rows = tensors.out + piece.dense + first * dense;
    Pack(q_rows, shape.q_stride, block.rows, D, Dp, mine.q);
    Pack(dout_rows, dense, block.rows, D, Dp, mine.dout);
    cpu::TransposeBlock(mine.q, Dp, block.rows, D, shape.scale, mine.q_transposed, kQueries);
    cpu::TransposeBlock(mine.dout, Dp, block.rows, D, gate, mine.dout_transposed, kQueries);
    cpu::SmallProduct<false>(block.keys, block.lanes, D, mine.k, Dp, 1, mine.q_transposed, kQueries, mine.p,
                             kQueries);
    cpu::SmallProduct<false>(block.keys, block.lanes, D, mine.v, Dp, 1, mine.dout_transposed, kQueries,
                             mine.dp, kQueries);
    float log_sums[kQueries] = {}, gated_delta[kQueries] = {};
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const float delta = Dot(dout_rows + r * dense, out_rows + r * dense, D);
      tensors.delta[piece.head * T + first + r] = delta;
      gated_delta[r] = gate * delta;
      log_sums[r] = block.visible[r] == 0 ? 0.0f : tensors.lse[piece.head * T + first + r];
    }
    if (mine.mask != nullptr) BlockMask(shape, piece, block, mine.mask_rows, Sp, mine.mask);
    SoftmaxBackwardBlock(block, log_sums, gated_delta, mine.mask, mine.p, mine.dp);
    cpu::SmallProduct<true>(block.keys, Dp, block.rows, mine.p, kQueries, 1, mine.dout, Dp, mine.dv, Dp);
    cpu::SmallProduct<true>(block.keys, Dp, block.rows, mine.dp, kQueries, 1, mine.q, Dp, mine.dk, Dp);
    cpu::SmallProduct<false>(block.rows, Dp, block.keys, mine.dp, 1, kQueries, mine.k, Dp, mine.dq, Dp);
    Unpack(mine.dq, Dp, block.rows, D, scale, tensors.dq + piece.q + first * shape.q_stride, shape.q_stride);
  }
  Unpack(mine.dk, Dp, S, D, scale, tensors.dk + piece.kv, shape.kv_stride);
  Unpack(mine.dv, Dp, S, D, gate, tensors.dv + piece.kv, shape.kv_stride);
}

// Calls work(head, scratch of this thread) for every (b, h).
template <class Scratch, class Work>
void ForEachPiece(const AttentionShape& shape, int threads, cpu::Scratch& memory, const Work& work) {
  Parts count(nullptr);
  Scratch(count, shape);
  float* base = memory.Floats(static_cast<std::size_t>(count.used() * threads), threads);
  cpu::ParallelFor(threads, static_cast<std::int64_t>(shape.B) * shape.H, [&](std::int64_t head, int thread) {
    Parts parts(base + thread * count.used());
    work(head, Scratch(parts, shape));
  });
}

}  // namespace

void CpuBackend::AttentionForward(const AttentionShape& given, const Element* q, const Element* k,
                                  const Element* v, const float* gates, Element* out, Element* gated,
                                  float* lse) {
  const AttentionShape shape = Settled(given);
  if (shape.B == 0 || shape.H == 0 || shape.T == 0) return;
  CheckShape("AttentionForward", shape);
  const ForwardTensors tensors{F(q), F(k), F(v), gates, F(out), F(gated), lse};
  ForEachPiece<ForwardScratch>(shape, threads_, scratch_, [&](std::int64_t head, const ForwardScratch& mine) {
    ForwardPiece(shape, tensors, head, mine);
  });
}

void CpuBackend::AttentionBackward(const AttentionShape& given, const Element* q, const Element* k,
                                   const Element* v, const float* gates, const Element* out, const float* lse,
                                   const Element* dout, Element* dq, Element* dk, Element* dv, float* delta) {
  const AttentionShape shape = Settled(given);
  if (shape.B == 0 || shape.H == 0) return;
  CheckShape("AttentionBackward", shape);
  const BackwardTensors tensors{F(q), F(k), F(v), gates, F(out), lse, F(dout), F(dq), F(dk), F(dv), delta};
  ForEachPiece<BackwardScratch>(
      shape, threads_, scratch_,
      [&](std::int64_t head, const BackwardScratch& mine) { BackwardPiece(shape, tensors, head, mine); });
}

}  // namespace headsweep
