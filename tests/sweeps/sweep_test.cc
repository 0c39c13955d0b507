// What the language means: product, zip, include, exclude, expressions, seeds.
#include "sweeps/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sweeps/sweep_support.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using testing::kTop;
using testing::PointsOf;

TEST(Sweep, GridIsAProductWithTheLastAxisFastest) {
  EXPECT_THAT(PointsOf(kTop + "[grid]\nheads = [1, 2]\nseed = { count = 2 }\n"),
              ElementsAre("heads = 1, seed = 1", "heads = 1, seed = 2", "heads = 2, seed = 1",
                          "heads = 2, seed = 2"));
}

TEST(Sweep, WithoutAxesThereIsOnePoint) { EXPECT_THAT(PointsOf(kTop), ElementsAre("the only point")); }

TEST(Sweep, KeysMayBeQuotedNestedOrShort) {
  for (const char* grid : {"[grid]\n\"model.heads\" = [1, 2]\n", "[grid]\nmodel.heads = [1, 2]\n",
                           "[grid.model]\nheads = [1, 2]\n", "[grid]\nheads = [1, 2]\n"}) {
    EXPECT_THAT(PointsOf(kTop + grid), ElementsAre("heads = 1", "heads = 2")) << grid;
  }
}

TEST(Sweep, SeedsAreACountAListOrANumber) {
  EXPECT_THAT(PointsOf(kTop + "[grid]\nseed = { values = [7, 3] }\n"), ElementsAre("seed = 7", "seed = 3"));
  EXPECT_THAT(PointsOf(kTop + "[grid]\nseed = [7, 3]\n"), ElementsAre("seed = 7", "seed = 3"));
  EXPECT_THAT(PointsOf(kTop + "[grid]\nseed = 9\n"), ElementsAre("seed = 9"));
  EXPECT_THAT(PointsOf("seed = 40\n" + kTop + "[grid]\nseed = { count = 2 }\n"),
              ElementsAre("seed = 40", "seed = 41"));
}

TEST(Sweep, ZippedAxesMoveTogether) {
  const Sweep sweep = Sweep::Parse(
      kTop + "[[zip]]\nembed = [128, 256]\nlearning_rate = [1e-3, 5e-4]\n[grid]\nlayers = [1, 2]\n",
      "s.toml");
  EXPECT_EQ(sweep.point_count(), 4u);
  const auto last = sweep.PointAt(3);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->model.embed, 256);
  EXPECT_EQ(last->train.learning_rate, 5e-4);
  EXPECT_EQ(last->model.layers, 2);
  EXPECT_EQ(last->model.heads, (std::vector<int>{4, 4}));
}

TEST(Sweep, ExpressionsSeeTheValuesOfTheirPoint) {
  const Sweep sweep = Sweep::Parse(
      kTop +
          "[model]\nfeed_forward = \"2 * embed\"\n[grid]\nembed = [64, \"heads * 40\"]\nheads = [2, 4]\n"
          "head_size = [\"embed / heads\", \"2 * embed / heads\"]\n",
      "s.toml");
  // embed = "heads * 40", heads = 4, head_size = "2 * embed / heads"
  const auto point = sweep.PointAt(7);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->model.embed, 160);
  EXPECT_EQ(point->model.head_size, 80);
  EXPECT_EQ(point->model.feed_forward, 320);
  EXPECT_EQ(sweep.DescribePoint(7), "embed = heads * 40, heads = 4, head_size = 2 * embed / heads");
}

TEST(Sweep, HeadsMayDifferFromLayerToLayer) {
  const Sweep sweep =
      Sweep::Parse(kTop + "[model]\nhead_size = 16\n[grid]\nheads = [4, [1, 7], [8, 0]]\n", "s.toml");
  EXPECT_EQ(sweep.PointAt(1)->model.heads, (std::vector<int>{1, 7}));
  EXPECT_EQ(sweep.DescribePoint(2), "heads = [8, 0]");
}

TEST(Sweep, ExcludeDropsPointsByCondition) {
  EXPECT_THAT(PointsOf(kTop + "[grid]\nheads = [1, 2, 4]\nhead_size = [32, 64]\n"
                              "[[exclude]]\nwhen = \"model.heads * model.head_size > 128\"\n"
                              "[[exclude]]\nwhen = \"heads == 1 && head_size == 32\"\n"),
              ElementsAre("heads = 1, head_size = 64", "heads = 2, head_size = 32",
                          "heads = 2, head_size = 64", "heads = 4, head_size = 32"));
}

TEST(Sweep, ExcludedPointsNeedNotBeValid) {
  EXPECT_THAT(PointsOf(kTop + "[grid]\nheads = [2, 3, 4]\n[[exclude]]\nwhen = \"embed % heads != 0\"\n"),
              ElementsAre("heads = 2", "heads = 4"));
}

TEST(Sweep, IncludeAddsPointsWithTheValuesOutsideTheGrid) {
  const std::string text = kTop +
                           "[model]\nhead_size = 16\n[grid]\nheads = [1, 2]\nhead_size = [32, 64]\n"
                           "[[include]]\nheads = 64\n[[include]]\nheads = [3, 5]\nseed = { count = 2 }\n";
  EXPECT_THAT(
      PointsOf(text),
      ElementsAre("heads = 1, head_size = 32", "heads = 1, head_size = 64", "heads = 2, head_size = 32",
                  "heads = 2, head_size = 64", "heads = 64, head_size = 16",
                  "heads = 3, head_size = 16, seed = 1", "heads = 3, head_size = 16, seed = 2",
                  "heads = 5, head_size = 16, seed = 1", "heads = 5, head_size = 16, seed = 2"));
}

TEST(Sweep, IncludedPointsAreNotExcluded) {
  EXPECT_THAT(
      PointsOf(kTop + "[grid]\nheads = [1, 2]\n[[exclude]]\nwhen = \"heads > 1\"\n[[include]]\nheads = 8\n"),
      ElementsAre("heads = 1", "heads = 8"));
}

TEST(Sweep, WholeNumbersMayBeWrittenAsFloats) {
  const Sweep sweep = Sweep::Parse(kTop + "[train]\nsteps = 1e3\n[grid]\nheads = [2.0, 4]\n", "s.toml");
  EXPECT_EQ(sweep.PointAt(0)->train.steps, 1000);
  EXPECT_EQ(sweep.DescribePoint(0), "heads = 2");
}

TEST(Sweep, TheSameValueTwiceOnAnAxisIsToldAndDropped) {
  const Sweep sweep = Sweep::Parse(kTop + "[grid]\nheads = [2, 4, 2.0]\n", "s.toml");
  EXPECT_EQ(sweep.point_count(), 2u);
  ASSERT_EQ(sweep.warnings().size(), 1u);
  EXPECT_EQ(ToString(sweep.warnings()[0]), "s.toml:3:16: model.heads = 2 is on this axis already");
}

TEST(Sweep, ACorpusWithASlashIsSeenFromTheSweepFile) {
  const std::string text = kTop + "[task]\ncorpus = \"texts/../my.txt\"\n";
  EXPECT_EQ(Sweep::Parse(text, "/home/user/sweeps/s.toml").PointAt(0)->task.corpus,
            "/home/user/sweeps/my.txt");
  EXPECT_EQ(Sweep::Parse(kTop, "/home/user/s.toml").PointAt(0)->task.corpus, "kjv");
}

TEST(Sweep, NamesMayHaveOddCharacters) {
  for (const char* name : {"größe", "注意 heads", "a b+c=d,e;f", "x.y", "emoji 🧠"}) {
    EXPECT_EQ(Sweep::Parse("name = \"" + std::string(name) + "\"\n", "s.toml").name(), name);
  }
  for (const char* name : {"", ".", "..", ".hidden", "-f", "a/b", "a\\nb", "a\\u0000b"}) {
    EXPECT_THAT(testing::ComplaintsOf("name = \"" + std::string(name) + "\"\n"),
                ::testing::HasSubstr("s.toml:1:8: name"))
        << name;
  }
}

}  // namespace
}  // namespace headsweep
