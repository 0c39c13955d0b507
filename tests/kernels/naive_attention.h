// Attention and its gradients written down naively, in double precision (the truth), in float32, and in
// bfloat16 as a careful person would (inputs, probabilities and results rounded, sums in float32): what
// errors of the kernels are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <vector>

#include "kernels/backend.h"
#include "kernels/philox.h"
#include "tests/kernels/yardstick.h"

namespace headsweep::testing {

struct AttentionCase {
  int B, T, S, H, D;
  bool causal = false;
  bool lengths = false;  // key lengths; example 0 sees no key at all if there are two
  bool gates = false;
  float dropout = 0;
  int pad = 0;    // columns of something else at the end of every row of q, k, v
  int shift = 0;  // values from an aligned address to each tensor
  bool fused = false;  // T == S: q, k, v are columns of one (B, T, 3, H, D) buffer
};

inline std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << "B" << c.B << " T" << c.T << " S" << c.S << " H" << c.H << " D" << c.D
             << (c.causal ? " causal" : "") << (c.lengths ? " lengths" : "") << (c.gates ? " gates" : "")
             << " dropout " << c.dropout << " pad " << c.pad << " shift " << c.shift
             << (c.fused ? " fused" : "");
}

// Attention and its gradients, row by row, all of it in Real; operands of products and results are Stored(),
// sums are not. Arrays are dense: q, dq, out, gated, dout (B, T, H, D), k, v, dk, dv (B, S, H, D), lse, delta
// (B, H, T).
template <class Real>
struct NaiveAttention {
  AttentionCase c;
  std::vector<std::int32_t> lengths;
  float scale = 1;
  Dropout dropout;
  std::vector<float> gates;  // (H)
  std::vector<Real> q, k, v, dout;
  std::vector<Real> out, gated, lse, delta, dq, dk, dv;

  bool Visible(int b, int t, int s) const {
    return (!c.causal || s <= t + c.S - c.T) && (lengths.empty() || s < lengths[static_cast<std::size_t>(b)]);
  }
  Real Multiplier(int b, int h, int t, int s) const {
    if (dropout.rate == 0) return 1;
    const std::int64_t position = (((dropout.first_example + b) * c.H + h) * c.T + t) * c.S + s;
    const bool kept = RandomBits(dropout.seed, dropout.site, static_cast<std::uint64_t>(position)) >=
                      DropoutThreshold(dropout.rate);
    return kept ? 1 / (1 - static_cast<Real>(dropout.rate)) : 0;
  }
  const Real* Row(const std::vector<Real>& x, int rows, int b, int row, int h) const {
    return x.data() + ((static_cast<std::int64_t>(b) * rows + row) * c.H + h) * c.D;
  }
  Real* Row(std::vector<Real>& x, int rows, int b, int row, int h) const {
    return x.data() + ((static_cast<std::int64_t>(b) * rows + row) * c.H + h) * c.D;
  }
  Real Dot(const Real* a, const Real* b) const {
    Real sum = 0;
    for (int d = 0; d < c.D; ++d) sum += a[d] * b[d];
    return sum;
  }

  void Run() {
    const std::size_t heads = static_cast<std::size_t>(c.B) * static_cast<std::size_t>(c.H);
    out.assign(q.size(), 0);
    gated.assign(q.size(), 0);
    dq.assign(q.size(), 0);
    dk.assign(k.size(), 0);
    dv.assign(v.size(), 0);
    lse.assign(heads * static_cast<std::size_t>(c.T), 0);
    delta.assign(lse.size(), 0);
    for (int b = 0; b < c.B; ++b) {
      for (int h = 0; h < c.H; ++h) {
        for (int t = 0; t < c.T; ++t) RunRow(b, h, t);
      }
    }
    for (std::vector<Real>* x : {&dq, &dk, &dv}) {
      for (Real& value : *x) value = Stored(value);
    }
  }

  void RunRow(int b, int h, int t) {
    const Real* q_row = Row(q, c.T, b, t, h);
    const Real* dout_row = Row(dout, c.T, b, t, h);
    const Real gate = static_cast<Real>(gates[static_cast<std::size_t>(h)]);
    std::vector<Real> p(static_cast<std::size_t>(c.S), 0);
    Real largest = -std::numeric_limits<Real>::infinity(), sum = 0;
    for (int s = 0; s < c.S; ++s) {
      if (!Visible(b, t, s)) continue;
      p[static_cast<std::size_t>(s)] = static_cast<Real>(scale) * Dot(q_row, Row(k, c.S, b, s, h));
      largest = std::max(largest, p[static_cast<std::size_t>(s)]);
    }
    for (int s = 0; s < c.S; ++s) {
      Real& x = p[static_cast<std::size_t>(s)];
      x = Visible(b, t, s) ? std::exp(x - largest) : 0;
      sum += x;
    }
    const std::size_t row =
        (static_cast<std::size_t>(b) * static_cast<std::size_t>(c.H) + static_cast<std::size_t>(h)) *
            static_cast<std::size_t>(c.T) +
        static_cast<std::size_t>(t);
    lse[row] = sum == 0 ? -std::numeric_limits<Real>::infinity() : largest + std::log(sum);
    if (sum == 0) return;
    Real* out_row = Row(out, c.T, b, t, h);
    Real* gated_row = Row(gated, c.T, b, t, h);
    for (int s = 0; s < c.S; ++s) {
      Real& x = p[static_cast<std::size_t>(s)];
      x /= sum;
      const Real weight = Stored(x * Multiplier(b, h, t, s));
      const Real* v_row = Row(v, c.S, b, s, h);
      Real* dv_row = Row(dv, c.S, b, s, h);
      for (int d = 0; d < c.D; ++d) {
        out_row[d] += weight * v_row[d];
        dv_row[d] += gate * weight * dout_row[d];
      }
    }
    for (int d = 0; d < c.D; ++d) {
      gated_row[d] = Stored(gate * out_row[d]);
      out_row[d] = Stored(out_row[d]);
      delta[row] += dout_row[d] * out_row[d];
    }
    for (int s = 0; s < c.S; ++s) {
      if (!Visible(b, t, s)) continue;
      const Real* k_row = Row(k, c.S, b, s, h);
      const Real* v_row = Row(v, c.S, b, s, h);
      const Real multiplier = Multiplier(b, h, t, s);
      const Real ds =
          Stored(p[static_cast<std::size_t>(s)] * (multiplier * Dot(dout_row, v_row) - delta[row]));
      Real* dq_row = Row(dq, c.T, b, t, h);
      Real* dk_row = Row(dk, c.S, b, s, h);
      for (int d = 0; d < c.D; ++d) {
        dq_row[d] += gate * static_cast<Real>(scale) * ds * k_row[d];
        dk_row[d] += gate * static_cast<Real>(scale) * ds * q_row[d];
      }
    }
  }
};

}  // namespace headsweep::testing
