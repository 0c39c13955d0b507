// Gang: the processes of one attempt, from the coordinator's point of view: where each runs, what is over,
// and what all their ends together mean. Pure: no clock, message or process in it. A trial of one process is
// a gang of one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/base/ids.h"
#include "launcher/attempt_outcome.h"
#include "launcher/slot_pool.h"

namespace headsweep {

class Gang {
 public:
  // Rank r runs on slots[r].
  Gang(Attempt attempt, std::vector<SlotId> slots);

  Attempt attempt() const { return attempt_; }
  int size() const { return static_cast<int>(members_.size()); }
  std::vector<NodeId> nodes() const;  // the one of rank 0 first, each once
  std::vector<int> RanksOn(NodeId node) const;
  int SlotOf(int rank) const { return At(rank).slot.index; }

  // The node was told to start its ranks.
  void OnStarted(NodeId node);
  bool IsStarted(NodeId node) const;
  void OnEnded(int rank, const AttemptVerdict& verdict);  // the first end of a rank counts
  void OnNodeLost(NodeId node);                           // its ranks are over

  bool any_ended() const;
  bool any_failed() const;  // then the others wait for something that never comes
  // Every process is gone: each rank has ended, or was never started and, since another has ended, never will
  // be.
  bool over() const;
  // What the attempt came to. A sealed result wins. Otherwise the first rank that failed for a reason of its
  // own; then the first that only lost its peers (with the ranks that had to be killed: frozen, or cut off);
  // then a stop.
  AttemptVerdict Verdict() const;

 private:
  struct Member {
    SlotId slot;
    bool started = false, lost = false;
    std::optional<AttemptVerdict> end;
    int order = 0;  // of the end
  };
  const Member& At(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }
  std::string Tell(int rank) const;
  AttemptVerdict PeerFailure(int rank) const;

  Attempt attempt_;
  std::vector<Member> members_;
  int ends_ = 0;
};

}  // namespace headsweep
