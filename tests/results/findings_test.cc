#include "results/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "results/stage_file.h"
#include "tests/results/synthetic.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;
using testing::MakeSweep;
using ::testing::SizeIs;
using testing::SyntheticSweep;
using testing::TempDir;

// A sweep of the given axes whose trials have the perplexities that value(point) gives.
template <class Value>
CollectInput MakeTrials(const std::vector<GridAxis>& axes, const std::string& directory, Value value) {
  CollectInput input{.sweep_name = "made up", .sweep_toml = "", .axes = axes, .stages = {}, .attempts = {}};
  std::vector<int> point(axes.size(), 0);
  for (int number = 0;; ++number) {
    CollectStage stage;
    stage.id = fmt::format("trial{}", number);
    stage.kind = "train";
    stage.state = "finished";
    stage.points = {point};
    StageSummary summary;
    summary.test_perplexity = value(point);
    stage.result_path = directory + "/" + stage.id + ".h5";
    Provenance provenance;
    provenance.stage_id = stage.id;
    WriteStageFile(stage.result_path, provenance, StageTables{}, summary);
    input.stages.push_back(stage);
    std::size_t a = 0;
    while (a < axes.size() && ++point[a] == static_cast<int>(axes[a].values.size())) point[a++] = 0;
    if (a == axes.size()) return input;
  }
}

GridAxis Integers(const std::string& name, std::vector<std::int64_t> values) {
  GridAxis axis{name, "model." + name, {}};
  for (const std::int64_t value : values) axis.values.emplace_back(value);
  return axis;
}

TEST(Findings, QualityIsTheMeanOverSeedsAtEachPoint) {
  TempDir dir;
  const std::vector<GridAxis> axes = {Integers("seed", {1, 2, 3}), Integers("heads", {2, 8}),
                                      Integers("head_size", {16, 32})};
  Collect(MakeTrials(axes, dir.path(),
                     [](const std::vector<int>& p) { return 100.0 + p[0] + 10 * p[1] - 50 * p[2]; }),
          dir / "r.h5");
  const ResultsFile results(dir / "r.h5");
  const Quality quality = FindQuality(results);
  EXPECT_EQ(quality.x_name, "heads");
  EXPECT_TRUE(quality.x_is_number);
  ASSERT_THAT(quality.lines, SizeIs(2));
  EXPECT_EQ(quality.lines[1].label, "head_size = 32");
  ASSERT_THAT(quality.lines[1].points, SizeIs(2));
  const QualityPoint& point = quality.lines[1].points[1];
  EXPECT_EQ(point.x, 8);
  EXPECT_EQ(point.perplexity.n, 3);
  EXPECT_DOUBLE_EQ(point.perplexity.mean, 61);
  EXPECT_NEAR(point.perplexity.half_width, 4.30265273 / std::sqrt(3.0), 1e-7);
  const auto answer = Answer(results, quality, FindPruning(results, quality));
  EXPECT_THAT(answer[0],
              HasSubstr("Best of 4: 2 heads, head_size = 32, test perplexity 51.00 ± 2.48 per word"));
  EXPECT_THAT(answer[0],
              HasSubstr("Next: 8 heads, head_size = 32, 61.00 ± 2.48; the intervals do not overlap"));
  EXPECT_THAT(answer[2],
              HasSubstr("With head_size = 32, perplexity is lowest at heads = 2 and 19.6 % higher at 8"));
}

TEST(Findings, NoTrendIsClaimedWhereIntervalsOverlap) {
  TempDir dir;
  const std::vector<GridAxis> axes = {Integers("seed", {1, 2}), Integers("heads", {1, 2})};
  Collect(MakeTrials(axes, dir.path(), [](const std::vector<int>& p) { return 100.0 + 4 * p[0] - p[1]; }),
          dir / "r.h5");
  const ResultsFile results(dir / "r.h5");
  EXPECT_THAT(Answer(results, FindQuality(results), {})[1],
              HasSubstr("Perplexity differs by 1.0 % at most (lowest at heads = 2, highest at 1), and these "
                        "two intervals overlap."));
}

TEST(Findings, OneSeedHasNoInterval) {
  TempDir dir;
  Collect(MakeTrials({Integers("heads", {1, 2})}, dir.path(),
                     [](const std::vector<int>& p) { return 50.0 - p[0]; }),
          dir / "r.h5");
  const ResultsFile results(dir / "r.h5");
  const Quality quality = FindQuality(results);
  ASSERT_THAT(quality.lines, SizeIs(1));
  EXPECT_EQ(quality.lines[0].label, "");
  EXPECT_EQ(FormatEstimate(quality.lines[0].points[1].perplexity, 1), "49.0");
  EXPECT_THAT(Answer(results, quality, {})[0], HasSubstr("one seed, so no interval"));
  EXPECT_THAT(Answer(results, quality, {})[1],
              HasSubstr("falls all the way to the largest value, heads = 2: 2.0 % lower than at 1"));
}

TEST(Findings, SweepWithoutAxesHasOnePoint) {
  TempDir dir;
  Collect(MakeTrials({}, dir.path(), [](const std::vector<int>&) { return 42.0; }), dir / "r.h5");
  const ResultsFile results(dir / "r.h5");
  const Quality quality = FindQuality(results);
  ASSERT_THAT(quality.lines, SizeIs(1));
  EXPECT_DOUBLE_EQ(quality.lines[0].points.at(0).perplexity.mean, 42);
  EXPECT_THAT(Answer(results, quality, {})[0], HasSubstr("the only configuration"));
}

TEST(Findings, PruningCountsEachModelOnceAndFindsTheLastFractionWithinFivePercent) {
  TempDir dir;
  CollectInput input = MakeTrials({Integers("heads", {4}), Integers("seed", {1, 2})}, dir.path(),
                                  [](const std::vector<int>&) { return 100.0; });
  const auto add = [&](const std::string& parent, const std::string& order, std::uint64_t seed,
                       std::vector<double> perplexities) {
    CollectStage stage;
    stage.id = fmt::format("p{}", input.stages.size());
    stage.kind = "prune";
    stage.parent = parent;
    stage.state = "finished";
    stage.config_json = fmt::format(R"({{"prune":{{"order":"{}","seed":{}}}}})", order, seed);
    stage.result_path = dir / (stage.id + ".h5");
    StageTables tables;
    for (std::size_t i = 0; i < perplexities.size(); ++i) {
      PruningRow row;
      row.order = order;
      row.order_seed = seed;
      row.fraction = 0.1 * static_cast<double>(i);
      row.heads_removed = static_cast<std::int64_t>(i);
      row.heads_left = 10 - row.heads_removed;
      row.perplexity_per_word = perplexities[i];
      row.loss_increase = std::log(perplexities[i] / perplexities[0]);
      row.seconds = 1.0 / static_cast<double>(i + 1);
      tables.pruning.push_back(row);
    }
    Provenance provenance;
    provenance.stage_id = stage.id;
    WriteStageFile(stage.result_path, provenance, tables, StageSummary{});
    input.stages.push_back(stage);
  };
  add("trial0", "random", 1, {100, 104, 104, 120, 101});  // beyond 120 it is over, whatever comes later
  add("trial0", "random", 2, {100, 106, 130, 140, 150});
  add("trial1", "random", 1, {200, 202, 204, 206, 208});
  Collect(input, dir / "r.h5");
  const ResultsFile results(dir / "r.h5");
  const Pruning pruning = FindPruning(results, FindQuality(results));
  ASSERT_THAT(pruning.pooled, SizeIs(1));
  const PruningCurve& curve = pruning.pooled[0];
  EXPECT_EQ(curve.models, 2);
  EXPECT_EQ(curve.heads, 10);
  EXPECT_NEAR(curve.removable.mean, ((0.2 + 0.0) / 2 + 0.4) / 2, 1e-9);
  EXPECT_EQ(FormatRemovable(curve), "25 % (10–40)");
  ASSERT_THAT(curve.points, SizeIs(5));
  EXPECT_EQ(curve.points[1].ratio.n, 2);
  EXPECT_NEAR(curve.points[1].ratio.mean, ((1.04 + 1.06) / 2 + 1.01) / 2, 1e-12);
  EXPECT_NEAR(curve.points[4].speed.mean, 5, 1e-12);
  ASSERT_THAT(pruning.groups, SizeIs(1));
  EXPECT_EQ(pruning.groups[0].group, "4 heads");
}

TEST(Findings, OrdersThatDifferInASettingAreNotMixed) {
  TempDir dir;
  SyntheticSweep sweep;
  sweep.heads = {4};
  sweep.head_sizes = {std::int64_t{32}};
  sweep.failures = false;
  sweep.orders = {"importance"};
  CollectInput input = MakeSweep(sweep, dir / "stages");
  CollectInput other = MakeSweep(sweep, dir / "other");
  for (CollectStage& stage : other.stages) {
    if (stage.kind == "train") continue;
    const auto at = stage.config_json.find("example");
    stage.config_json.replace(at, 7, "token");
    const StageFile file = ReadStageFile(stage.result_path);
    Provenance provenance = file.provenance;
    provenance.stage_id = stage.id = "x" + stage.id.substr(1);
    WriteStageFile(stage.result_path, provenance, file.tables, file.summary);
    input.stages.push_back(stage);
  }
  Collect(input, dir / "r.h5");
  const ResultsFile results(dir / "r.h5");
  const Pruning pruning = FindPruning(results, FindQuality(results));
  ASSERT_THAT(pruning.pooled, SizeIs(2));
  EXPECT_EQ(pruning.pooled[0].order, "importance, per=example");
  EXPECT_EQ(pruning.pooled[1].order, "importance, per=token");
}

TEST(Summary, ShowsQualityAndPruning) {
  TempDir dir;
  Collect(MakeSweep(SyntheticSweep{}, dir / "stages"), dir / "r.h5");
  const std::string text = FormatSummary(dir / "r.h5");
  std::printf("%s", text.c_str());
  EXPECT_THAT(text, HasSubstr("fixed-head-size: 21 trials (1 diverged, 1 failed, 18 finished, 1 waiting)"));
  EXPECT_THAT(text, HasSubstr("head_size = embed / heads"));
  EXPECT_THAT(text, HasSubstr("importance"));
  EXPECT_THAT(text, HasSubstr("±"));
}

TEST(ResultsFile, ForeignFilesAreRefused) {
  TempDir dir;
  FileSystem::Real().WriteFile(dir / "r.h5", "not HDF5");
  EXPECT_THROW(ResultsFile(dir / "r.h5"), IoError);
  EXPECT_THROW(ResultsFile(dir / "absent.h5"), IoError);
  WriteStageFile(dir / "s.h5", Provenance{}, StageTables{}, StageSummary{});
  try {
    ResultsFile results(dir / "s.h5");
    ADD_FAILURE() << "was read";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("not the results of a sweep"));
  }
}

}  // namespace
}  // namespace headsweep
