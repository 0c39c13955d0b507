// What keeps the processes of a trial one model: every one applies the same sums to the same weights.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/collective.h"
#include "trainer/model.h"

namespace headsweep {

// Throws DeviceError when the weights are not the same bits on every rank: a device computes wrongly.
void RequireEqualReplicas(Collective& collective, const std::vector<float>& parameters, std::int64_t step);

// values: of each rank only its shard (ShardOf) counts; afterwards every rank has all of them. Host memory.
void GatherShards(Collective& collective, std::vector<float>& values);

// After an update in which each rank changed its shard of the model's parameters alone: all of them,
// everywhere.
void GatherWeights(Collective& collective, Model& model);

}  // namespace headsweep
