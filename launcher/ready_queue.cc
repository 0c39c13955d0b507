#include "launcher/ready_queue.h"

#include <algorithm>

#include "cluster/base/errors.h"

namespace headsweep {

void ReadyQueue::Insert(const Entry& entry) {
  Lines& lines = by_slots_[entry.slots];
  const bool added = (entry.child ? lines.children : lines.roots).insert(entry).second;
  HEADSWEEP_CHECK(added, "stage {} is queued twice", entry.stage);
  ++size_;
}

void ReadyQueue::Erase(const Entry& entry) {
  const auto it = by_slots_.find(entry.slots);
  HEADSWEEP_CHECK(it != by_slots_.end(), "stage {} is not queued", entry.stage);
  Lines& lines = it->second;
  HEADSWEEP_CHECK((entry.child ? lines.children : lines.roots).erase(entry) == 1, "stage {} is not queued",
                  entry.stage);
  if (lines.roots.empty() && lines.children.empty()) by_slots_.erase(it);
  --size_;
}

int ReadyQueue::smallest() const {
  HEADSWEEP_CHECK(!empty(), "an empty queue has no smallest entry");
  return by_slots_.begin()->first;
}

double ReadyQueue::longest() const {
  double longest = 0;
  for (const auto& [slots, lines] : by_slots_) {
    for (const Line* line : {&lines.roots, &lines.children}) {
      if (!line->empty()) longest = std::max(longest, line->begin()->chain);
    }
  }
  return longest;
}

void ReadyQueue::Prefer(std::optional<Entry>& best, const Line& line, Line::const_iterator candidate) {
  if (candidate != line.end() && (!best || LongestFirst()(*candidate, *best))) best = *candidate;
}

std::optional<ReadyQueue::Entry> ReadyQueue::Best(int max_slots, double decisive) const {
  std::optional<Entry> root, child;
  for (auto it = by_slots_.begin(); it != by_slots_.end() && it->first <= max_slots; ++it) {
    Prefer(root, it->second.roots, it->second.roots.begin());
    Prefer(child, it->second.children, it->second.children.begin());
  }
  if (!child || (root && root->chain > decisive && root->chain > child->chain)) return root;
  return child;
}

std::optional<ReadyQueue::Entry> ReadyQueue::BestWithin(int max_slots, double max_chain) const {
  const Entry bound{.stage = -1, .slots = 0, .chain = max_chain};
  std::optional<Entry> root, child;
  for (auto it = by_slots_.begin(); it != by_slots_.end() && it->first <= max_slots; ++it) {
    Prefer(root, it->second.roots, it->second.roots.lower_bound(bound));
    Prefer(child, it->second.children, it->second.children.lower_bound(bound));
  }
  return child ? child : root;
}

}  // namespace headsweep
