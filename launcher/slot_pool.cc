#include "launcher/slot_pool.h"

#include <algorithm>
#include <limits>

#include "cluster/base/errors.h"

namespace headsweep {

int SlotPool::Device::Room(std::int64_t bytes_each) const {
  if (bytes == 0 || bytes_each == kAny) return free;
  const std::int64_t fit = (bytes - used) / std::max<std::int64_t>(1, bytes_each);
  return static_cast<int>(std::min<std::int64_t>(free, taken == 0 ? std::max<std::int64_t>(1, fit) : fit));
}

int SlotPool::Node::Room(std::int64_t bytes_each) const {
  int room = 0;
  for (const Device& device : devices) room += device.Room(bytes_each);
  return room;
}

void SlotPool::AddNode(NodeId id, const std::string& host, int slots, const std::vector<std::int64_t>& device_bytes) {
  HEADSWEEP_CHECK(!HasNode(id), "node {} joined twice", id.value());
  Node& node = nodes_[id];
  node.host = host;
  node.slots = slots;
  for (const std::int64_t bytes : device_bytes) node.devices.push_back({.bytes = std::max<std::int64_t>(0, bytes)});
  if (node.devices.empty()) node.devices.emplace_back();
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
  ++changes_;
  nodes_.erase(it);
}

void SlotPool::SetFree(NodeId id, Node& node, int index, bool is_free) {
  by_free_.erase({static_cast<int>(node.free.size()), id});
  const bool changed = is_free ? node.free.insert(index).second : node.free.erase(index) == 1;
  HEADSWEEP_CHECK(changed, "slot {}:{} is already {}", id.value(), index, is_free ? "free" : "taken");
  free_ += is_free ? 1 : -1;
  node.DeviceOf(index).free += is_free ? 1 : -1;
  ++changes_;
  if (!node.free.empty()) by_free_.insert({static_cast<int>(node.free.size()), id});
}

void SlotPool::TakeSlot(NodeId id, Node& node, int index, std::int64_t bytes) {
  SetFree(id, node, index, false);
  Device& device = node.DeviceOf(index);
  const std::int64_t used = std::min(bytes, device.bytes - device.used);
  device.used += used;
  ++device.taken;
  node.used[index] = used;
}

std::pair<NodeId, int> SlotPool::NodeFor(int count, std::int64_t bytes) const {
  std::pair<NodeId, int> most(NodeId(-1), 0);
  const auto from = by_free_.lower_bound({count, NodeId(std::numeric_limits<int>::min())});
  for (auto it = from; it != by_free_.end(); ++it) {
    const int room = nodes_.at(it->second).Room(bytes);
    if (room >= count) return {it->second, room};
    if (room > most.second) most = {it->second, room};
  }
  for (auto it = std::make_reverse_iterator(from); it != by_free_.rend() && it->first >= most.second; ++it) {
    const int room = nodes_.at(it->second).Room(bytes);
    if (room > most.second || (room == most.second && it->second < most.first)) most = {it->second, room};
  }
  return most;
}

bool SlotPool::Fits(int count, std::int64_t bytes) const {
  if (count > free_) return false;
  if (NodeFor(count, bytes).second >= count) return true;
  int room = 0;
  for (const auto& [free, id] : by_free_) room += nodes_.at(id).Room(bytes);
  return room >= count;
}

int SlotPool::EndsUntilFit(int count, std::int64_t bytes, const std::vector<const std::vector<SlotId>*>& ends) const {
  if (Fits(count, bytes)) return 0;
  int room = 0;
  for (const auto& [free, id] : by_free_) room += nodes_.at(id).Room(bytes);
  std::map<const Device*, Device> later;
  for (std::size_t end = 0; end < ends.size(); ++end) {
    for (const SlotId& slot : *ends[end]) {
      const Node& node = nodes_.at(slot.node);
      Device& device = later.emplace(&node.DeviceOf(slot.index), node.DeviceOf(slot.index)).first->second;
      room -= device.Room(bytes);
      device.used -= node.used.at(slot.index);
      --device.taken;
      ++device.free;
      room += device.Room(bytes);
    }
    if (room >= count) return static_cast<int>(end) + 1;
  }
  return -1;
}

std::vector<SlotId> SlotPool::Take(int count, std::int64_t bytes) { return TakeWhere(count, bytes, bytes); }

// Where there is room for bytes_each.
std::vector<SlotId> SlotPool::TakeWhere(int count, std::int64_t bytes_each, std::int64_t claim) {
  HEADSWEEP_CHECK(count >= 1 && count <= free_, "{} slots asked for, {} are free", count, free_);
  std::vector<SlotId> taken;
  while (static_cast<int>(taken.size()) < count) {
    const int missing = count - static_cast<int>(taken.size());
    const auto [id, room] = NodeFor(missing, bytes_each);  // if no node has room for the rest, the roomiest gives what it has
    HEADSWEEP_CHECK(room > 0, "{} slots with {} bytes each asked for, {} fit", count, bytes_each, taken.size());
    Node& node = nodes_.at(id);
    for (int i = std::min(missing, room); i > 0; --i) {
      // The device with the fewest neighbours: they share its speed too.
      auto best = node.free.end();
      for (auto it = node.free.begin(); it != node.free.end(); ++it) {
        const Device& device = node.DeviceOf(*it);
        if (device.Room(bytes_each) > 0 && (best == node.free.end() || device.taken < node.DeviceOf(*best).taken)) best = it;
        if (node.devices.size() == 1 && best != node.free.end()) break;
      }
      const int index = *best;
      TakeSlot(id, node, index, claim);
      taken.push_back({id, index});
    }
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

std::vector<SlotId> SlotPool::TakeAnyway(int count, std::int64_t bytes) {
  std::vector<SlotId> taken;
  while (static_cast<int>(taken.size()) < count) {
    const std::vector<SlotId> one = TakeWhere(1, Fits(1, bytes) ? bytes : kAny, bytes);
    taken.insert(taken.end(), one.begin(), one.end());
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

bool SlotPool::HasCompany(const std::vector<SlotId>& slots) const {
  std::map<const Device*, int> own;
  for (const SlotId& slot : slots) ++own[&nodes_.at(slot.node).DeviceOf(slot.index)];
  return std::any_of(own.begin(), own.end(), [](const auto& d) { return d.first->bytes > 0 && d.first->taken > d.second; });
}

void SlotPool::Vacate(Node& node, int index) {
  const auto used = node.used.find(index);
  HEADSWEEP_CHECK(used != node.used.end(), "slot {} of {} is not taken", index, node.host);
  Device& device = node.DeviceOf(index);
  device.used -= used->second;
  --device.taken;
  node.used.erase(used);
}

void SlotPool::Release(const SlotId& slot) {
  Node& node = nodes_.at(slot.node);
  Vacate(node, slot.index);
  SetFree(slot.node, node, slot.index, true);
}

void SlotPool::Quarantine(const SlotId& slot) {
  Node& node = nodes_.at(slot.node);
  Vacate(node, slot.index);
  HEADSWEEP_CHECK(node.quarantined.insert(slot.index).second, "slot {}:{} is in quarantine", slot.node.value(), slot.index);
  ++quarantined_;
  ++changes_;
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
    for (std::size_t d = 0; d < node.devices.size(); ++d) {
      std::int64_t used = 0;
      for (const auto& [slot, bytes] : node.used) used += &node.DeviceOf(slot) == &node.devices[d] ? bytes : 0;
      HEADSWEEP_CHECK(used == node.devices[d].used && used <= node.devices[d].bytes,
                      "device {} of {} has {} bytes taken, not {}", d, node.host, used, node.devices[d].used);
    }
    HEADSWEEP_CHECK(by_free_.contains({static_cast<int>(node.free.size()), id}) == !node.free.empty(),
                    "node {} is filed under a wrong number of free slots", id.value());
    for (int i = 0; i < node.slots; ++i) {
      HEADSWEEP_CHECK(node.used.contains(i) == expected.contains({id, i}), "slot {}:{} is counted wrong", id.value(), i);
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
