// Stages and the grid that results are laid out on.
#include "sweeps/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/sweeps/sweep_support.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using testing::kTop;
using testing::PlanOf;

std::set<std::string> Ids(const Plan& plan) {
  std::set<std::string> ids;
  for (const PlanStage& stage : plan.stages) ids.insert(plan.Id(stage));
  EXPECT_EQ(ids.size(), plan.stages.size());
  EXPECT_EQ(ids.count(""), 0u);
  return ids;
}

std::string Base(const std::string& heads, const std::string& seeds, const std::string& orders) {
  return kTop + "[grid]\nheads = " + heads + "\nseed = " + seeds + "\n[prune]\norder = " + orders +
         "\nseeds = 2\n";
}

TEST(Plan, GrowingASweepOnlyAddsStages) {
  const auto before = Ids(PlanOf(Base("[1, 2]", "{ count = 2 }", "[\"importance\", \"random\"]")));
  EXPECT_EQ(before.size(), 4u * (1 + 3));
  for (const std::string& grown : {Base("[1, 2, 4]", "{ count = 2 }", "[\"importance\", \"random\"]"),
                                   Base("[4, 2, 1]", "{ count = 3 }", "[\"importance\", \"random\"]"),
                                   Base("[1, 2]", "[2, 1]", "[\"ablation\", \"random\", \"importance\"]")}) {
    const auto after = Ids(PlanOf(grown));
    EXPECT_GT(after.size(), before.size());
    EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end())) << grown;
  }
}

TEST(Plan, AnotherNameRunSectionOrLayoutKeepsTheIds) {
  const auto ids = Ids(PlanOf(Base("[1, 2]", "{ count = 2 }", "[\"importance\"]")));
  EXPECT_EQ(Ids(PlanOf("# other\nname = \"other\"\nrun = { devices = 2, retries = 5 }\nprune.seeds = "
                       "2\nprune.order = \"importance\"\n"
                       "[train]\nmicro_batch = 8\ncheckpoint_every = 10\n"
                       "[grid]\nseed = [1, 2]\nmodel.heads = [1.0, \"1 + 1\"]\n")),
            ids);
}

TEST(Plan, DuplicatesAreMergedWithAWarning) {
  const Plan plan =
      PlanOf(kTop + "[grid]\nheads = [2, 4]\nhead_size = [\"embed / heads\", 32]\nseed = { count = 2 }\n");
  EXPECT_EQ(plan.points, 8u);
  EXPECT_EQ(plan.merged, 2u);
  EXPECT_EQ(plan.trials, 6u);
  ASSERT_EQ(plan.warnings.size(), 1u);
  EXPECT_EQ(ToString(plan.warnings[0]),
            "s.toml:4:31: (heads = 4, head_size = embed / heads, seed = 1) and (heads = 4, head_size = 32, "
            "seed = 1) are the "
            "same trial; it runs once (2 points like these)");
  EXPECT_THAT(plan.Points(plan.stages[4]), ElementsAre(ElementsAre(1, 0, 0), ElementsAre(1, 1, 0)));
}

TEST(Plan, CountingKeepsNoStagesAndAgrees) {
  const Sweep sweep =
      Sweep::Parse(kTop +
                       "[grid]\nheads = [2, 4]\nhead_size = [\"embed / heads\", 32]\nseed = { count = 2 }\n"
                       "[[exclude]]\nwhen = \"seed == 2 && heads == 2\"\n[[include]]\nheads = 8\n",
                   "s.toml");
  const Plan plan = MakePlan(sweep, {}), counts = CountPlan(sweep);
  EXPECT_EQ(counts.stages.size(), 0u);
  EXPECT_EQ(counts.trials, plan.trials);
  EXPECT_EQ(counts.trials, counts.points - counts.excluded - counts.merged);
  EXPECT_EQ(counts.trials, plan.stages.size());
  EXPECT_EQ(counts.axes[0].values, plan.axes[0].values);
  EXPECT_EQ(counts.warnings.size(), plan.warnings.size());
}

TEST(Plan, EveryPointOfTheGridIsOfExactlyOneStage) {
  const Plan plan =
      PlanOf(kTop +
             "[grid]\nheads = [1, 2, 4, 8]\nhead_size = [\"embed / heads\", 32]\nseed = { count = 2 }\n"
             "[[exclude]]\nwhen = \"heads == 8 && seed == 2\"\n");
  std::set<std::vector<int>> points;
  std::size_t count = 0;
  for (const PlanStage& stage : plan.stages) {
    const std::vector<std::vector<int>> own = plan.Points(stage);
    points.insert(own.begin(), own.end());
    count += own.size();
  }
  EXPECT_EQ(count, 14u);
  EXPECT_EQ(points.size(), count);
  EXPECT_EQ(plan.excluded, 2u);
}

TEST(Plan, AxesKeepTheWrittenForm) {
  const Plan plan = PlanOf(kTop +
                           "[model]\nlayers = 2\n[grid]\nhead_size = [\"embed / 4\", 16]\nheads = [4, [1, "
                           "7]]\ndropout = [0, 0.1]\n"
                           "tied = [true, false]\nnorm = [\"post\"]\n");
  ASSERT_EQ(plan.axes.size(), 5u);
  EXPECT_EQ(plan.axes[0].name, "head_size");
  EXPECT_EQ(plan.axes[0].key, "model.head_size");
  EXPECT_THAT(plan.axes[0].values, ElementsAre(AxisValue("embed / 4"), AxisValue(std::int64_t{16})));
  EXPECT_THAT(plan.axes[1].values, ElementsAre(AxisValue(std::int64_t{4}), AxisValue("[1, 7]")));
  EXPECT_THAT(plan.axes[2].values, ElementsAre(AxisValue(0.0), AxisValue(0.1)));
  EXPECT_THAT(plan.axes[3].values, ElementsAre(AxisValue("true"), AxisValue("false")));
}

TEST(Plan, AZipIsOneAxisWithDistinctLabels) {
  const Plan one = PlanOf(kTop + "[[zip]]\nlayers = [1, 1, 2]\nembed = [64, 128, 256]\n");
  ASSERT_EQ(one.axes.size(), 1u);
  EXPECT_EQ(one.axes[0].name, "embed");
  EXPECT_THAT(one.axes[0].values, ElementsAre(AxisValue(std::int64_t{64}), AxisValue(std::int64_t{128}),
                                              AxisValue(std::int64_t{256})));
  const Plan both = PlanOf(kTop + "[[zip]]\nlayers = [1, 1, 2]\nembed = [64, 128, 64]\n");
  EXPECT_THAT(both.axes[0].values, ElementsAre(AxisValue("1, 64"), AxisValue("1, 128"), AxisValue("2, 64")));
}

TEST(Plan, IncludedValuesExtendTheAxes) {
  const Plan plan =
      PlanOf(kTop + "[grid]\nheads = [1, 2]\nhead_size = [\"embed / heads\", 32]\n[[include]]\nheads = 64\n");
  EXPECT_THAT(plan.axes[0].values, ElementsAre(AxisValue(std::int64_t{1}), AxisValue(std::int64_t{2}),
                                               AxisValue(std::int64_t{64})));
  EXPECT_EQ(plan.axes[1].values.size(), 2u) << "the default is written like the first value";
  EXPECT_THAT(plan.Points(plan.stages.back()), ElementsAre(ElementsAre(2, 0)));
}

TEST(Plan, PruneStagesFollowTheirTrainStage) {
  const Plan plan = PlanOf(Base("[1, 2]", "1", "[\"importance\", \"random\", \"magnitude\"]"));
  ASSERT_EQ(plan.stages.size(), 2u * 5);
  std::vector<std::string> described;
  for (std::size_t i = 5; i < 10; ++i) {
    const PlanStage& stage = plan.stages[i];
    if (stage.parent < 0) continue;
    EXPECT_EQ(stage.parent, 5);
    EXPECT_EQ(plan.Config(stage).kind, StageKind::kPrune);
    EXPECT_EQ(plan.Config(stage).parent, plan.Id(plan.stages[5]));
    EXPECT_EQ(plan.Config(stage).id, ComputeStageId(plan.Config(stage)));
    EXPECT_TRUE(plan.Points(stage).empty());
    described.push_back(plan.Config(stage).prune.order + " " + std::to_string(plan.Config(stage).prune.seed));
  }
  EXPECT_THAT(described, ElementsAre("importance 0", "random 1", "random 2", "magnitude 0"));
}

TEST(Plan, FingerprintsAreAskedOncePerCorpusAndVocabulary) {
  int calls = 0;
  const Sweep sweep = Sweep::Parse(
      kTop + "[grid]\ncorpus = [\"kjv\", \"austen\"]\nvocabulary = [500, 600]\nheads = [1, 2, 4]\n",
      "s.toml");
  const Plan plan = MakePlan(sweep, [&](const TaskConfig& task) {
    ++calls;
    return task.corpus + std::to_string(task.vocabulary);
  });
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(plan.trials, 12u);
  EXPECT_EQ(plan.Config(plan.stages[0]).task.fingerprint, "kjv500");
}

TEST(Plan, WithoutFingerprintsCorporaStillDiffer) {
  const Sweep sweep = Sweep::Parse(kTop + "[grid]\ncorpus = [\"kjv\", \"austen\"]\n", "s.toml");
  const Plan plan = MakePlan(sweep, {});
  EXPECT_EQ(plan.trials, 2u);
  EXPECT_EQ(plan.Id(plan.stages[0]), "");
}

TEST(Plan, ConfigsReadBackFromTheirConfigToml) {
  const Plan plan = PlanOf(Base("[1, 2]", "{ count = 2 }", "[\"importance\", \"random\"]"));
  for (const PlanStage& stage : plan.stages) {
    const StageConfig back = ParseStageConfig(FormatStageConfig(plan.Config(stage)), "config.toml");
    EXPECT_EQ(ComputeStageId(back), plan.Config(stage).id);
  }
}

}  // namespace
}  // namespace headsweep
