// ReadyQueue: the stages that could start now, in the order in which they should. Part of the scheduler core,
// so it is pure. Order: the highest priority first; then the longest chain of work (a stage's own slot time plus that of the longest
// chain of stages behind it), because what is long and started late makes the sweep late. Children of
// finished stages come before stages without a parent, because their results are what the user waits for,
// unless the latter's chain is so long that it decides when the sweep ends. All operations are O(log stages)
// times the number of different priorities and slot counts, of which a sweep has few.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>

namespace headsweep {

class ReadyQueue {
 public:
  struct Entry {
    int stage = -1;  // position in the plan
    int slots = 1;
    double chain = 0;  // slot time, in FLOPs per slot
    bool child = false;
    int priority = 0;  // the sweep's; higher goes first
    bool operator==(const Entry&) const = default;
  };

  void Insert(const Entry& entry);
  void Erase(const Entry& entry);
  bool empty() const { return size_ == 0; }
  int size() const { return size_; }
  int smallest() const;  // the fewest slots that an entry needs; not for an empty queue

  double longest() const;  // chain of all entries; 0 for an empty queue

  // The next to start among those of at most max_slots. decisive: a chain longer than this decides when the
  // sweep ends.
  std::optional<Entry> Best(int max_slots, double decisive) const;
  // The first that fits among those of at most max_slots whose chain is at most max_chain. Of those that need as many slots, only
  // the first kLooks are looked at.
  using Fits = std::function<bool(const Entry& entry)>;
  static constexpr int kLooks = 32;
  std::optional<Entry> BestWithin(int max_slots, double max_chain, const Fits& fits) const;

 private:
  struct LongestFirst {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.chain != b.chain ? a.chain > b.chain : a.stage < b.stage;
    }
  };
  using Line = std::set<Entry, LongestFirst>;
  static void Prefer(std::optional<Entry>& best, const Line& line, Line::const_iterator candidate);

  struct Lines {
    Line roots, children;
  };
  using BySlots = std::map<int, Lines>;
  static std::optional<Entry> Best(const BySlots& by_slots, int max_slots, double decisive);
  static std::optional<Entry> BestWithin(const BySlots& by_slots, int max_slots, double max_chain, const Fits& fits);

  std::map<int, BySlots, std::greater<>> by_priority_;  // no empty line or level is kept
  int size_ = 0;
};

}  // namespace headsweep
