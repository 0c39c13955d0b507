// The table of parameters: no holes, decaying ones first, every parameter named once.
#include "trainer/parameter_layout.h"

#include <gtest/gtest.h>

#include <set>

namespace headsweep {
namespace {

ModelShape SmallShape() {
  ModelShape shape;
  shape.vocabulary = 11;
  shape.length = 5;
  shape.embed = 6;
  shape.head_size = 4;
  shape.feed_forward = 7;
  shape.heads = {3, 0, 2};
  return shape;
}

TEST(ParameterLayout, ParametersFollowEachOtherWithoutHolesAndDecayingOnesFirst) {
  for (const bool tied : {true, false}) {
    for (const char* norm : {"pre", "post"}) {
      for (const char* positions : {"learned", "sinusoidal"}) {
        ModelShape shape = SmallShape();
        shape.tied = tied;
        shape.norm = norm;
        shape.positions = positions;
        const ParameterLayout layout(shape);
        std::int64_t offset = 0;
        std::set<std::string> names;
        for (const Parameter& parameter : layout.parameters()) {
          EXPECT_EQ(parameter.offset, offset) << parameter.name;
          if (parameter.count > 0) {
            EXPECT_EQ(parameter.decays, offset < layout.decaying_size()) << parameter.name;
          }
          EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
          std::int64_t product = 1;
          for (const std::int64_t dim : parameter.dims) product *= dim;
          EXPECT_EQ(parameter.count, product) << parameter.name;
          offset += parameter.count;
        }
        EXPECT_EQ(layout.size(), offset);
        EXPECT_EQ(names.count("output.weight"), tied ? 0u : 1u);
        EXPECT_EQ(names.count("final_norm.weight"), shape.norm == "pre" ? 1u : 0u);
        EXPECT_EQ(names.count("position_embedding.weight"), shape.positions == "learned" ? 1u : 0u);
      }
    }
  }
}

TEST(ParameterLayout, CountsEveryWeightOfAKnownModel) {
  // 6 layers, C 256, 8 heads of 32, F 1024, T 128, V 8192, tied, pre-norm: counted by hand.
  ModelShape shape;
  shape.vocabulary = 8192;
  shape.length = 128;
  shape.embed = 256;
  shape.head_size = 32;
  shape.feed_forward = 1024;
  shape.heads.assign(6, 8);
  const std::int64_t layer =
      3 * 256 * 256 + 3 * 256 + 256 * 256 + 256 + 2 * 256 * 1024 + 1024 + 256 + 4 * 256;
  EXPECT_EQ(ParameterLayout(shape).size(), 8192 * 256 + 128 * 256 + 6 * layer + 2 * 256);
}

TEST(ParameterLayout, ALayerWithoutHeadsKeepsItsOutputBias) {
  const ParameterLayout layout(SmallShape());
  EXPECT_EQ(layout.Find("layers.1.attention.query_key_value.weight").count, 0);
  EXPECT_EQ(layout.Find("layers.1.attention.output.weight").count, 0);
  EXPECT_EQ(layout.Find("layers.1.attention.output.bias").count, 6);
  EXPECT_EQ(layout.Find("layers.2.attention.query_key_value.weight").dims,
            (std::vector<std::int64_t>{3, 2, 4, 6}));
}

TEST(HeadIndex, FlatIndicesSkipLayersWithoutHeadsAndComeBack) {
  const ModelShape shape = SmallShape();
  ASSERT_EQ(shape.total_heads(), 5);
  EXPECT_EQ(HeadAt(shape, 3), (HeadIndex{2, 0}));
  for (int flat = 0; flat < shape.total_heads(); ++flat)
    EXPECT_EQ(FlatHead(shape, HeadAt(shape, flat)), flat);
}

}  // namespace
}  // namespace headsweep
