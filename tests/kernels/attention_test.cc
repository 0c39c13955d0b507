// How much attention errs, by the yardstick of op_test.h, over odd shapes: head sizes 1 to 512, lengths 1 to
// 300, T != S, rows that see nothing, rows and addresses at which no wide access is possible. What double
// precision gives is the truth, and is itself checked by weighted differences.
#include "kernels/cuda/on_host/executor.h"
#include "tests/kernels/naive_attention.h"
#include "tests/kernels/op_test.h"

namespace headsweep::testing {
namespace {

class AttentionTest : public OpTest<AttentionCase> {
 protected:
  struct Results {
    std::vector<float> out, gated, lse, delta, dq, dk, dv;
  };

  void Draw() {
    const AttentionCase& c = shape();
    width_ = static_cast<std::int64_t>(c.H) * c.D;
    stride_ = c.fused ? 3 * width_ : width_ + c.pad;
    target_rows_ = static_cast<std::int64_t>(c.B) * c.T;
    source_rows_ = static_cast<std::int64_t>(c.B) * c.S;
    attention_ = {c.B,     c.T,     c.S,      c.H,     c.D,
                  stride_, stride_, c.causal, nullptr, 1 / std::sqrt(static_cast<float>(c.D)),
                  {}};
    attention_.dropout = {c.dropout, 77, (std::uint64_t{5} << 40) + 3, 11};
    truth_ = {};
    truth_.c = c;
    truth_.scale = attention_.scale;
    truth_.dropout = attention_.dropout;
    truth_.gates.assign(static_cast<std::size_t>(c.H), 1.0f);
    if (c.lengths) {
      for (int b = 0; b < c.B; ++b) truth_.lengths.push_back(b == 0 && c.B > 1 ? 0 : RandomInt(1, c.S));
      attention_.key_lengths = InInts(truth_.lengths);
    }
    if (c.gates) {
      truth_.gates = Random(c.H);
      if (c.H > 1) truth_.gates[0] = 0;
      gates_ = InFloats(truth_.gates);
    }
    if (c.fused) {  // columns of one (B, T, 3, H, D) buffer
      std::vector<float> qkv = Random(target_rows_ * stride_);
      q_ = In(qkv);
      k_ = backend().Offset(q_, width_);
      v_ = backend().Offset(k_, width_);
      truth_.q = Columns(qkv, stride_, 0);
      truth_.k = Columns(qkv, stride_, width_);
      truth_.v = Columns(qkv, stride_, 2 * width_);
    } else {
      q_ = Input(truth_.q, target_rows_, stride_);
      k_ = Input(truth_.k, source_rows_, stride_);
      v_ = Input(truth_.v, source_rows_, stride_);
    }
    dout_ = Input(truth_.dout, target_rows_, width_);
  }

  // Random rows, `shift` values beyond an aligned address; dense: their first columns.
  Element* Input(std::vector<double>& dense, std::int64_t rows, std::int64_t stride) {
    std::vector<float> values = Random(rows * stride + shape().shift);
    Element* p = backend().Offset(In(values), shape().shift);
    values.erase(values.begin(), values.begin() + shape().shift);
    dense = Columns(values, stride, 0);
    return p;
  }
  // (rows, H*D) of (rows, stride), from a column on.
  std::vector<double> Columns(const std::vector<float>& rows, std::int64_t stride,
                              std::int64_t column) const {
    std::vector<double> dense;
    for (std::int64_t at = column; at < static_cast<std::int64_t>(rows.size()); at += stride) {
      dense.insert(dense.end(), rows.begin() + at, rows.begin() + at + width_);
    }
    return dense;
  }

  static constexpr float kUntouched = 0.5f;
  Element* Output(std::int64_t rows, std::int64_t stride, float value) {
    std::vector<float> values(static_cast<std::size_t>(rows * stride + shape().shift), value);
    return backend().Offset(In(values), shape().shift);
  }
  // A gradient of q, k or v, laid out as they are, all of it kUntouched at first.
  struct Gradients {
    Element *q, *k, *v;
  };
  Gradients NewGradients() {
    if (!shape().fused) {
      return {Output(target_rows_, stride_, kUntouched), Output(source_rows_, stride_, kUntouched),
              Output(source_rows_, stride_, kUntouched)};
    }
    Element* all = Output(target_rows_, stride_, kUntouched);
    return {all, backend().Offset(all, width_), backend().Offset(all, 2 * width_)};
  }
  // Its values; columns of nobody must not have been written.
  std::vector<float> Rows(const Element* p, std::int64_t rows) {
    std::vector<float> dense;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::vector<float> row = Read(backend().Offset(p, r * stride_), shape().fused ? width_ : stride_);
      dense.insert(dense.end(), row.begin(), row.begin() + width_);
      EXPECT_TRUE(std::all_of(row.begin() + width_, row.end(), [](float x) { return x == kUntouched; }))
          << "a column beyond the heads was written, row " << r;
    }
    return dense;
  }

  Results RunBackend() {
    const float nan = std::nanf("");
    Element* out = Output(target_rows_, width_, nan);
    Element* gated = gates_ == nullptr ? nullptr : Output(target_rows_, width_, nan);
    const auto [dq, dk, dv] = NewGradients();
    float* lse = OutFloats(target_rows_ * shape().H);
    float* delta = OutFloats(target_rows_ * shape().H);
    backend().AttentionForward(attention_, q_, k_, v_, gates_, out, gated, lse);
    backend().AttentionBackward(attention_, q_, k_, v_, gates_, out, lse, dout_, dq, dk, dv, delta);
    Results results;
    results.out = Read(out, target_rows_ * width_);
    if (gated != nullptr) results.gated = Read(gated, target_rows_ * width_);
    results.lse = Read(lse, target_rows_ * shape().H);
    results.delta = Read(delta, target_rows_ * shape().H);
    results.dq = Rows(dq, target_rows_);
    results.dk = Rows(dk, source_rows_);
    results.dv = Rows(dv, source_rows_);
    return results;
  }

  using OpTest<AttentionCase>::ExpectSameBits;
  void ExpectSameBits(const Results& a, const Results& b) {
    ExpectSameBits("out", a.out, b.out);
    ExpectSameBits("gated", a.gated, b.gated);
    ExpectSameBits("lse", a.lse, b.lse);
    ExpectSameBits("delta", a.delta, b.delta);
    ExpectSameBits("dq", a.dq, b.dq);
    ExpectSameBits("dk", a.dk, b.dk);
    ExpectSameBits("dv", a.dv, b.dv);
  }

  // The same precision, naively.
  NaiveAttention<float> Naive() const {
    NaiveAttention<float> naive;
    naive.c = truth_.c;
    naive.lengths = truth_.lengths;
    naive.scale = truth_.scale;
    naive.dropout = truth_.dropout;
    naive.gates = truth_.gates;
    naive.q = As<float>(truth_.q);
    naive.k = As<float>(truth_.k);
    naive.v = As<float>(truth_.v);
    naive.dout = As<float>(truth_.dout);
    naive.Run();
    return naive;
  }

  AttentionShape attention_;
  NaiveAttention<double> truth_;
  std::int64_t width_ = 0, stride_ = 0, target_rows_ = 0, source_rows_ = 0;
  Element *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *dout_ = nullptr;
  float* gates_ = nullptr;
};

TEST_P(AttentionTest, ErrsAsLittleAsTheFormula) {
  Measure([&] {
    Draw();
    const Results mine = RunBackend();
    truth_.Run();
    const NaiveAttention<float> naive = Naive();
    ExpectAsGood("out", mine.out, truth_.out, naive.out);
    if (gates_ != nullptr) ExpectAsGood("gated", mine.gated, truth_.gated, naive.gated);
    ExpectAsGood("lse", mine.lse, truth_.lse, naive.lse);
    ExpectAsGood("delta", mine.delta, truth_.delta, naive.delta, kGradient);
    ExpectAsGood("dq", mine.dq, truth_.dq, naive.dq, kGradient);
    ExpectAsGood("dk", mine.dk, truth_.dk, naive.dk, kGradient);
    ExpectAsGood("dv", mine.dv, truth_.dv, naive.dv, kGradient);
  });
}

// Head sizes that attention_<type>_16.cu serves, the planted bugs' (mutants/CMakeLists.txt).
HEADSWEEP_OP_SUITE_AS(SmallHeads, AttentionTest, AttentionCase,
                      {
                          {1, 1, 1, 1, 1},
                          {1, 65, 65, 1, 1, true},
                          {1, 65, 65, 2, 7, true, false, true, 0.1f},
                          {2, 33, 33, 3, 7, true, true, true, 0.5f, 0, 0, true},
                          {1, 64, 64, 2, 8, true, false, true},
                          {2, 7, 19, 2, 8, true, false, true},  // more keys than queries
                          {1, 19, 7, 2, 8, true},               // the first queries see nothing
                          {1, 65, 66, 1, 16, true, true, false, 0.2f, 8},
                          {3, 33, 40, 2, 16, true, true, true, 0.25f, 5},
                      });

HEADSWEEP_OP_SUITE(
    AttentionTest, AttentionCase,
    {
        // Both ends of every head-size class, and what fits none.
        {1, 63, 63, 2, 32, false, true, true},
        {1, 33, 33, 2, 32, true, false, false, 0, 0, 0, true},
        {2, 65, 64, 2, 40, true, true, true, 0.1f, 8},
        {1, 65, 65, 2, 59, true, false, true, 0.1f, 3},
        {1, 65, 65, 1, 96, false, true, true, 0.1f},
        {1, 64, 65, 1, 111, true, false, true, 0, 1, 1},
        {1, 65, 68, 1, 128, true, false, false, 0.1f, 8},
        {1, 33, 65, 1, 200, true, true, true},
        {1, 65, 36, 1, 256, true, false, true, 0.1f},
        {1, 33, 33, 1, 257, true, false, true, 0.1f},
        {1, 33, 36, 1, 512, false, true, true, 0.1f},
        // Lengths at head size 64, the one that most models have.
        {2, 1, 1, 2, 64, true, false, true, 0.5f},
        {1, 1, 300, 2, 64, true, true},
        {1, 2, 2, 1, 64, true},
        {1, 300, 1, 1, 64},
        {1, 63, 127, 1, 64, true, true, true, 0.1f},
        {1, 127, 64, 1, 64, true, false, false, 0.1f},
        {1, 192, 192, 1, 64, true, false, false, 0.1f},
        {2, 192, 192, 1, 64, false, true},
        {1, 300, 300, 1, 64, true, false, true, 0.1f},
        // Rows and addresses that allow accesses of 2 or 4 bytes only; one buffer for q, k and v.
        {1, 65, 65, 2, 64, true, false, true, 0.1f, 1},
        {1, 65, 65, 2, 64, true, false, true, 0.1f, 2},
        {1, 65, 65, 2, 64, true, false, true, 0.1f, 0, 1},
        {1, 65, 65, 2, 64, true, false, true, 0.1f, 0, 2},
        {2, 65, 65, 2, 64, false, false, true, 0, 0, 0, true},
        // Nothing to do, or next to nothing.
        {2, 65, 65, 0, 64, true},
        {0, 65, 65, 2, 64, true},
        {1, 0, 5, 2, 64},
        {2, 5, 0, 2, 64, false, false, true},
    });

TEST_P(AttentionTest, GivesTheSameBitsTwice) {
  Draw();
  ExpectSameBits(RunBackend(), RunBackend());
}

class AttentionLimitsTest : public OpTest<AttentionCase> {};

TEST_P(AttentionLimitsTest, AreSaid) {
  std::vector<float> values = Random(1024);
  Element* x = In(values);
  float* terms = OutFloats(1);
  for (const auto& [D, scale] :
       {std::pair{0, 1.0f}, {513, 1.0f}, {8, 0.0f}, {8, -1.0f}, {8, std::nanf("")}}) {
    const AttentionShape at{1, 1, 1, 1, D, D, D, false, nullptr, scale, {}};
    EXPECT_THROW(backend().AttentionForward(at, x, x, x, nullptr, x, nullptr, terms), Unsupported)
        << D << ", " << scale;
    EXPECT_THROW(backend().AttentionBackward(at, x, x, x, nullptr, x, terms, x, x, x, x, terms), Unsupported)
        << D << ", " << scale;
  }
}

HEADSWEEP_OP_SUITE(AttentionLimitsTest, AttentionCase, {{1, 1, 1, 1, 1}});

// Threads of a block in three orders: a result that depends on it means a missing barrier.
class AttentionOrderTest : public AttentionTest {
 protected:
  void TearDown() override {
    cuda_on_host::SetThreadOrder(before_);
    AttentionTest::TearDown();
  }
  const cuda_on_host::ThreadOrder before_ = cuda_on_host::CurrentThreadOrder();
};

TEST_P(AttentionOrderTest, SameBitsWhateverTheOrderOfThreads) {
  Draw();
  const auto run = [&](cuda_on_host::ThreadOrder order) {
    cuda_on_host::SetThreadOrder(order);
    return RunBackend();
  };
  const Results first = run({cuda_on_host::ThreadOrder::kRising, 0});
  for (const cuda_on_host::ThreadOrder order :
       {cuda_on_host::ThreadOrder{cuda_on_host::ThreadOrder::kFalling, 0},
        cuda_on_host::ThreadOrder{cuda_on_host::ThreadOrder::kShuffled, TestSeed()}}) {
    SCOPED_TRACE(ToString(order));
    ExpectSameBits(first, run(order));
  }
}

std::vector<BackendCase> OnHost() {
  return {{"host_float", {"cuda-on-host", 1, "float32"}}, {"host_bf16", {"cuda-on-host", 1, "bfloat16"}}};
}

INSTANTIATE_TEST_SUITE_P(
    Ops, AttentionOrderTest,
    ::testing::Combine(::testing::ValuesIn(OnHost()),
                       ::testing::ValuesIn(std::vector<AttentionCase>{
                           {1, 130, 130, 1, 64, true, false, true, 0.1f},  // several tiles, two stages
                           {1, 68, 68, 2, 59, true, true, true, 0.1f},     // copies without cp.async
                           {1, 33, 36, 1, 512, true, false, true, 0.1f},   // several chunks, one stage
                       })),
    OpTestName<AttentionCase>);

// The truth itself: its gradients are slopes.
TEST(AttentionTruth, GradientsAreWeightedDifferences) {
  std::mt19937_64 random(TestSeed());
  std::normal_distribution<double> normal;
  NaiveAttention<double> truth;
  truth.c = {2, 5, 7, 2, 3, true, true, true, 0.25f};
  truth.lengths = {7, 4};
  truth.scale = 0.5f;
  truth.dropout = {0.25f, 77, 5, 11};
  truth.gates = {0.7f, -1.3f};
  const auto fill = [&](std::vector<double>& x, int rows) {
    x.resize(static_cast<std::size_t>(2 * rows * 2 * 3));
    for (double& value : x) value = normal(random);
  };
  fill(truth.q, 5);
  fill(truth.k, 7);
  fill(truth.v, 7);
  fill(truth.dout, 5);
  truth.Run();
  const NaiveAttention<double> at = truth;
  const auto loss = [&] {
    truth.Run();
    double sum = 0;
    for (std::size_t i = 0; i < truth.gated.size(); ++i) sum += truth.dout[i] * truth.gated[i];
    return sum;
  };
  const auto check = [&](const char* what, std::vector<double>& x, const std::vector<double>& gradient) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      constexpr double kStep = 1e-5;
      const double before = x[i];
      x[i] = before + kStep;
      const double above = loss();
      x[i] = before - kStep;
      const double below = loss();
      x[i] = before;
      const double slope = (above - below) / (2 * kStep);
      EXPECT_TRUE(std::abs(slope - gradient[i]) <= 1e-7 * (1 + std::abs(slope)))
          << what << "[" << i << "]: " << gradient[i] << ", slope " << slope << "; seed " << TestSeed();
    }
  };
  check("dq", truth.q, at.dq);
  check("dk", truth.k, at.dk);
  check("dv", truth.v, at.dv);
  // delta's sum over examples and queries is the slope in the head's gate, in which the loss is linear.
  for (std::size_t h = 0; h < truth.gates.size(); ++h) {
    double sum = 0;
    for (std::size_t i = 0; i < at.delta.size(); ++i) sum += i / 5 % 2 == h ? at.delta[i] : 0;  // (B, H, T)
    const double below = loss();
    truth.gates[h] += 0.5f;
    const double slope = (loss() - below) / 0.5;
    truth.gates[h] -= 0.5f;
    EXPECT_TRUE(std::abs(slope - sum) <= 1e-6 * (1 + std::abs(slope)))
        << "gate " << h << ": " << sum << ", slope " << slope;
  }
}

}  // namespace
}  // namespace headsweep::testing
