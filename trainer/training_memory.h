// How much memory training takes, and whether there is that much.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/backend.h"
#include "sweeps/stage_config.h"
#include "trainer/parameter_layout.h"

namespace headsweep {

// Examples of one forward pass of one of world_size processes: its share of the batch, or micro_batch when
// that is less and not 0.
int MicroBatch(const TrainConfig& config, int world_size = 1);

// Model, optimiser and the writing of a checkpoint, for micro-batches of so many examples. optimizer_shards:
// processes that share the optimiser's state.
std::int64_t TrainingBytes(const Backend& backend, const ModelShape& shape, int micro_batch,
                           int optimizer_shards = 1);

// The micro-batch of the configuration, or else the largest below it that divides a process's share and fits
// into `available`; 0: none.
int LargestMicroBatch(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                      std::int64_t available, int world_size = 1, int optimizer_shards = 1);

// Throws OutOfMemory (needed, available, which micro_batch would fit) when training does not fit into
// `available` bytes.
void RequireTrainingMemory(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                           std::int64_t available, int world_size = 1, int optimizer_shards = 1);

}  // namespace headsweep
