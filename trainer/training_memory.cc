#include "trainer/training_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/base/memory.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"

namespace headsweep {
namespace {

int LargestShare(const TrainConfig& config, int world_size) {
  return (config.batch + world_size - 1) / world_size;
}

// What is needed of the memory that decides, and what there is of it.
struct Demand {
  std::int64_t needed = 0, available = 0;
  const char* where = "";
  bool fits() const { return needed <= available; }
};

Demand DemandOf(const Backend& backend, const ModelShape& shape, const MemoryBudget& budget, int micro_batch,
                int optimizer_shards) {
  if (!budget.device)
    return {TrainingBytes(backend, shape, micro_batch, optimizer_shards), budget.process, ""};
  const Demand host{CheckpointBytes(shape), budget.process, " of the process's memory, for checkpoints"};
  if (!host.fits()) return host;
  return {ModelBytes(backend, shape, micro_batch, optimizer_shards), *budget.device, " on the device"};
}

}  // namespace

int MicroBatch(const TrainConfig& config, int world_size) {
  const int share = LargestShare(config, world_size);
  return config.micro_batch > 0 ? std::min(config.micro_batch, share) : share;
}

std::int64_t ModelBytes(const Backend& backend, const ModelShape& shape, int micro_batch,
                        int optimizer_shards) {
  return static_cast<std::int64_t>(Model::PlannedBytes(backend, shape, micro_batch, Model::Purpose::kTrain)) +
         Optimizer::PlannedBytes(ParameterLayout(shape).size() / optimizer_shards + 1);
}

std::int64_t CheckpointBytes(const ModelShape& shape) {
  return 5 * ParameterLayout(shape).size() * std::int64_t{sizeof(float)};
}

std::int64_t TrainingBytes(const Backend& backend, const ModelShape& shape, int micro_batch,
                           int optimizer_shards) {
  return ModelBytes(backend, shape, micro_batch, optimizer_shards) + CheckpointBytes(shape);
}

int LargestMicroBatch(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                      const MemoryBudget& budget, int world_size, int optimizer_shards) {
  const int wanted = MicroBatch(config, world_size), share = LargestShare(config, world_size);
  for (int examples = wanted; examples > 0; --examples) {
    const bool allowed = examples == wanted || share % examples == 0;
    if (allowed && DemandOf(backend, shape, budget, examples, optimizer_shards).fits()) return examples;
  }
  return 0;
}

void RequireTrainingMemory(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                           const MemoryBudget& budget, int world_size, int optimizer_shards) {
  const int wanted = MicroBatch(config, world_size);
  const int fits = LargestMicroBatch(backend, shape, config, budget, world_size, optimizer_shards);
  if (fits == wanted) return;
  const Demand demand = DemandOf(backend, shape, budget, wanted, optimizer_shards);
  const std::string advice =
      fits > 0
          ? fmt::format("train.micro_batch = {} would fit", fits)
          : fmt::format("even one example at a time needs {}: use a smaller model or a {} with more memory",
                        FormatBytes(DemandOf(backend, shape, budget, 1, optimizer_shards).needed),
                        budget.device ? "GPU" : "machine");
  throw OutOfMemory(fmt::format(
      "training {} examples at a time needs {} ({} bytes){}, but only {} are available; {}", wanted,
      FormatBytes(demand.needed), demand.needed, demand.where, FormatBytes(demand.available), advice));
}

}  // namespace headsweep
