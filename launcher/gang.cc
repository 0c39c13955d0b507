#include "launcher/gang.h"

#include <algorithm>

#include "cluster/base/errors.h"
#include "launcher/failure_policy.h"
#include "trainer/control_protocol.h"

namespace headsweep {

Gang::Gang(Attempt attempt, std::vector<SlotId> slots) : attempt_(attempt) {
  HEADSWEEP_CHECK(!slots.empty(), "attempt {} has no slot", attempt.value());
  for (const SlotId& slot : slots) {
    Member member;
    member.slot = slot;
    members_.push_back(std::move(member));
  }
}

std::vector<NodeId> Gang::nodes() const {
  std::vector<NodeId> nodes;
  for (const Member& member : members_)
    if (std::find(nodes.begin(), nodes.end(), member.slot.node) == nodes.end())
      nodes.push_back(member.slot.node);
  return nodes;
}

std::vector<int> Gang::RanksOn(NodeId node) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank)
    if (At(rank).slot.node == node) ranks.push_back(rank);
  return ranks;
}

void Gang::OnStarted(NodeId node) {
  for (Member& member : members_) member.started = member.started || member.slot.node == node;
}

bool Gang::IsStarted(NodeId node) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member& m) { return m.slot.node == node && m.started; });
}

void Gang::OnEnded(int rank, const AttemptVerdict& verdict) {
  if (rank < 0 || rank >= size() || At(rank).end) return;
  Member& member = members_[static_cast<std::size_t>(rank)];
  member.end = verdict;
  member.order = ends_++;
}

void Gang::OnNodeLost(NodeId node) {
  for (Member& member : members_) member.lost = member.lost || member.slot.node == node;
}

bool Gang::any_ended() const {
  return std::any_of(members_.begin(), members_.end(), [](const Member& m) { return m.end || m.lost; });
}

bool Gang::any_failed() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& m) { return m.lost || (m.end && m.end->outcome == control::kFailed); });
}

bool Gang::over() const {
  return any_ended() && std::all_of(members_.begin(), members_.end(),
                                    [](const Member& m) { return m.end || m.lost || !m.started; });
}

std::string Gang::Tell(int rank) const {
  const std::string& message = At(rank).end->message;
  return size() == 1 ? message : fmt::format("rank {} of {}: {}", rank, size(), message);
}

AttemptVerdict Gang::PeerFailure(int rank) const {
  AttemptVerdict verdict = *At(rank).end;
  verdict.message = Tell(rank);
  for (int other = 0; other < size(); ++other) {
    if (At(other).end && At(other).end->outcome == control::kStopped)
      verdict.message +=
          fmt::format("; rank {} did not end by itself and was killed: it was frozen, or cut off", other);
  }
  return verdict;
}

AttemptVerdict Gang::Verdict() const {
  std::vector<int> ended;
  for (int rank = 0; rank < size(); ++rank)
    if (At(rank).end) ended.push_back(rank);
  if (ended.empty())
    return {.outcome = control::kFailed,
            .cause = cause::kLostNode,
            .message = "its nodes were lost",
            .summary = ""};
  for (const int rank : ended) {  // rank 0 first: its word is the trial's
    const AttemptVerdict& end = *At(rank).end;
    if (end.outcome == control::kFinished || end.outcome == control::kDiverged) return end;
  }
  std::sort(ended.begin(), ended.end(), [&](int a, int b) { return At(a).order < At(b).order; });
  const auto failed_by = [&](bool peer) {
    return std::find_if(ended.begin(), ended.end(), [&](int rank) {
      const AttemptVerdict& end = *At(rank).end;
      return end.outcome == control::kFailed && (end.cause == control::kCausePeer) == peer;
    });
  };
  if (const auto own = failed_by(false); own != ended.end()) {
    AttemptVerdict verdict = *At(*own).end;
    verdict.message = Tell(*own);
    return verdict;
  }
  if (const auto peer = failed_by(true); peer != ended.end()) return PeerFailure(*peer);
  return *At(ended.front()).end;
}

}  // namespace headsweep
