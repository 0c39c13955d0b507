// A workspace with a small made-up corpus and what a stage needs to run in it.
#pragma once

#include <atomic>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cluster/base/file_system.h"
#include "data/corpus.h"
#include "data/token_format.h"
#include "tests/support/temp_dir.h"
#include "trainer/checkpoint.h"
#include "trainer/stage.h"
#include "trainer/stage_files.h"

namespace headsweep::testing {

// Sentences of a random walk in which each piece has three successors: a model soon does better than chance.
inline void WriteWalks(const std::string& path, int sentences, int vocabulary, std::uint64_t seed,
                       SplitCounts& counts) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> starts = {0};
  for (int i = 0; i < sentences; ++i) {
    std::int64_t piece = 4 + static_cast<std::int64_t>(random() % static_cast<unsigned>(vocabulary - 4));
    const int length = 3 + static_cast<int>(random() % 9);
    for (int t = 0; t < length; ++t) {
      tokens.push_back(static_cast<std::int32_t>(piece));
      piece = 4 + (piece * 5 + static_cast<std::int64_t>(random() % 3)) % (vocabulary - 4);
    }
    tokens.push_back(kEndToken);
    starts.push_back(static_cast<std::int64_t>(tokens.size()));
  }
  counts = {sentences, static_cast<std::int64_t>(tokens.size()) - sentences,
            static_cast<std::int64_t>(tokens.size())};
  FileSystem::Real().WriteFile(path, SerializeTokens(tokens, starts, vocabulary));
}

inline PreparedCorpus MakeCorpus(const std::string& directory) {
  PreparedCorpus corpus;
  corpus.directory = directory;
  corpus.name = "walks";
  corpus.fingerprint = "00112233445566aa";
  corpus.vocabulary = 40;
  FileSystem::Real().CreateDirectories(directory);
  WriteWalks(corpus.TokensPath("train"), 300, 40, 1, corpus.train);
  WriteWalks(corpus.TokensPath("valid"), 40, 40, 2, corpus.valid);
  WriteWalks(corpus.TokensPath("test"), 40, 40, 3, corpus.test);
  return corpus;
}

// A small stage with everything on: uneven heads, dropout, label smoothing, micro-batches.
inline StageConfig SmallStage() {
  StageConfig config;
  config.task.fingerprint = "00112233445566aa";
  config.task.vocabulary = 40;
  config.task.length = 12;
  config.model.layers = 2;
  config.model.embed = 16;
  config.model.heads = {3, 1};
  config.model.head_size = 4;
  config.model.feed_forward = 32;
  config.model.dropout = 0.1;
  config.train.steps = 20;
  config.train.batch = 6;
  config.train.micro_batch = 3;
  config.train.learning_rate = 1e-2;
  config.train.warmup_steps = 3;
  config.train.label_smoothing = 0.1;
  config.train.evaluate_every = 8;
  config.train.checkpoint_every = 5;
  config.id = ComputeStageId(config);
  return config;
}

class RecordingReporter final : public Reporter {
 public:
  void Started(std::int64_t step, std::int64_t) override { started_at.push_back(step); }
  void Progress(const std::string& phase, std::int64_t step, std::int64_t, double, double) override {
    if (on_progress) on_progress(phase, step);
  }
  void Evaluated(const EvaluationRow& row) override { evaluations.push_back(row); }
  void Checkpointed(std::int64_t step, const std::string&) override { checkpoints.push_back(step); }

  std::function<void(const std::string& phase, std::int64_t step)> on_progress;
  std::vector<std::int64_t> started_at, checkpoints;
  std::vector<EvaluationRow> evaluations;
};

// One trial's directory; Run() is one attempt.
class Trial {
 public:
  Trial(const std::string& workspace, const PreparedCorpus& corpus, StageConfig config,
        BackendOptions backend = {})
      : corpus_(corpus), config_(std::move(config)), root_(workspace), backend_(std::move(backend)) {}

  StageOutcome Run(Reporter& reporter, StageOutcome (*stage)(const StageContext&) = RunTrainStage) {
    ++attempt_;
    const std::string attempt_directory = directory() + "/attempt-" + std::to_string(attempt_);
    FileSystem::Real().CreateDirectories(attempt_directory);
    const auto backend = MakeBackend(backend_);
    const auto collective = MakeSingleProcessCollective();
    return stage({.config = config_,
                  .trials_root = root_ + "/trials",
                  .directory = directory(),
                  .attempt_directory = attempt_directory,
                  .attempt = attempt_,
                  .corpus = corpus_,
                  .backend = *backend,
                  .collective = *collective,
                  .files = FileSystem::Real(),
                  .reporter = reporter,
                  .stop = stop});
  }
  std::string directory() const { return root_ + "/trials/" + config_.id; }
  std::string result() const { return directory() + "/result.h5"; }
  std::string metrics() const { return directory() + "/attempt-" + std::to_string(attempt_) + "/metrics.h5"; }
  Checkpoint Last() const {
    const FileSystem& files = FileSystem::Real();
    return ReadCheckpoint(files, LatestCheckpoint(files, directory() + "/checkpoint").value(), config_.id);
  }

  std::atomic<bool> stop = false;

 private:
  const PreparedCorpus& corpus_;
  StageConfig config_;
  std::string root_;
  BackendOptions backend_;
  int attempt_ = 0;
};

}  // namespace headsweep::testing
