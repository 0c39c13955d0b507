// Passes over fixed batches, shared out between the processes of a stage: losses and head importance of a
// whole sample. Batch i belongs to rank i mod world_size. Contributions of single batches are exchanged and
// added up in the order of the batches, so every rank gets the same bits, and the same for any number of
// ranks. Not here: gradients for training (training.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/batches.h"
#include "sweeps/stage_config.h"
#include "trainer/collective.h"
#include "trainer/model.h"

namespace headsweep {

// The first `wanted` examples (0 or more than there are = all) of a token file, in batches of about 2048
// rows.
//   shuffle: examples of a fixed random sample instead of the start of the file (which is one book, one
//   author, …)
std::vector<Batch> ReadBatches(const TokenFile& file, const TaskConfig& task, std::int64_t wanted,
                               bool shuffle);
int LargestBatch(std::span<const Batch> batches);  // examples; what a Model that runs them needs

// Thrown by BatchPasses on every rank alike when the stage was asked to stop. Not an error, and never leaves
// the stage.
struct PassesStopped {};

// How far all passes of a stage are, on this rank.
struct PassProgress {
  std::int64_t batches_done = 0;
  std::int64_t batches_known =
      0;                    // announced so far, done ones included; grows while an order asks for more passes
  std::int64_t tokens = 0;  // targets of the batches done
  double loss = 0;          // of the batch before, mean over its targets
};

class BatchPasses {
 public:
  // after_batch follows each batch that this rank ran. stop is looked at after each batch in a world of one,
  // after each pass otherwise (all ranks must agree). The arguments must outlive this object.
  BatchPasses(Collective& collective, const std::atomic<bool>& stop,
              std::function<void(const PassProgress&)> after_batch);

  // `passes` passes over such batches will follow: for progress only.
  void Announce(int passes, std::span<const Batch> batches);

  // Evaluation mode, no label smoothing. Gates of the model stay as they are.
  LossSum Loss(Model& model, std::span<const Batch> batches);
  // Sums of |dLoss/dgate| (see HeadScores), dropout and label smoothing off. model: kTrain.
  HeadScores Importance(Model& model, std::span<const Batch> batches);

 private:
  bool IsMine(std::size_t batch) const;
  void Finish(const LossSum& loss);
  void Exchange(std::vector<double>& values);

  Collective& collective_;
  const std::atomic<bool>& stop_;
  std::function<void(const PassProgress&)> after_batch_;
  PassProgress progress_;
};

}  // namespace headsweep
