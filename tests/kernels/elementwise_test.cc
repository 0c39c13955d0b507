// Addition, and dropout against the Philox formula, wherever a batch is cut.
#include "kernels/philox.h"
#include "tests/kernels/op_test.h"

namespace headsweep::testing {
namespace {

struct CountCase {
  std::int64_t count;
};
std::ostream& operator<<(std::ostream& out, const CountCase& c) { return out << c.count << " values"; }

class AddTest : public OpTest<CountCase> {};

TEST_P(AddTest, MatchesTheFormulaAndMayAliasEither) {
  Measure([&] {
    const std::int64_t count = shape().count;
    std::vector<float> a = Random(count), b = Random(count);
    Element *a_in = In(a), *b_in = In(b), *out = Out(count);
    backend().Add(a_in, b_in, out, count);
    std::vector<double> truth;
    std::vector<float> naive;
    for (std::size_t i = 0; i < a.size(); ++i) {
      truth.push_back(static_cast<double>(a[i]) + b[i]);
      naive.push_back(Stored(a[i] + b[i]));
    }
    const std::vector<float> result = Read(out, count);
    ExpectAsGood("out", result, truth, naive);
    Element* alias = In(a);
    backend().Add(alias, b_in, alias, count);
    ExpectSameBits("aliases a", result, Read(alias, count));
    alias = In(b);
    backend().Add(a_in, alias, alias, count);
    ExpectSameBits("aliases b", result, Read(alias, count));
  });
}

HEADSWEEP_OP_SUITE(AddTest, CountCase, {{0}, {1}, {33}, {130}, {50021}});

struct DropoutCase {
  int B;
  std::int64_t N;
  float rate;
  std::int64_t first_example = 0;
};
std::ostream& operator<<(std::ostream& out, const DropoutCase& c) {
  return out << "B" << c.B << " N" << c.N << " rate " << c.rate << " first example " << c.first_example;
}

class DropoutTest : public OpTest<DropoutCase> {};

TEST_P(DropoutTest, MaskIsThePhiloxFormulaAndMayWorkInPlace) {
  Measure([&] {
    const auto& [B, N, rate, first_example] = shape();
    const Dropout dropout{rate, 0xfeedfacecafe, (std::uint64_t{9} << 33) + 1, first_example};
    std::vector<float> x = Random(B * N);
    Element *x_in = In(x), *y = Out(B * N);
    backend().ApplyDropout(x_in, y, B, N, dropout);
    std::vector<double> truth;
    std::vector<float> naive;
    for (std::int64_t i = 0; i < B * N; ++i) {
      const auto position = static_cast<std::uint64_t>(first_example * N + i);
      const bool kept =
          rate == 0 || RandomBits(dropout.seed, dropout.site, position) >= DropoutThreshold(rate);
      const float value = x[static_cast<std::size_t>(i)];
      truth.push_back(kept ? value / (1.0 - static_cast<double>(rate)) : 0.0);
      naive.push_back(kept ? Stored(value * (1.0f / (1.0f - rate))) : 0.0f);
    }
    const std::vector<float> result = Read(y, B * N);
    ExpectAsGood("y", result, truth, naive);
    backend().ApplyDropout(x_in, x_in, B, N, dropout);
    ExpectSameBits("in place", result, Read(x_in, B * N));
  });
}

TEST_P(DropoutTest, CuttingTheBatchChangesNothing) {
  const auto& [B, N, rate, first_example] = shape();
  const Dropout whole{rate, 3, 4, first_example};
  std::vector<float> x = Random(B * N);
  Element *x_in = In(x), *y = Out(B * N), *parts = Out(B * N);
  backend().ApplyDropout(x_in, y, B, N, whole);
  for (int b = 0; b < B; ++b) {
    Dropout one = whole;
    one.first_example += b;
    backend().ApplyDropout(backend().Offset(x_in, b * N), backend().Offset(parts, b * N), 1, N, one);
  }
  ExpectSameBits("cut", Read(y, B * N), Read(parts, B * N));
}

HEADSWEEP_OP_SUITE(
    DropoutTest, DropoutCase,
    {{1, 1, 0.5f}, {7, 33, 0.1f, 5}, {2, 130, 0.9f}, {3, 20011, 0.25f, 100000}, {3, 33, 0}, {0, 33, 0.1f}});

}  // namespace
}  // namespace headsweep::testing
