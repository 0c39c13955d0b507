// SlotPool: which slots of which nodes are free. Part of the scheduler core, so it is pure.
// A slot is free, taken, or in quarantine; a lost node's slots do not exist. All operations are O(log slots).
#pragma once

#include <compare>
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
  void AddNode(NodeId node, const std::string& host, int slots);  // not while the node is there
  void RemoveNode(NodeId node);                                   // with all its slots, taken or not
  bool HasNode(NodeId node) const { return nodes_.contains(node); }
  bool empty() const { return nodes_.empty(); }
  const std::string& host(NodeId node) const { return nodes_.at(node).host; }

  int total() const { return total_; }  // of all nodes that are there
  int usable() const { return total_ - quarantined_; }
  int free() const { return free_; }

  // Takes count slots; needs 1 <= count <= free(). On one node if any has room (the fullest that does, so
  // that big holes stay), otherwise on as few nodes as possible. In ascending order.
  std::vector<SlotId> Take(int count);
  void Release(const SlotId& slot);     // a taken slot
  void Quarantine(const SlotId& slot);  // a taken slot: it is not given out until Restore
  void Restore(const SlotId& slot);     // a slot in quarantine, or one that is gone (no effect)

  // Aborts unless the counters agree and exactly the slots in `taken` are taken.
  void CheckInvariants(const std::vector<SlotId>& taken) const;

 private:
  struct Node {
    std::string host;
    int slots = 0;
    std::set<int> free;
    std::set<int> quarantined;
  };
  void SetFree(NodeId id, Node& node, int index, bool is_free);

  std::map<NodeId, Node> nodes_;
  std::set<std::pair<int, NodeId>> by_free_;  // (number of free slots, node), nodes without any left out
  int total_ = 0, free_ = 0, quarantined_ = 0;
};

}  // namespace headsweep
