#include "trainer/training_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/memory.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"

namespace headsweep {

int MicroBatch(const TrainConfig& config) {
  return config.micro_batch > 0 ? std::min(config.micro_batch, config.batch) : config.batch;
}

std::int64_t TrainingBytes(const Backend& backend, const ModelShape& shape, int micro_batch) {
  const ParameterLayout layout(shape);
  // A checkpoint holds weights and two moments on the host, and the bytes of the larger of its two files.
  const std::int64_t checkpoint = 5 * layout.size() * std::int64_t{sizeof(float)};
  return static_cast<std::int64_t>(Model::PlannedBytes(backend, shape, micro_batch, Model::Purpose::kTrain)) +
         Optimizer::PlannedBytes(layout) + checkpoint;
}

int LargestMicroBatch(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                      std::int64_t available) {
  const int wanted = MicroBatch(config);
  for (int examples = wanted; examples > 0; --examples) {
    const bool allowed = examples == wanted || config.batch % examples == 0;
    if (allowed && TrainingBytes(backend, shape, examples) <= available) return examples;
  }
  return 0;
}

void RequireTrainingMemory(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                           std::int64_t available) {
  const int wanted = MicroBatch(config), fits = LargestMicroBatch(backend, shape, config, available);
  if (fits == wanted) return;
  const std::string advice =
      fits > 0 ? fmt::format("train.micro_batch = {} would fit", fits)
               : fmt::format(
                     "even one example at a time needs {}: use a smaller model or a machine with more memory",
                     FormatBytes(TrainingBytes(backend, shape, 1)));
  throw OutOfMemory(
      fmt::format("training {} examples at a time needs {} ({} bytes), but only {} are available; {}", wanted,
                  FormatBytes(TrainingBytes(backend, shape, wanted)), TrainingBytes(backend, shape, wanted),
                  FormatBytes(available), advice));
}

}  // namespace headsweep
