// Attention against softmax written out in double precision: causal and padded, strided, gated, with dropout,
// any head size.
#include "kernels/philox.h"
#include "tests/kernels/op_test.h"

namespace headsweep::testing {
namespace {

struct AttentionCase {
  int B, T, S, H, D;
  bool causal = false;
  bool lengths = false;  // key lengths, example 0 sees no key at all
  bool gates = false;    // random, gate of head 0 is 0
  float dropout = 0;
  bool fused = true;  // T == S: q, k, v are columns of one (B, T, 3, H, D) buffer
};

std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << "B" << c.B << " T" << c.T << " S" << c.S << " H" << c.H << " D" << c.D
             << (c.causal ? " causal" : "") << (c.lengths ? " lengths" : "") << (c.gates ? " gates" : "")
             << (c.fused ? " fused" : "") << " dropout " << c.dropout;
}

// The formula, on dense (B, T, H, D) and (B, S, H, D) arrays.
struct Formula {
  AttentionCase c;
  std::vector<std::int32_t> lengths;
  double scale = 1;
  Dropout dropout;
  std::vector<double> q, k, v, gates;  // gates: all 1 without
  std::vector<double> out, gated, lse;

  bool Visible(int b, int t, int s) const {
    return (!c.causal || s <= t + c.S - c.T) && (lengths.empty() || s < lengths[static_cast<std::size_t>(b)]);
  }
  double Multiplier(int b, int h, int t, int s) const {
    if (dropout.rate == 0) return 1;
    const std::int64_t position = (((dropout.first_example + b) * c.H + h) * c.T + t) * c.S + s;
    const bool kept = RandomBits(dropout.seed, dropout.site, static_cast<std::uint64_t>(position)) >=
                      DropoutThreshold(dropout.rate);
    return kept ? 1.0 / (1.0 - static_cast<double>(dropout.rate)) : 0.0;
  }
  std::size_t At(int b, int row, int rows, int h, int d) const {
    return static_cast<std::size_t>(((static_cast<std::int64_t>(b) * rows + row) * c.H + h) * c.D + d);
  }
  void Row(int b, int h, int t) {
    std::vector<double> p(static_cast<std::size_t>(c.S), 0.0);
    double sum = 0;
    for (int s = 0; s < c.S; ++s) {
      if (!Visible(b, t, s)) continue;
      double dot = 0;
      for (int d = 0; d < c.D; ++d) dot += q[At(b, t, c.T, h, d)] * k[At(b, s, c.S, h, d)];
      p[static_cast<std::size_t>(s)] = std::exp(scale * dot);
      sum += p[static_cast<std::size_t>(s)];
    }
    lse[static_cast<std::size_t>((static_cast<std::int64_t>(b) * c.H + h) * c.T + t)] =
        sum == 0 ? -INFINITY : std::log(sum);
    for (int d = 0; d < c.D; ++d) {
      double value = 0;
      for (int s = 0; s < c.S; ++s) {
        if (Visible(b, t, s)) {
          value += p[static_cast<std::size_t>(s)] / sum * Multiplier(b, h, t, s) * v[At(b, s, c.S, h, d)];
        }
      }
      out[At(b, t, c.T, h, d)] = value;
      gated[At(b, t, c.T, h, d)] = gates[static_cast<std::size_t>(h)] * value;
    }
  }
  void Run() {
    out.assign(q.size(), 0);
    gated.assign(q.size(), 0);
    lse.assign(static_cast<std::size_t>(c.B) * static_cast<std::size_t>(c.H * c.T), 0);
    for (int b = 0; b < c.B; ++b) {
      for (int h = 0; h < c.H; ++h) {
        for (int t = 0; t < c.T; ++t) Row(b, h, t);
      }
    }
  }
};

class AttentionTest : public OpTest<AttentionCase> {
 protected:
  void SetUp() override {
    OpTest<AttentionCase>::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const AttentionCase& c = shape();
    const std::int64_t width = static_cast<std::int64_t>(c.H) * c.D;
    target_rows_ = static_cast<std::int64_t>(c.B) * c.T;
    source_rows_ = static_cast<std::int64_t>(c.B) * c.S;
    fused_ = c.fused && c.T == c.S;
    const std::int64_t stride = fused_ ? 3 * width : width + 5;  // 5 columns of something else in every row
    attention_ = {c.B,    c.T,    c.S,      c.H,     c.D,
                  stride, stride, c.causal, nullptr, 1 / std::sqrt(static_cast<float>(c.D)),
                  {}};
    formula_.c = c;
    formula_.scale = static_cast<double>(attention_.scale);
    if (c.lengths) {
      for (int b = 0; b < c.B; ++b) formula_.lengths.push_back(b == 0 ? 0 : RandomInt(1, c.S));
      attention_.key_lengths = InInts(formula_.lengths);
    }
    attention_.dropout = {c.dropout, 77, (std::uint64_t{5} << 40) + 3, 11};
    formula_.dropout = attention_.dropout;
    formula_.gates.assign(static_cast<std::size_t>(c.H), 1.0);
    if (c.gates) {
      std::vector<float> gates = Random(c.H);
      if (c.H > 0) gates[0] = 0;
      formula_.gates = ToDouble(gates);
      gates_ = InFloats(gates);
    }
    if (fused_) {
      std::vector<float> qkv = Random(target_rows_ * stride);
      Element* base = In(qkv);
      q_ = base;
      k_ = backend().Offset(base, width);
      v_ = backend().Offset(base, 2 * width);
      formula_.q = Dense(qkv, target_rows_, stride, 0);
      formula_.k = Dense(qkv, target_rows_, stride, width);
      formula_.v = Dense(qkv, target_rows_, stride, 2 * width);
    } else {
      q_ = Strided(formula_.q, target_rows_);
      k_ = Strided(formula_.k, source_rows_);
      v_ = Strided(formula_.v, source_rows_);
    }
    out_ = Out(target_rows_ * width);
    gated_ = c.gates ? Out(target_rows_ * width) : nullptr;
    lse_ = OutFloats(target_rows_ * c.H);
    formula_.Run();
    backend().AttentionForward(attention_, q_, k_, v_, gates_, out_, gated_, lse_);
  }

  // (rows, H*D) of (rows, stride) from a column on.
  std::vector<double> Dense(const std::vector<float>& from, std::int64_t rows, std::int64_t stride,
                            std::int64_t column) {
    std::vector<double> dense;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(shape().H) * shape().D; ++i) {
        dense.push_back(from[static_cast<std::size_t>(r * stride + column + i)]);
      }
    }
    return dense;
  }
  Element* Strided(std::vector<double>& dense, std::int64_t rows) {
    std::vector<float> values = Random(rows * attention_.q_stride);
    Element* p = In(values);
    dense = Dense(values, rows, attention_.q_stride, 0);
    return p;
  }
  std::int64_t OutCount() const { return target_rows_ * shape().H * shape().D; }

  AttentionShape attention_;
  Formula formula_;
  bool fused_ = false;
  std::int64_t target_rows_ = 0, source_rows_ = 0;
  Element *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *out_ = nullptr, *gated_ = nullptr;
  float *gates_ = nullptr, *lse_ = nullptr;
};

TEST_P(AttentionTest, ForwardMatchesTheFormula) {
  ExpectClose("out", Read(out_, OutCount()), formula_.out);
  ExpectClose("lse", Read(lse_, target_rows_ * shape().H), formula_.lse);
  if (gated_ != nullptr) ExpectClose("gated", Read(gated_, OutCount()), formula_.gated);
}

TEST_P(AttentionTest, ForwardGivesTheSameBitsTwice) {
  const std::vector<float> first = Read(out_, OutCount());
  Element* again = Out(OutCount());
  backend().AttentionForward(attention_, q_, k_, v_, gates_, again, gated_, lse_);
  ExpectSameBits("out", first, Read(again, OutCount()));
}

TEST_P(AttentionTest, BackwardMatchesSlopesAndLeavesOtherColumnsAlone) {
  const std::int64_t stride = attention_.q_stride, width = static_cast<std::int64_t>(shape().H) * shape().D;
  std::vector<float> weights = Random(OutCount());  // of the loss sum weights * gated
  Element* dout = In(weights);
  constexpr float kUntouched = 0.5f;
  const auto gradients = [&](std::int64_t rows) {
    std::vector<float> untouched(static_cast<std::size_t>(rows * stride), kUntouched);
    return In(untouched);
  };
  Element *dq, *dk, *dv;
  if (fused_) {
    dq = gradients(target_rows_);
    dk = backend().Offset(dq, width);
    dv = backend().Offset(dq, 2 * width);
  } else {
    dq = gradients(target_rows_);
    dk = gradients(source_rows_);
    dv = gradients(source_rows_);
  }
  float* delta = OutFloats(target_rows_ * shape().H);
  backend().AttentionBackward(attention_, q_, k_, v_, gates_, out_, lse_, dout, dq, dk, dv, delta);

  const auto floats = [&](const Element* p, std::int64_t rows) {
    std::vector<float> values;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::vector<float> row = Read(backend().Offset(p, r * stride), width);
      values.insert(values.end(), row.begin(), row.end());
    }
    return values;
  };
  const std::function<double()> loss = [&] {
    formula_.Run();
    return WeightedSum(weights, formula_.gated);
  };
  ExpectSlopes("dq", floats(dq, target_rows_), formula_.q, loss);
  ExpectSlopes("dk", floats(dk, source_rows_), formula_.k, loss);
  ExpectSlopes("dv", floats(dv, source_rows_), formula_.v, loss);
  if (!fused_) {
    const std::vector<float> all = Read(dk, source_rows_ * stride);
    for (std::int64_t r = 0; r < source_rows_; ++r) {
      for (std::int64_t i = width; i < stride; ++i)
        ASSERT_EQ(all[static_cast<std::size_t>(r * stride + i)], kUntouched);
    }
  }
  formula_.Run();  // the slopes moved its inputs; they are back now
  // delta is sum_d dout out, and its sum over examples and rows the slope of the loss in the gate.
  std::vector<double> expected(static_cast<std::size_t>(target_rows_ * shape().H), 0.0);
  for (int b = 0; b < shape().B; ++b) {
    for (int h = 0; h < shape().H; ++h) {
      for (int t = 0; t < shape().T; ++t) {
        double& sum = expected[static_cast<std::size_t>(
            (static_cast<std::int64_t>(b) * shape().H + h) * shape().T + t)];
        for (int d = 0; d < shape().D; ++d) {
          const std::size_t at = formula_.At(b, t, shape().T, h, d);
          sum += static_cast<double>(weights[at]) * formula_.out[at];
        }
      }
    }
  }
  const std::vector<float> deltas = Read(delta, target_rows_ * shape().H);
  ExpectClose("delta", deltas, expected, std::sqrt(static_cast<double>(shape().D)));
  if (shape().gates && shape().B > 0) {
    std::vector<float> gate_gradient(static_cast<std::size_t>(shape().H), 0.0f);
    for (std::size_t i = 0; i < deltas.size(); ++i) {
      gate_gradient[i / static_cast<std::size_t>(shape().T) % static_cast<std::size_t>(shape().H)] +=
          deltas[i];
    }
    ExpectSlopes("dgate", gate_gradient, formula_.gates, loss, 10);
  }
}

TEST_P(AttentionTest, BackwardGivesTheSameBitsTwice) {
  std::vector<float> weights = Random(OutCount());
  Element* dout = In(weights);
  std::vector<float> results[2];
  for (std::vector<float>& result : results) {
    std::vector<float> zeros(
        static_cast<std::size_t>(std::max(target_rows_, source_rows_) * attention_.q_stride), 0.0f);
    Element *dq = In(zeros), *dk = In(zeros), *dv = In(zeros);
    float* delta = OutFloats(target_rows_ * shape().H);
    backend().AttentionBackward(attention_, q_, k_, v_, gates_, out_, lse_, dout, dq, dk, dv, delta);
    for (const Element* p : {dq, dk, dv}) {
      const std::vector<float> values = Read(p, static_cast<std::int64_t>(zeros.size()));
      result.insert(result.end(), values.begin(), values.end());
    }
  }
  ExpectSameBits("dq, dk, dv", results[0], results[1]);
}

// bfloat16 has its bound in attention_error_test.cc.
std::vector<BackendCase> Float32Backends() {
  std::vector<BackendCase> backends = Backends();
  std::erase_if(backends, [](const BackendCase& c) { return c.options.precision != "float32"; });
  return backends;
}

HEADSWEEP_OP_SUITE_ON(Float32Backends(), AttentionTest, AttentionCase,
                      {
                          {1, 1, 1, 1, 1},
                          {2, 7, 7, 3, 5, true},
                          {1, 33, 33, 2, 32, true},
                          {2, 33, 33, 1, 33, false, true},
                          {2, 7, 19, 2, 8, false, false, false, 0, false},  // T != S
                          {2, 7, 19, 2, 8, true, false, true, 0, false},    // causal, more keys than queries
                          {1, 19, 7, 2, 8, true, false, false, 0,
                           false},  // causal, first queries see nothing
                          {3, 33, 40, 2, 16, true, true, true, 0.25f, false},  // everything at once
                          {2, 33, 33, 3, 7, true, true, true, 0.5f},
                          {2, 130, 130, 1, 9, true, false, true, 0.1f},
                          {1, 130, 130, 2, 64, false, true},
                          {2, 33, 33, 4, 4, false, false, true},
                          {1, 33, 33, 1, 130, true},
                          {1, 17, 17, 1, 257, true, false, true},
                          {1, 9, 9, 2, 512, true, false, false, 0.1f},
                          {2, 5, 5, 0, 16, true},  // no heads
                          {0, 5, 5, 2, 16, true},  // no examples
                      });

}  // namespace
}  // namespace headsweep::testing
