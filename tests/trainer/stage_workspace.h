// A workspace on disk with prepared data, in which tests run whole stages as a trainer process would.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/file_system.h"
#include "data/corpus.h"
#include "kernels/backend.h"
#include "results/stage_file.h"
#include "sweeps/stage_config.h"
#include "tests/support/temp_dir.h"
#include "trainer/collective.h"
#include "trainer/reporter.h"
#include "trainer/stage.h"

namespace headsweep::testing {

// Remembers what it was told; on_progress runs at each report (to set the stop flag at a chosen moment).
class ProgressLog final : public Reporter {
 public:
  struct Report {
    std::string phase;
    std::int64_t step, steps;
  };
  void Progress(const std::string& phase, std::int64_t step, std::int64_t steps, double, double) override {
    reports.push_back({phase, step, steps});
    if (on_progress) on_progress(reports.back());
  }
  void Evaluated(const EvaluationRow&) override {}
  void Checkpointed(std::int64_t, const std::string&) override {}

  std::vector<Report> reports;
  std::function<void(const Report&)> on_progress;
};

class StageWorkspace {
 public:
  // corpus: a known name or a path.
  StageWorkspace(const std::string& corpus, int vocabulary)
      : corpus_(PrepareCorpus({corpus, vocabulary}, dir_ / "data", files_, [](const std::string&) {})) {}

  const PreparedCorpus& corpus() const { return corpus_; }
  std::string TrialDirectory(const StageConfig& config) const { return dir_ / ("trials/" + config.id); }
  StageFile Result(const StageConfig& config) const {
    return ReadStageFile(TrialDirectory(config) + "/result.h5");
  }

  // Runs the next attempt of a stage in this process.
  StageOutcome Run(const StageConfig& config) {
    const std::string directory = TrialDirectory(config);
    int attempt = 1;
    while (files_.Exists(directory + "/attempt-" + std::to_string(attempt))) ++attempt;
    const std::string attempt_directory = directory + "/attempt-" + std::to_string(attempt);
    files_.CreateDirectories(attempt_directory);
    const auto stage = config.kind == StageKind::kTrain ? RunTrainStage : RunPruneStage;
    return stage({config, dir_ / "trials", directory, attempt_directory, attempt, corpus_, *backend_, *alone_,
                  files_, reporter, stop});
  }

  ProgressLog reporter;
  std::atomic<bool> stop{false};

 private:
  TempDir dir_;
  FileSystem& files_ = FileSystem::Real();
  PreparedCorpus corpus_;
  std::unique_ptr<Backend> backend_ = MakeBackend({});
  std::unique_ptr<Collective> alone_ = MakeSingleProcessCollective();
};

// The stage that prunes what `train` trains, with its identity.
inline StageConfig PruneStageOf(const StageConfig& train, const std::string& order, std::uint64_t seed = 0) {
  StageConfig prune = train;
  prune.kind = StageKind::kPrune;
  prune.parent = train.id;
  prune.prune.order = order;
  prune.prune.seed = seed;
  prune.id = ComputeStageId(prune);
  return prune;
}

}  // namespace headsweep::testing
