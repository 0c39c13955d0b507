// How much memory training takes, and whether there is that much.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/backend.h"
#include "sweeps/stage_config.h"
#include "trainer/parameter_layout.h"

namespace headsweep {

// Bytes that can still be taken. device: of a memory of the backend's own (Backend::FreeDeviceMemory);
// nullopt: everything lies in the process's.
struct MemoryBudget {
  std::int64_t process = 0;
  std::optional<std::int64_t> device = std::nullopt;
};

// Examples of one forward pass of one of world_size processes: its share of the batch, or micro_batch when
// that is less and not 0.
int MicroBatch(const TrainConfig& config, int world_size = 1);

// Model and optimiser, for micro-batches of so many examples: what lies in the backend's memory.
// optimizer_shards: processes that share the optimiser's state.
std::int64_t ModelBytes(const Backend& backend, const ModelShape& shape, int micro_batch,
                        int optimizer_shards = 1);

// The writing of a checkpoint: weights and two moments, and the bytes of the larger of its two files. Always
// the process's.
std::int64_t CheckpointBytes(const ModelShape& shape);

// Both.
std::int64_t TrainingBytes(const Backend& backend, const ModelShape& shape, int micro_batch,
                           int optimizer_shards = 1);

// The micro-batch of the configuration, or else the largest below it that divides a process's share and fits
// into the budget; 0: none.
int LargestMicroBatch(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                      const MemoryBudget& budget, int world_size = 1, int optimizer_shards = 1);

// Throws OutOfMemory (needed, available, which micro_batch would fit) when training does not fit into the
// budget.
void RequireTrainingMemory(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                           const MemoryBudget& budget, int world_size = 1, int optimizer_shards = 1);

}  // namespace headsweep
