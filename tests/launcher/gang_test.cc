// What the ends of a trial's processes mean together.
#include "launcher/gang.h"

#include <gtest/gtest.h>

#include "launcher/failure_policy.h"

namespace headsweep {
namespace {

AttemptVerdict End(const std::string& outcome, const std::string& cause = "", const std::string& message = "",
                   const std::string& summary = "") {
  return {.outcome = outcome, .cause = cause, .message = message, .summary = summary};
}

// Three processes on two nodes, all started.
Gang Running() {
  Gang gang(Attempt(4), {{NodeId(2), 0}, {NodeId(2), 1}, {NodeId(1), 5}});
  gang.OnStarted(NodeId(2));
  gang.OnStarted(NodeId(1));
  return gang;
}

TEST(Gang, KnowsWhereItsRanksAre) {
  const Gang gang = Running();
  EXPECT_EQ(gang.nodes(), (std::vector<NodeId>{NodeId(2), NodeId(1)})) << "rank 0's first";
  EXPECT_EQ(gang.RanksOn(NodeId(2)), (std::vector<int>{0, 1}));
  EXPECT_EQ(gang.SlotOf(2), 5);
  EXPECT_TRUE(gang.RanksOn(NodeId(7)).empty());
}

TEST(Gang, IsOverWhenTheLastProcessIsGone) {
  Gang gang = Running();
  EXPECT_FALSE(gang.any_ended());
  gang.OnEnded(1, End("finished"));
  EXPECT_TRUE(gang.any_ended());
  EXPECT_FALSE(gang.any_failed());
  gang.OnEnded(0, End("finished", "", "", "{numbers}"));
  EXPECT_FALSE(gang.over());
  gang.OnEnded(2, End("finished"));
  EXPECT_TRUE(gang.over());
  EXPECT_EQ(gang.Verdict().summary, "{numbers}") << "rank 0's";
}

TEST(Gang, ASealedResultWins) {
  Gang gang = Running();
  gang.OnEnded(2, End("failed", "signal"));
  gang.OnEnded(1, End("failed", "peer"));
  gang.OnEnded(0, End("diverged", "", "", "{numbers}"));
  EXPECT_EQ(gang.Verdict().outcome, "diverged");
}

TEST(Gang, TheFirstFailureOfItsOwnIsTheCauseWhateverWasHeardFirst) {
  Gang gang = Running();
  gang.OnEnded(0, End("failed", "peer", "lost a peer"));
  gang.OnEnded(1, End("failed", "out-of-memory", "too big"));
  gang.OnEnded(2, End("failed", "signal", "signal 9"));
  const AttemptVerdict verdict = gang.Verdict();
  EXPECT_EQ(verdict.cause, "out-of-memory");
  EXPECT_EQ(verdict.message, "rank 1 of 3: too big");
}

TEST(Gang, AFrozenProcessIsNamed) {
  Gang gang = Running();
  gang.OnEnded(2, End("failed", "peer", "all-reduce timed out"));
  gang.OnEnded(0, End("failed", "peer", "all-reduce timed out"));
  gang.OnEnded(1, End("stopped", "", "killed: another process of its trial failed"));
  const AttemptVerdict verdict = gang.Verdict();
  EXPECT_EQ(verdict.outcome, "failed");
  EXPECT_EQ(verdict.cause, "peer");
  EXPECT_NE(verdict.message.find("rank 1 did not end by itself"), std::string::npos) << verdict.message;
}

TEST(Gang, WhoNoticedThatHisPeersAreGoneWasNotFrozen) {
  AttemptFacts facts;
  facts.exit = ExitStatus{.code = 69, .signal = 0};
  facts.killed_because = kKilledPeerFailed;
  EXPECT_EQ(JudgeAttempt(facts).outcome, "stopped");
  facts.said_done = true;
  facts.done_outcome = "failed";
  facts.done_cause = "peer";
  EXPECT_EQ(JudgeAttempt(facts).outcome, "failed");
  EXPECT_EQ(JudgeAttempt(facts).cause, "peer");
  facts.killed_because = kKilledByUser;
  EXPECT_EQ(JudgeAttempt(facts).outcome, "stopped");
}

TEST(Gang, AStopIsAStop) {
  Gang gang = Running();
  for (const int rank : {0, 1, 2}) gang.OnEnded(rank, End("stopped"));
  EXPECT_EQ(gang.Verdict().outcome, "stopped");
}

TEST(Gang, WhatWasNeverStartedIsNotWaitedFor) {
  Gang gang(Attempt(1), {{NodeId(0), 0}, {NodeId(1), 0}});
  EXPECT_FALSE(gang.over());
  gang.OnStarted(NodeId(0));
  EXPECT_FALSE(gang.over());
  gang.OnEnded(0, End("stopped"));
  EXPECT_TRUE(gang.over());
}

TEST(Gang, LostNodesAreNotWaitedForEither) {
  Gang gang = Running();
  gang.OnNodeLost(NodeId(2));
  EXPECT_TRUE(gang.any_failed());
  EXPECT_FALSE(gang.over());
  gang.OnNodeLost(NodeId(1));
  EXPECT_TRUE(gang.over());
  EXPECT_EQ(gang.Verdict().cause, cause::kLostNode);
}

TEST(Gang, TheFirstEndOfARankCountsAndWrongRanksChangeNothing) {
  Gang gang(Attempt(1), {{NodeId(0), 0}});
  gang.OnStarted(NodeId(0));
  gang.OnEnded(3, End("finished"));
  gang.OnEnded(-1, End("finished"));
  EXPECT_FALSE(gang.any_ended());
  gang.OnEnded(0, End("failed", "exit", "code 3"));
  gang.OnEnded(0, End("finished"));
  EXPECT_EQ(gang.Verdict().outcome, "failed");
  EXPECT_EQ(gang.Verdict().message, "code 3") << "a trial of one process needs no rank";
}

}  // namespace
}  // namespace headsweep
