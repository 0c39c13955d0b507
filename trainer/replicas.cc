#include "trainer/replicas.h"

#include <string>

#include "cluster/base/errors.h"
#include "trainer/checkpoint.h"

namespace headsweep {

void RequireEqualReplicas(Collective& collective, const std::vector<float>& parameters, std::int64_t step) {
  if (collective.world_size() == 1) return;
  const std::vector<std::string> sums =
      collective.AllGather(fmt::format("{:016x}", WeightsChecksum(parameters)));
  for (std::size_t rank = 1; rank < sums.size(); ++rank) {
    if (sums[rank] == sums.front()) continue;
    throw DeviceError("compare replicas", 0,
                      fmt::format("at step {} the weights of rank {} are not those of rank 0", step, rank),
                      static_cast<int>(rank));
  }
}

void GatherShards(Collective& collective, std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  for (int rank = 0; rank < collective.world_size(); ++rank) {
    const auto [begin, end] = ShardOf(count, rank, collective.world_size());
    if (begin < end)
      collective.Broadcast(values.data() + begin, (end - begin) * std::int64_t{sizeof(float)}, rank);
  }
}

void GatherWeights(Collective& collective, Model& model) {
  const std::int64_t count = model.layout().size();
  collective.AllGatherShards(model.master(), count, sizeof(float));
  if (static_cast<void*>(model.weights()) != model.master())  // the compute type's copies
    collective.AllGatherShards(model.weights(), count,
                               static_cast<std::int64_t>(model.backend().element_bytes()));
}

}  // namespace headsweep
