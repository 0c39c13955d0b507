// Whole prune stages on a tiny trained model: what is recorded, stopping, starting over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <set>

#include "cluster/base/errors.h"
#include "tests/trainer/stage_workspace.h"
#include "trainer/control_protocol.h"
#include "trainer/head_orders.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;
using testing::PruneStageOf;
using testing::StageWorkspace;

// Sentences with something to learn: the subject chooses the verb, the verb the object.
std::string WriteTinyText(const std::string& path) {
  std::mt19937 random(3);
  const char* subjects[] = {"the cat", "a dog", "the old bird", "our fish"};
  const char* verbs[] = {"chases", "bites", "watches", "follows"};
  const char* objects[] = {"the mouse", "a bone", "the sky", "the stream"};
  std::ofstream text(path);
  for (int i = 0; i < 1500; ++i) {
    const unsigned subject = random() % 4, verb = random() % 8 == 0 ? random() % 4 : subject;
    text << subjects[subject] << ' ' << verbs[verb] << ' ' << objects[(verb + random() % 2) % 4] << " .\n";
  }
  return path;
}

// Trained once for all tests here; every test prunes it in its own way.
class PruneStages : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    text_ = new testing::TempDir;
    workspace_ = new StageWorkspace(WriteTinyText(*text_ / "tiny.txt"), 60);
    train_ = new StageConfig;
    train_->task.corpus = *text_ / "tiny.txt";
    train_->task.fingerprint = workspace_->corpus().fingerprint;
    train_->task.vocabulary = 60;
    train_->task.length = 16;
    train_->model = {.layers = 2, .embed = 24, .heads = {3, 2}, .head_size = 7, .feed_forward = 32};
    train_->train.steps = 60;
    train_->train.batch = 8;
    train_->train.learning_rate = 5e-3;
    train_->train.warmup_steps = 5;
    train_->train.evaluate_every = 30;
    train_->train.checkpoint_every = 30;
    train_->prune.score_examples = 40;
    train_->id = ComputeStageId(*train_);
    ASSERT_EQ(workspace_->Run(*train_).outcome, control::kFinished);
  }
  static void TearDownTestSuite() {
    delete train_;
    delete workspace_;
    delete text_;
  }
  void SetUp() override {
    workspace_->stop = false;
    workspace_->reporter.reports.clear();
    workspace_->reporter.on_progress = nullptr;
  }

  static constexpr int kHeads = 5;
  static testing::TempDir* text_;
  static StageWorkspace* workspace_;
  static StageConfig* train_;
};
testing::TempDir* PruneStages::text_ = nullptr;
StageWorkspace* PruneStages::workspace_ = nullptr;
StageConfig* PruneStages::train_ = nullptr;

TEST_F(PruneStages, EveryOrderRecordsItsCurveFromTheTrainedModelToNoHeads) {
  const StageFile trained = workspace_->Result(*train_);
  double without_heads = 0;
  for (const KnownOrder& known : KnownOrders()) {
    SCOPED_TRACE(known.name);
    const StageConfig prune = PruneStageOf(*train_, known.name, known.uses_seed ? 4 : 0);
    const StageOutcome outcome = workspace_->Run(prune);
    ASSERT_EQ(outcome.outcome, control::kFinished);
    const StageFile file = workspace_->Result(prune);
    EXPECT_EQ(file.summary.digest, outcome.summary.digest);
    EXPECT_EQ(file.summary.weights_checksum, trained.summary.weights_checksum);
    EXPECT_EQ(file.provenance.parent, train_->id);

    const auto& curve = file.tables.pruning;
    ASSERT_EQ(curve.size(), 11u);
    const int removed[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
    for (std::size_t i = 0; i < curve.size(); ++i) {
      EXPECT_EQ(curve[i].order, known.name);
      EXPECT_EQ(curve[i].order_seed, prune.prune.seed);
      EXPECT_EQ(curve[i].fraction, i / 10.0);
      EXPECT_EQ(curve[i].heads_removed, removed[i]);
      EXPECT_EQ(curve[i].heads_left, kHeads - removed[i]);
      EXPECT_DOUBLE_EQ(curve[i].loss_increase, curve[i].nll - curve[0].nll);
      EXPECT_NEAR(curve[i].perplexity_per_piece, std::exp(curve[i].nll), 1e-9);
      EXPECT_GT(curve[i].perplexity_per_word, curve[i].perplexity_per_piece);
    }
    EXPECT_NEAR(curve[0].nll, trained.summary.test_nll, 1e-5) << "nothing removed is the trained model";
    if (without_heads == 0) without_heads = curve.back().nll;
    EXPECT_EQ(curve.back().nll, without_heads) << "without heads all orders meet";

    ASSERT_EQ(file.tables.removal.size(), kHeads);
    std::set<std::pair<int, int>> heads;
    for (int i = 0; i < kHeads; ++i) {
      EXPECT_EQ(file.tables.removal[i].position, i);
      heads.insert({file.tables.removal[i].layer, file.tables.removal[i].head});
    }
    EXPECT_EQ(heads.size(), kHeads);
  }
}

TEST_F(PruneStages, ImportanceIsRecordedWithTheScoreThatTheOrderUsed) {
  const StageConfig prune = PruneStageOf(*train_, "importance");
  workspace_->Run(prune);
  const StageTables tables = workspace_->Result(prune).tables;
  ASSERT_EQ(tables.importance.size(), kHeads);
  double squares[2] = {0, 0};
  for (const ImportanceRow& row : tables.importance) squares[row.layer] += row.per_example * row.per_example;
  for (const ImportanceRow& row : tables.importance) {
    EXPECT_EQ(row.step, 60);
    EXPECT_GT(row.per_example, 0);
    EXPECT_GT(row.per_token, 0);
    EXPECT_GT(row.magnitude, 0);
    EXPECT_NEAR(row.normalized, row.per_example / std::sqrt(squares[row.layer]), 1e-12);
    const auto removal = std::find_if(tables.removal.begin(), tables.removal.end(), [&](const RemovalRow& r) {
      return r.layer == row.layer && r.head == row.head;
    });
    EXPECT_EQ(removal->score, row.normalized);
  }
  EXPECT_TRUE(tables.ablation.empty());
}

TEST_F(PruneStages, AblationIsRecordedForEveryHead) {
  const StageConfig prune = PruneStageOf(*train_, "ablation");
  workspace_->Run(prune);
  const StageTables tables = workspace_->Result(prune).tables;
  EXPECT_EQ(tables.ablation.size(), kHeads);
  EXPECT_TRUE(tables.importance.empty());
  for (std::size_t i = 1; i < tables.removal.size(); ++i)
    EXPECT_LE(tables.removal[i - 1].score, tables.removal[i].score);
}

TEST_F(PruneStages, KeepLeavesHeadsInEveryLayer) {
  StageConfig prune = *train_;
  prune.prune.keep = 1;
  prune = PruneStageOf(prune, "random", 9);
  workspace_->Run(prune);
  const StageTables tables = workspace_->Result(prune).tables;
  EXPECT_EQ(tables.pruning.back().heads_left, 2);
  EXPECT_EQ(tables.removal.size(), kHeads) << "the order still names every head";
  EXPECT_NE(tables.removal[3].layer, tables.removal[4].layer) << "those that stay come last";
}

TEST_F(PruneStages, PerTokenIsAnotherStageWithOtherScores) {
  StageConfig per_token = *train_;
  per_token.prune.per = "token";
  per_token = PruneStageOf(per_token, "importance");
  ASSERT_NE(per_token.id, PruneStageOf(*train_, "importance").id);
  workspace_->Run(per_token);
  for (const ImportanceRow& row : workspace_->Result(per_token).tables.importance) {
    EXPECT_GT(row.normalized, 0);
    EXPECT_NE(row.normalized, row.per_example);
  }
}

TEST_F(PruneStages, StoppedAnywhereItStartsOverAndEndsWithTheSameBits) {
  for (const char* order : {"importance-rescored", "ablation"}) {
    SCOPED_TRACE(order);
    StageConfig prune = *train_;
    prune.prune.evaluate_examples = 30;  // a stage that no other test runs
    prune = PruneStageOf(prune, order);
    const std::string result = workspace_->TrialDirectory(prune) + "/result.h5";
    for (const std::string phase : {"score", "prune"}) {
      workspace_->reporter.on_progress = [&](const testing::ProgressLog::Report& report) {
        if (report.phase == phase && report.step > 2) workspace_->stop = true;
      };
      const StageOutcome stopped = workspace_->Run(prune);
      EXPECT_EQ(stopped.outcome, control::kStopped) << phase;
      EXPECT_FALSE(FileSystem::Real().Exists(result)) << phase;
      workspace_->stop = false;
    }
    workspace_->reporter.on_progress = nullptr;
    const StageOutcome first = workspace_->Run(prune);
    ASSERT_EQ(first.outcome, control::kFinished);
    FileSystem::Real().Remove(result);
    const StageOutcome second = workspace_->Run(prune);
    EXPECT_EQ(second.summary.digest, first.summary.digest);
    EXPECT_EQ(workspace_->Result(prune).summary.digest, first.summary.digest);
  }
}

TEST_F(PruneStages, ProgressNeverGoesBackAndEndsComplete) {
  workspace_->Run(PruneStageOf(*train_, "importance-rescored"));
  const auto& reports = workspace_->reporter.reports;
  ASSERT_GE(reports.size(), 3u);
  EXPECT_EQ(reports.front().phase, "score");
  for (std::size_t i = 1; i < reports.size(); ++i) {
    EXPECT_GE(reports[i].step, reports[i - 1].step);
    EXPECT_LE(reports[i].step, reports[i].steps);
  }
  EXPECT_EQ(reports.back().phase, "prune");
  EXPECT_EQ(reports.back().step, reports.back().steps);
}

TEST_F(PruneStages, RandomOrdersDifferBySeedOnly) {
  const auto order = [&](std::uint64_t seed, int evaluate_examples) {
    StageConfig prune = *train_;
    prune.prune.evaluate_examples = evaluate_examples;
    prune = PruneStageOf(prune, "random", seed);
    workspace_->Run(prune);
    std::vector<std::pair<int, int>> heads;
    for (const RemovalRow& row : workspace_->Result(prune).tables.removal)
      heads.push_back({row.layer, row.head});
    return heads;
  };
  EXPECT_EQ(order(1, 10), order(1, 12));
  EXPECT_NE(order(1, 10), order(2, 10));
}

TEST_F(PruneStages, WithoutTheParentsLastCheckpointThereIsAnErrorThatNamesIt) {
  StageConfig orphan = *train_;
  orphan.train.steps = 61;  // never trained
  orphan.id = ComputeStageId(orphan);
  const StageConfig prune = PruneStageOf(orphan, "importance");
  try {
    workspace_->Run(prune);
    FAIL() << "ran";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(orphan.id + "/checkpoint/step-61"));
    EXPECT_THAT(error.what(), HasSubstr("must finish"));
  }
}

TEST_F(PruneStages, AModelOfAnotherShapeIsRefused) {
  StageConfig other = *train_;
  other.model.feed_forward = 40;
  EXPECT_THROW(workspace_->Run(PruneStageOf(other, "importance")), ConfigError);
}

}  // namespace
}  // namespace headsweep
