// SlotPool: which slots of which nodes are free, and how much memory is left where they lie. Part of the scheduler core, so
// it is pure. A slot is free, taken, or in quarantine; a lost node's slots do not exist.
//
// Memory. The slots of a node lie on its devices in turn: slot i on device i mod devices, a device being a GPU, or the node
// itself where trials run on CPUs. What is taken there together never needs more memory than the device has, except that
// whatever needs more than a whole device gets one of its own. A device of 0 bytes is one whose memory is not known, and not
// looked at. Take and Fits cost O(devices) at worst where memory is asked for, everything else O(log slots).
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/ids.h"

namespace headsweep {

// A place for one process: the index-th slot of a node (a GPU, or a few CPU threads).
struct SlotId {
  NodeId node;
  int index = 0;
  auto operator<=>(const SlotId&) const = default;
};

class SlotPool {
 public:
  static constexpr std::int64_t kWholeDevice = std::numeric_limits<std::int64_t>::max();

  // Not while the node is there. device_bytes: of each of its devices; empty: memory is not looked at.
  void AddNode(NodeId node, const std::string& host, int slots, const std::vector<std::int64_t>& device_bytes = {});
  void RemoveNode(NodeId node);                                   // with all its slots, taken or not
  bool HasNode(NodeId node) const { return nodes_.contains(node); }
  bool empty() const { return nodes_.empty(); }
  const std::string& host(NodeId node) const { return nodes_.at(node).host; }

  int total() const { return total_; }  // of all nodes that are there
  int usable() const { return total_ - quarantined_; }
  int free() const { return free_; }

  // Whether count slots are free that have so much memory each.
  bool Fits(int count, std::int64_t bytes) const;
  // The same, after how many of these attempts' ends (their slots, all taken) it would be so: 0 = now. -1: not even then.
  int EndsUntilFit(int count, std::int64_t bytes, const std::vector<const std::vector<SlotId>*>& ends) const;

  // Takes count slots with so much memory each; needs Fits(count, bytes). On one node if any has room (the fullest that does,
  // so that big holes stay), otherwise on as few nodes as possible. In ascending order.
  std::vector<SlotId> Take(int count, std::int64_t bytes = 0);
  // The same for 1 <= count <= free(), even where memory is short: whoever does not fit takes what is left.
  std::vector<SlotId> TakeAnyway(int count, std::int64_t bytes);
  // Whether anybody else has a slot on the devices of these taken slots.
  bool HasCompany(const std::vector<SlotId>& slots) const;
  void Release(const SlotId& slot);     // a taken slot
  void Quarantine(const SlotId& slot);  // a taken slot: it is not given out until Restore
  void Restore(const SlotId& slot);     // a slot in quarantine, or one that is gone (no effect)

  std::uint64_t changes() const { return changes_; }  // grows with every change

  // Aborts unless the counters agree and exactly the slots in `taken` are taken.
  void CheckInvariants(const std::vector<SlotId>& taken) const;

 private:
  static constexpr std::int64_t kAny = -1;
  struct Device {
    std::int64_t bytes = 0, used = 0;  // used <= bytes
    int free = 0, taken = 0;           // slots
    int Room(std::int64_t bytes_each) const;  // kAny: whatever the memory
  };
  struct Node {
    std::string host;
    int slots = 0;
    std::set<int> free;
    std::set<int> quarantined;
    std::vector<Device> devices;       // one of unknown memory if nothing is known
    std::map<int, std::int64_t> used;  // by the taken slots
    Device& DeviceOf(int slot) { return devices[static_cast<std::size_t>(slot) % devices.size()]; }
    const Device& DeviceOf(int slot) const { return devices[static_cast<std::size_t>(slot) % devices.size()]; }
    int Room(std::int64_t bytes_each) const;
  };
  void SetFree(NodeId id, Node& node, int index, bool is_free);
  static void Vacate(Node& node, int index);
  void TakeSlot(NodeId id, Node& node, int index, std::int64_t bytes);
  std::vector<SlotId> TakeWhere(int count, std::int64_t bytes_each, std::int64_t claim);
  std::pair<NodeId, int> NodeFor(int count, std::int64_t bytes) const;  // and its room, which may be less than count

  std::map<NodeId, Node> nodes_;
  std::set<std::pair<int, NodeId>> by_free_;  // (number of free slots, node), nodes without any left out
  int total_ = 0, free_ = 0, quarantined_ = 0;
  std::uint64_t changes_ = 0;
};

}  // namespace headsweep
