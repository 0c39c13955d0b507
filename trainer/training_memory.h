// How much memory training takes, and whether there is that much.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/backend.h"
#include "sweeps/stage_config.h"
#include "trainer/parameter_layout.h"

namespace headsweep {

int MicroBatch(
    const TrainConfig& config);  // examples of one forward pass: micro_batch, or batch when it is 0

// Model, optimiser and the writing of a checkpoint, for micro-batches of so many examples.
std::int64_t TrainingBytes(const Backend& backend, const ModelShape& shape, int micro_batch);

// The micro-batch of the configuration, or else the largest below it that divides the batch and fits into
// `available`; 0: none.
int LargestMicroBatch(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                      std::int64_t available);

// Throws OutOfMemory (needed, available, which micro_batch would fit) when training does not fit into
// `available` bytes.
void RequireTrainingMemory(const Backend& backend, const ModelShape& shape, const TrainConfig& config,
                           std::int64_t available);

}  // namespace headsweep
