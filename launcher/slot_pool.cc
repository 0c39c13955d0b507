#include "launcher/slot_pool.h"

#include <algorithm>
#include <limits>

#include "cluster/base/errors.h"

namespace headsweep {

void SlotPool::AddNode(NodeId id, const std::string& host, int slots) {
  HEADSWEEP_CHECK(!HasNode(id), "node {} joined twice", id.value());
  Node& node = nodes_[id];
  node.host = host;
  node.slots = slots;
  total_ += slots;
  for (int i = 0; i < slots; ++i) SetFree(id, node, i, true);
}

void SlotPool::RemoveNode(NodeId id) {
  const auto it = nodes_.find(id);
  HEADSWEEP_CHECK(it != nodes_.end(), "node {} is not there", id.value());
  const int free = static_cast<int>(it->second.free.size());
  by_free_.erase({free, id});
  total_ -= it->second.slots;
  free_ -= free;
  quarantined_ -= static_cast<int>(it->second.quarantined.size());
  nodes_.erase(it);
}

void SlotPool::SetFree(NodeId id, Node& node, int index, bool is_free) {
  by_free_.erase({static_cast<int>(node.free.size()), id});
  const bool changed = is_free ? node.free.insert(index).second : node.free.erase(index) == 1;
  HEADSWEEP_CHECK(changed, "slot {}:{} is already {}", id.value(), index, is_free ? "free" : "taken");
  free_ += is_free ? 1 : -1;
  if (!node.free.empty()) by_free_.insert({static_cast<int>(node.free.size()), id});
}

std::vector<SlotId> SlotPool::Take(int count) {
  HEADSWEEP_CHECK(count >= 1 && count <= free_, "{} slots asked for, {} are free", count, free_);
  std::vector<SlotId> taken;
  while (static_cast<int>(taken.size()) < count) {
    const int missing = count - static_cast<int>(taken.size());
    auto it = by_free_.lower_bound({missing, NodeId(std::numeric_limits<int>::min())});
    if (it == by_free_.end()) {  // no node has room for the rest: the emptiest gives what it has
      const int most = by_free_.rbegin()->first;
      it = by_free_.lower_bound({most, NodeId(std::numeric_limits<int>::min())});
    }
    const NodeId id = it->second;
    Node& node = nodes_.at(id);
    for (int i = std::min(missing, it->first); i > 0; --i) {
      const int index = *node.free.begin();
      SetFree(id, node, index, false);
      taken.push_back({id, index});
    }
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

void SlotPool::Release(const SlotId& slot) { SetFree(slot.node, nodes_.at(slot.node), slot.index, true); }

void SlotPool::Quarantine(const SlotId& slot) {
  Node& node = nodes_.at(slot.node);
  HEADSWEEP_CHECK(!node.free.contains(slot.index) && node.quarantined.insert(slot.index).second,
                  "slot {}:{} is not taken", slot.node.value(), slot.index);
  ++quarantined_;
}

void SlotPool::Restore(const SlotId& slot) {
  const auto it = nodes_.find(slot.node);
  if (it == nodes_.end() || it->second.quarantined.erase(slot.index) == 0) return;
  --quarantined_;
  SetFree(slot.node, it->second, slot.index, true);
}

void SlotPool::CheckInvariants(const std::vector<SlotId>& taken) const {
  std::set<SlotId> expected(taken.begin(), taken.end());
  HEADSWEEP_CHECK(expected.size() == taken.size(), "a slot is taken twice");
  int total = 0, free = 0, quarantined = 0;
  for (const auto& [id, node] : nodes_) {
    total += node.slots;
    free += static_cast<int>(node.free.size());
    quarantined += static_cast<int>(node.quarantined.size());
    HEADSWEEP_CHECK(by_free_.contains({static_cast<int>(node.free.size()), id}) == !node.free.empty(),
                    "node {} is filed under a wrong number of free slots", id.value());
    for (int i = 0; i < node.slots; ++i) {
      const int states = static_cast<int>(node.free.contains(i)) +
                         static_cast<int>(node.quarantined.contains(i)) +
                         static_cast<int>(expected.erase({id, i}));
      HEADSWEEP_CHECK(states == 1, "slot {}:{} is in {} states", id.value(), i, states);
    }
  }
  HEADSWEEP_CHECK(expected.empty(), "slot {}:{} is taken but not there", expected.begin()->node.value(),
                  expected.begin()->index);
  HEADSWEEP_CHECK(total == total_ && free == free_ && quarantined == quarantined_,
                  "slots are counted wrong: {} {} {}, not {} {} {}", total_, free_, quarantined_, total, free,
                  quarantined);
}

}  // namespace headsweep
