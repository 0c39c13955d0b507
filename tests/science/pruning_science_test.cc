// Michel et al. 2019, section 4.1, on a small language model of the King James Bible: importance is worth
// something.
#include <gtest/gtest.h>

#include <cstdio>

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
  train.prune.score_examples = 128;
  train.prune.evaluate_examples = 128;
  train.id = ComputeStageId(train);
  ASSERT_EQ(workspace.Run(train).outcome, control::kFinished);

  const auto increase = [&](const std::string& order, std::uint64_t seed) {
    const StageConfig prune = PruneStageOf(train, order, seed);
    EXPECT_EQ(workspace.Run(prune).outcome, control::kFinished);
    const StageTables tables = workspace.Result(prune).tables;
    std::printf("%-12s seed %llu: loss + %.4f with half the heads, + %.4f without any\n", order.c_str(),
                static_cast<unsigned long long>(seed), IncreaseAtHalf(tables),
                tables.pruning.back().loss_increase);
    return IncreaseAtHalf(tables);
  };
  constexpr int kSeeds = 5;
  double random = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) random += increase("random", seed) / kSeeds;
  const double importance = increase("importance", 0), ablation = increase("ablation", 0),
               reversed = increase("reversed", 0);
  EXPECT_LT(importance, random);
  EXPECT_LT(ablation, random);
  EXPECT_GT(reversed, importance);
}

}  // namespace
}  // namespace headsweep
