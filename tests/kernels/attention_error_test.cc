// How much attention errs: never more than twice (gradients: three times) what the same precision errs when
// the formula is written down naively, over odd shapes: head sizes 1 to 512, lengths 1 to 300, T != S, rows
// that see nothing, rows and addresses at which no wide access is possible. The rule is FlashAttention's (Dao
// 2023, tests); what double precision gives is the truth, and is itself checked by weighted differences.
#include "kernels/cuda/on_host/executor.h"
#include "tests/kernels/naive_attention.h"
#include "tests/kernels/op_test.h"

namespace headsweep::testing {
namespace {

double Largest(const std::vector<double>& x) {
  double largest = 0;
  for (double value : x) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

template <class Value>
double LargestError(const std::vector<Value>& x, const std::vector<double>& truth) {
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = static_cast<double>(x[i]);
    const double error = value == truth[i] ? 0 : std::abs(value - truth[i]);  // infinities are equal
    if (!(error <= worst)) worst = error;
    if (std::isnan(worst)) break;
  }
  return worst;
}

class AttentionErrorTest : public OpTest<AttentionErrorCase> {
 protected:
  struct Results {
    std::vector<float> out, gated, lse, delta, dq, dk, dv;
  };

  void SetUp() override {
    OpTest<AttentionErrorCase>::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const AttentionErrorCase& c = shape();
    width_ = static_cast<std::int64_t>(c.H) * c.D;
    stride_ = width_ + c.pad;
    target_rows_ = static_cast<std::int64_t>(c.B) * c.T;
    source_rows_ = static_cast<std::int64_t>(c.B) * c.S;
    attention_ = {c.B,     c.T,     c.S,      c.H,     c.D,
                  stride_, stride_, c.causal, nullptr, 1 / std::sqrt(static_cast<float>(c.D)),
                  {}};
    attention_.dropout = {c.dropout, 77, (std::uint64_t{5} << 40) + 3, 11};
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
      gates_ = InFloats(truth_.gates);
    }
    q_ = Input(truth_.q, target_rows_, stride_);
    k_ = Input(truth_.k, source_rows_, stride_);
    v_ = Input(truth_.v, source_rows_, stride_);
    dout_ = Input(truth_.dout, target_rows_, width_);
  }

  // Random rows, `shift` values beyond an aligned address; dense: their first columns.
  Element* Input(std::vector<double>& dense, std::int64_t rows, std::int64_t stride) {
    std::vector<float> values = Random(rows * stride + shape().shift);
    Element* p = backend().Offset(In(values), shape().shift);
    dense.clear();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < width_; ++i) {
        dense.push_back(
            static_cast<double>(values[static_cast<std::size_t>(shape().shift + r * stride + i)]));
      }
    }
    return p;
  }

  static constexpr float kUntouched = 0.5f;
  Element* Output(std::int64_t rows, std::int64_t stride, float value) {
    std::vector<float> values(static_cast<std::size_t>(rows * stride + shape().shift), value);
    return backend().Offset(In(values), shape().shift);
  }
  // The first columns of rows; the others must not have been written.
  std::vector<float> Rows(const Element* p, std::int64_t rows) {
    const std::vector<float> all = Read(p, rows * stride_);
    std::vector<float> dense;
    for (std::int64_t i = 0; i < rows * stride_; ++i) {
      const float value = all[static_cast<std::size_t>(i)];
      if (i % stride_ < width_) {
        dense.push_back(value);
      } else {
        EXPECT_EQ(value, kUntouched) << "a column beyond the heads was written, row " << i / stride_;
      }
    }
    return dense;
  }

  Results RunBackend() {
    const float nan = std::nanf("");
    Element* out = Output(target_rows_, width_, nan);
    Element* gated = gates_ == nullptr ? nullptr : Output(target_rows_, width_, nan);
    Element* dq = Output(target_rows_, stride_, kUntouched);
    Element* dk = Output(source_rows_, stride_, kUntouched);
    Element* dv = Output(source_rows_, stride_, kUntouched);
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

  // The same precision, naively.
  NaiveAttention<float> Naive() const {
    NaiveAttention<float> naive{truth_.c,
                                backend_bytes_ == 2 ? Precision::kBfloat16 : Precision::kFloat,
                                truth_.lengths,
                                truth_.scale,
                                truth_.dropout,
                                truth_.gates,
                                {truth_.q.begin(), truth_.q.end()},
                                {truth_.k.begin(), truth_.k.end()},
                                {truth_.v.begin(), truth_.v.end()},
                                {truth_.dout.begin(), truth_.dout.end()},
                                {},
                                {},
                                {},
                                {},
                                {},
                                {},
                                {}};
    naive.Run();
    return naive;
  }

  AttentionShape attention_;
  NaiveAttention<double> truth_;
  std::size_t backend_bytes_ = 4;
  std::int64_t width_ = 0, stride_ = 0, target_rows_ = 0, source_rows_ = 0;
  Element *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *dout_ = nullptr;
  float* gates_ = nullptr;
};

TEST_P(AttentionErrorTest, AtMostTwiceThatOfTheNaiveFormulaInTheSamePrecision) {
  backend_bytes_ = backend().element_bytes();
  const Results mine = RunBackend();
  truth_.Run();
  const NaiveAttention<float> naive = Naive();
  // Half a unit in the last place of a number near 1: nobody errs less than the rounding of the result, nor
  // than the rounding of the terms that cancel in a gradient.
  const double unit = backend_bytes_ == 2 ? 0x1p-9 : 0x1p-24;
  const auto expect = [&](const char* what, const std::vector<float>& x, const std::vector<float>& naive_x,
                          const std::vector<double>& truth, double factor, double floor) {
    ASSERT_EQ(x.size(), truth.size()) << what;
    const double allowed = factor * LargestError(naive_x, truth) + floor;
    const double error = LargestError(x, truth);
    EXPECT_TRUE(error <= allowed) << what << ": error " << error << " > " << allowed << ", naively "
                                  << LargestError(naive_x, truth) << "; seed " << TestSeed();
  };
  expect("out", mine.out, naive.out, truth_.out, 2, 2 * unit * Largest(truth_.out));
  if (gates_ != nullptr) {
    expect("gated", mine.gated, naive.gated, truth_.gated, 2, 2 * unit * Largest(truth_.gated));
  }
  expect("lse", mine.lse, naive.lse, truth_.lse, 2, 0x1p-22 * (1 + Largest(truth_.lse)));
  expect("delta", mine.delta, naive.delta, truth_.delta, 3, 2 * unit * truth_.largest_delta);
  double gate = 0;
  for (float g : truth_.gates) gate = std::max(gate, static_cast<double>(std::abs(g)));
  const double ds = 2 * unit * truth_.largest_ds * static_cast<double>(attention_.scale) * gate;
  expect("dq", mine.dq, naive.dq, truth_.dq, 3, ds * Largest(truth_.k) + 2 * unit * Largest(truth_.dq));
  const double rows = std::sqrt(static_cast<double>(std::max(1, shape().T)));  // that a dk adds up
  expect("dk", mine.dk, naive.dk, truth_.dk, 3,
         rows * ds * Largest(truth_.q) + 2 * unit * Largest(truth_.dk));
  expect("dv", mine.dv, naive.dv, truth_.dv, 3, 2 * unit * Largest(truth_.dv));
}

std::vector<BackendCase> OnHost() {
  return {{"host_float", {"cuda-on-host", 1, "float32"}, 0},
          {"host_bf16", {"cuda-on-host", 1, "bfloat16"}, 0}};
}
// Not the CPU's: its exp trades the last bits for speed, and its own bound is attention_test.cc's.
std::vector<BackendCase> Cuda() {
  std::vector<BackendCase> backends = OnHost();
  backends.push_back({"cuda_float", {"cuda", 1, "float32"}, 0});
  backends.push_back({"cuda_bf16", {"cuda", 1, "bfloat16"}, 0});
  return WhereDevicesAre(backends);
}

INSTANTIATE_TEST_SUITE_P(
    Ops, AttentionErrorTest,
    ::testing::Combine(::testing::ValuesIn(Cuda()),
                       ::testing::ValuesIn(std::vector<AttentionErrorCase>{
                           // Every head-size class, both ends of it, and what fits none.
                           {1, 65, 65, 1, 1, true},
                           {1, 65, 65, 2, 7, true, false, true, 0.1f},
                           {1, 64, 64, 2, 8, true, false, true},
                           {1, 65, 66, 1, 16, true, true, false, 0.2f, 8},
                           {1, 63, 63, 2, 32, false, true, true},
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
                           // Rows and addresses that allow accesses of 2 or 4 bytes only.
                           {1, 65, 65, 2, 64, true, false, true, 0.1f, 1},
                           {1, 65, 65, 2, 64, true, false, true, 0.1f, 2},
                           {1, 65, 65, 2, 64, true, false, true, 0.1f, 0, 1},
                           {1, 65, 65, 2, 64, true, false, true, 0.1f, 0, 2},
                           // Nothing to do, or next to nothing.
                           {2, 65, 65, 0, 64, true},
                           {0, 65, 65, 2, 64, true},
                           {1, 0, 5, 2, 64},
                           {2, 5, 0, 2, 64, false, false, true},
                       })),
    OpTestName<AttentionErrorCase>);

// Threads of a block in three orders: a result that depends on it means a missing barrier.
class AttentionOrderTest : public AttentionErrorTest {
 protected:
  void TearDown() override {
    cuda_on_host::SetThreadOrder(before_);
    AttentionErrorTest::TearDown();
  }
  const cuda_on_host::ThreadOrder before_ = cuda_on_host::CurrentThreadOrder();
};

TEST_P(AttentionOrderTest, SameBitsWhateverTheOrderOfThreads) {
  const auto run = [&](cuda_on_host::ThreadOrder order) {
    cuda_on_host::SetThreadOrder(order);
    return RunBackend();
  };
  const Results first = run({cuda_on_host::ThreadOrder::kRising, 0});
  for (const cuda_on_host::ThreadOrder order :
       {cuda_on_host::ThreadOrder{cuda_on_host::ThreadOrder::kFalling, 0},
        cuda_on_host::ThreadOrder{cuda_on_host::ThreadOrder::kShuffled, TestSeed()}}) {
    SCOPED_TRACE(ToString(order));
    const Results other = run(order);
    ExpectSameBits("out", first.out, other.out);
    ExpectSameBits("gated", first.gated, other.gated);
    ExpectSameBits("lse", first.lse, other.lse);
    ExpectSameBits("delta", first.delta, other.delta);
    ExpectSameBits("dq", first.dq, other.dq);
    ExpectSameBits("dk", first.dk, other.dk);
    ExpectSameBits("dv", first.dv, other.dv);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ops, AttentionOrderTest,
    ::testing::Combine(::testing::ValuesIn(OnHost()),
                       ::testing::ValuesIn(std::vector<AttentionErrorCase>{
                           {1, 130, 130, 1, 64, true, false, true, 0.1f},  // several tiles, two stages
                           {1, 68, 68, 2, 59, true, true, true, 0.1f},     // copies without cp.async
                           {1, 33, 36, 1, 512, true, false, true, 0.1f},   // several chunks, one stage
                       })),
    OpTestName<AttentionErrorCase>);

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
}

}  // namespace
}  // namespace headsweep::testing
