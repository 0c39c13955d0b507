#include "launcher/ready_queue.h"

#include <algorithm>

#include "cluster/base/errors.h"

namespace headsweep {

void ReadyQueue::Insert(const Entry& entry) {
  Lines& lines = by_priority_[entry.priority][entry.slots];
  const bool added = (entry.child ? lines.children : lines.roots).insert(entry).second;
  HEADSWEEP_CHECK(added, "stage {} is queued twice", entry.stage);
  ++size_;
}

void ReadyQueue::Erase(const Entry& entry) {
  const auto level = by_priority_.find(entry.priority);
  HEADSWEEP_CHECK(level != by_priority_.end(), "stage {} is not queued", entry.stage);
  const auto it = level->second.find(entry.slots);
  HEADSWEEP_CHECK(it != level->second.end(), "stage {} is not queued", entry.stage);
  Lines& lines = it->second;
  HEADSWEEP_CHECK((entry.child ? lines.children : lines.roots).erase(entry) == 1, "stage {} is not queued",
                  entry.stage);
  if (lines.roots.empty() && lines.children.empty()) level->second.erase(it);
  if (level->second.empty()) by_priority_.erase(level);
  --size_;
}

int ReadyQueue::smallest() const {
  HEADSWEEP_CHECK(!empty(), "an empty queue has no smallest entry");
  int smallest = by_priority_.begin()->second.begin()->first;
  for (const auto& [priority, by_slots] : by_priority_) smallest = std::min(smallest, by_slots.begin()->first);
  return smallest;
}

double ReadyQueue::longest() const {
  double longest = 0;
  for (const auto& [priority, by_slots] : by_priority_) {
    for (const auto& [slots, lines] : by_slots) {
      for (const Line* line : {&lines.roots, &lines.children}) {
        if (!line->empty()) longest = std::max(longest, line->begin()->chain);
      }
    }
  }
  return longest;
}

void ReadyQueue::Prefer(std::optional<Entry>& best, const Line& line, Line::const_iterator candidate) {
  if (candidate != line.end() && (!best || LongestFirst()(*candidate, *best))) best = *candidate;
}

std::optional<ReadyQueue::Entry> ReadyQueue::Best(const BySlots& by_slots, int max_slots, double decisive) {
  std::optional<Entry> root, child;
  for (auto it = by_slots.begin(); it != by_slots.end() && it->first <= max_slots; ++it) {
    Prefer(root, it->second.roots, it->second.roots.begin());
    Prefer(child, it->second.children, it->second.children.begin());
  }
  if (!child || (root && root->chain > decisive && root->chain > child->chain)) return root;
  return child;
}

std::optional<ReadyQueue::Entry> ReadyQueue::BestWithin(const BySlots& by_slots, int max_slots, double max_chain,
                                                        const Fits& fits) {
  const auto first = [&](const Line& line) {
    auto candidate = line.lower_bound({.stage = -1, .slots = 0, .chain = max_chain});
    for (int looks = 0; candidate != line.end() && !fits(*candidate); ++candidate)
      if (++looks == kLooks) return line.end();
    return candidate;
  };
  std::optional<Entry> root, child;
  for (auto it = by_slots.begin(); it != by_slots.end() && it->first <= max_slots; ++it) {
    Prefer(root, it->second.roots, first(it->second.roots));
    Prefer(child, it->second.children, first(it->second.children));
  }
  return child ? child : root;
}

std::optional<ReadyQueue::Entry> ReadyQueue::Best(int max_slots, double decisive) const {
  for (const auto& [priority, by_slots] : by_priority_)
    if (const std::optional<Entry> best = Best(by_slots, max_slots, decisive)) return best;
  return std::nullopt;
}

std::optional<ReadyQueue::Entry> ReadyQueue::BestWithin(int max_slots, double max_chain, const Fits& fits) const {
  for (const auto& [priority, by_slots] : by_priority_)
    if (const std::optional<Entry> best = BestWithin(by_slots, max_slots, max_chain, fits)) return best;
  return std::nullopt;
}

}  // namespace headsweep
