// Embeddings against their formula; the same token in many rows, so that gradients must add up.
#include "tests/kernels/op_test.h"

namespace headsweep::testing {
namespace {

struct EmbeddingCase {
  int B, T, C, V;
  bool positions = true;
  float scale = 1;
};
std::ostream& operator<<(std::ostream& out, const EmbeddingCase& c) {
  return out << "B" << c.B << " T" << c.T << " C" << c.C << " V" << c.V << (c.positions ? " positions" : "")
             << " scale " << c.scale;
}

class EmbeddingTest : public OpTest<EmbeddingCase> {
 protected:
  template <class Real>
  std::vector<Real> Formula(const std::vector<Real>& table, const std::vector<Real>& positions) const {
    const auto& [B, T, C, V, with_positions, scale] = shape();
    std::vector<Real> out;
    for (int r = 0; r < B * T; ++r) {
      for (int c = 0; c < C; ++c) {
        const auto token = static_cast<std::size_t>(tokens_[static_cast<std::size_t>(r)] * C + c);
        out.push_back(Stored(Constant<Real>(static_cast<double>(scale)) * table[token]));
        if (with_positions)
          out.back() = Stored(out.back() + positions[static_cast<std::size_t>(r % T * C + c)]);
      }
    }
    return out;
  }
  void DrawTokens() {
    tokens_.clear();
    for (int r = 0; r < shape().B * shape().T; ++r) tokens_.push_back(RandomInt(0, shape().V - 1));
  }

  std::vector<std::int32_t> tokens_;
};

TEST_P(EmbeddingTest, ForwardMatchesTheFormula) {
  Measure([&] {
    const auto& [B, T, C, V, positions, scale] = shape();
    DrawTokens();
    std::vector<float> table = Random(static_cast<std::int64_t>(V) * C),
                       places = Random(static_cast<std::int64_t>(T + 3) * C);
    const Element* table_in = In(table);
    const Element* places_in = positions ? In(places) : nullptr;
    Element* out = Out(static_cast<std::int64_t>(B) * T * C);
    backend().EmbeddingForward(InInts(tokens_), table_in, places_in, out, B, T, C, scale);
    ExpectAsGood("out", Read(out, static_cast<std::int64_t>(B) * T * C),
                 Formula(ToDouble(table), ToDouble(places)), Formula(table, places));
  });
}

TEST_P(EmbeddingTest, BackwardAddsTheSlopesToWhatIsThere) {
  Measure([&] {
    const auto& [B, T, C, V, positions, scale] = shape();
    DrawTokens();
    const std::int64_t table_count = static_cast<std::int64_t>(V) * C,
                       place_count = static_cast<std::int64_t>(T) * C;
    const std::vector<float> table = Random(table_count), places = Random(place_count);
    std::vector<float> weights = Random(static_cast<std::int64_t>(B) * T * C);
    const Element* dout = In(weights);
    const std::vector<float> before = Random(table_count), places_before = Random(place_count);
    std::vector<float> results[2];
    for (std::vector<float>& result : results) {
      float* d_table = InFloats(before);
      float* d_places = positions ? InFloats(places_before) : nullptr;
      backend().EmbeddingBackward(InInts(tokens_), dout, d_table, d_places, B, T, C, V, scale);
      result = Read(d_table, table_count);
      if (!positions) continue;
      const std::vector<float> values = Read(d_places, place_count);
      result.insert(result.end(), values.begin(), values.end());
    }
    ExpectSameBits("gradients", results[0], results[1]);

    std::vector<float> result(results[0].begin(), results[0].begin() + table_count);
    ExpectGradient(
        "d_token_table", result, table,
        [&](const auto& x) {
          using Real = typename std::decay_t<decltype(x)>::value_type;
          return WeightedSumOf(weights, Formula(x, As<Real>(places)));
        },
        before);
    if (!positions) return;
    result.assign(results[0].begin() + table_count, results[0].end());
    ExpectGradient(
        "d_position_table", result, places,
        [&](const auto& x) {
          using Real = typename std::decay_t<decltype(x)>::value_type;
          return WeightedSumOf(weights, Formula(As<Real>(table), x));
        },
        places_before);
  });
}

HEADSWEEP_OP_SUITE(
    EmbeddingTest, EmbeddingCase,
    {{1, 1, 1, 1},
     {2, 7, 33, 5, true, 5.7f},
     {3, 33, 130, 17},
     {2, 33, 7, 40, false, 2},
     {9, 130, 33, 200},  // more rows of the table than a CUDA block owns, more tokens than it reads at a time
     {0, 5, 4, 3}});

}  // namespace
}  // namespace headsweep::testing
