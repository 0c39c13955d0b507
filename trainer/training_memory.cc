#include "trainer/training_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/memory.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"

namespace headsweep {

namespace {

int LargestShare(const TrainConfig& config, int world_size) {
  return (config.batch + world_size - 1) / world_size;
}

}  // namespace

int MicroBatch(const TrainConfig& config, int world_size) {
  const int share = LargestShare(config, world_size);
  return config.micro_batch > 0 ? std::min(config.micro_batch, share) : share;
}

std::int64_t TrainingBytes(const Backend& backend, const ModelShape& shape, int micro_batch,
                           int optimizer_shards) {
  const ParameterLayout layout(shape);
  // A checkpoint holds weights and two moments on the host, and the bytes of the larger of its two files.
  const std::int64_t checkpoint = 5 * layout.size() * std::int64_t{sizeof(float)};
  return static_cast<std::int64_t>(Model::PlannedBytes(backend, shape, micro_batch, Model::Purpose::kTrain)) +
         Optimizer::PlannedBytes(layout.size() / optimizer_shards + 1) + checkpoint;
}

int LargestMicroBatch(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                      std::int64_t available, int world_size, int optimizer_shards) {
  const int wanted = MicroBatch(config, world_size), share = LargestShare(config, world_size);
  for (int examples = wanted; examples > 0; --examples) {
    const bool allowed = examples == wanted || share % examples == 0;
    if (allowed && TrainingBytes(backend, shape, examples, optimizer_shards) <= available) return examples;
  }
  return 0;
}

void RequireTrainingMemory(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                           std::int64_t available, int world_size, int optimizer_shards) {
  const int wanted = MicroBatch(config, world_size);
  const int fits = LargestMicroBatch(backend, shape, config, available, world_size, optimizer_shards);
  if (fits == wanted) return;
  const std::int64_t needed = TrainingBytes(backend, shape, wanted, optimizer_shards);
  const std::string advice =
      fits > 0 ? fmt::format("train.micro_batch = {} would fit", fits)
               : fmt::format(
                     "even one example at a time needs {}: use a smaller model or a machine with more memory",
                     FormatBytes(TrainingBytes(backend, shape, 1, optimizer_shards)));
  throw OutOfMemory(
      fmt::format("training {} examples at a time needs {} ({} bytes), but only {} are available; {}", wanted,
                  FormatBytes(needed), needed, FormatBytes(available), advice));
}

}  // namespace headsweep
