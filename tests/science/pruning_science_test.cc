// Michel et al. 2019, section 4.1, on a small language model of the King James Bible: importance is worth
// something.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cluster/base/errors.h"
#include "tests/support/corpora.h"
#include "tests/trainer/stage_workspace.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

using testing::CorpusFile;
using testing::PruneStageOf;
using testing::StageWorkspace;

// The Bible as a file, or by its known name where the program `bible` is installed; "" where there is none.
std::string KjvCorpus() {
  const std::string file = CorpusFile("lm-kjv/kjv.txt");
  if (!file.empty()) return file;
  try {
    CorpusFingerprint({"kjv", 2000});
    return "kjv";
  } catch (const ConfigError&) {
    return "";
  }
}

double IncreaseAtHalf(const StageTables& tables) {
  for (const PruningRow& row : tables.pruning)
    if (row.fraction == 0.5) return row.loss_increase;
  ADD_FAILURE() << "no point at one half";
  return 0;
}

// Spearman's rank correlation of two scores of the same heads.
double RankCorrelation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto rank = [](const std::vector<double>& x, std::size_t i) {
    return std::count_if(x.begin(), x.end(), [&](double other) { return other < x[i]; });
  };
  const auto n = static_cast<double>(a.size());
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto difference = static_cast<double>(rank(a, i) - rank(b, i));
    squares += difference * difference;
  }
  return 1 - 6 * squares / (n * (n * n - 1));
}

// Scores as they are, not divided by the norm of their layer: in a small, briefly trained model the second
// layer hardly matters, and that is just what the division hides (measured over three such models: half the
// heads gone costs 0.03 nats by importance as it is, 0.3 to 1.1 divided, 0.6 to 0.8 at random).
TEST(PruningScience, HalfTheHeadsGoneByImportanceCostLessThanAtRandom) {
  const std::string corpus = KjvCorpus();
  if (corpus.empty()) GTEST_SKIP() << "no King James Bible: set HEADSWEEP_CORPORA or install bible-kjv";
  StageWorkspace workspace(corpus, 2000);
  StageConfig train;
  train.task.corpus = corpus;
  train.task.fingerprint = workspace.corpus().fingerprint;
  train.task.vocabulary = 2000;
  train.task.length = 64;
  train.model = {.layers = 2, .embed = 64, .heads = {8, 8}, .head_size = 16, .feed_forward = 128};
  train.train.steps = 400;
  train.train.batch = 16;
  train.train.learning_rate = 3e-3;
  train.train.evaluate_every = 400;
  train.train.evaluate_examples = 64;
  train.train.checkpoint_every = 400;
  train.prune.step = 0.25;
  train.prune.normalize = "none";
  train.prune.score_examples = 128;
  train.prune.evaluate_examples = 128;
  train.id = ComputeStageId(train);
  ASSERT_EQ(workspace.Run(train).outcome, control::kFinished);

  const auto prune = [&](const std::string& order, std::uint64_t seed) {
    const StageConfig stage = PruneStageOf(train, order, seed);
    EXPECT_EQ(workspace.Run(stage).outcome, control::kFinished);
    const StageTables tables = workspace.Result(stage).tables;
    std::printf("%-12s seed %llu: loss + %.4f with half the heads, + %.4f without any\n", order.c_str(),
                static_cast<unsigned long long>(seed), IncreaseAtHalf(tables),
                tables.pruning.back().loss_increase);
    return tables;
  };
  constexpr int kSeeds = 5;
  double random = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) random += IncreaseAtHalf(prune("random", seed)) / kSeeds;
  const StageTables importance = prune("importance", 0), ablation = prune("ablation", 0);
  EXPECT_LT(IncreaseAtHalf(importance), random / 2);
  EXPECT_LT(IncreaseAtHalf(ablation), random / 2);
  EXPECT_GT(IncreaseAtHalf(prune("reversed", 0)), IncreaseAtHalf(importance));

  // The gradient at the gate tells what happens when the gate closes.
  std::vector<double> slopes, losses;
  for (std::size_t i = 0; i < importance.importance.size(); ++i) {
    ASSERT_EQ(importance.importance[i].layer, ablation.ablation[i].layer);
    ASSERT_EQ(importance.importance[i].head, ablation.ablation[i].head);
    slopes.push_back(importance.importance[i].per_example);
    losses.push_back(ablation.ablation[i].loss_increase);
  }
  const double correlation = RankCorrelation(slopes, losses);
  std::printf("rank correlation of importance and single-head ablation: %.3f\n", correlation);
  EXPECT_GT(correlation, 0.6);
}

}  // namespace
}  // namespace headsweep
