// Which slots are given out, and whose memory they share.
#include "launcher/slot_pool.h"

#include <gtest/gtest.h>

namespace headsweep {
namespace {

TEST(SlotPool, FillsTheFullestNodeThatHasRoom) {
  SlotPool pool;
  pool.AddNode(NodeId(0), "a", 4);
  pool.AddNode(NodeId(1), "b", 1);
  pool.AddNode(NodeId(2), "c", 2);
  EXPECT_EQ(pool.Take(1), (std::vector<SlotId>{{NodeId(1), 0}}));
  EXPECT_EQ(pool.Take(1), (std::vector<SlotId>{{NodeId(2), 0}}));
  EXPECT_EQ(pool.Take(3), (std::vector<SlotId>{{NodeId(0), 0}, {NodeId(0), 1}, {NodeId(0), 2}}));
  EXPECT_EQ(pool.Take(2), (std::vector<SlotId>{{NodeId(0), 3}, {NodeId(2), 1}}));
  EXPECT_EQ(pool.free(), 0);
}

TEST(SlotPool, ForgetsTheSlotsOfALostNode) {
  SlotPool pool;
  pool.AddNode(NodeId(0), "a", 2);
  pool.AddNode(NodeId(1), "b", 2);
  const std::vector<SlotId> taken = pool.Take(3);
  pool.Quarantine(taken[0]);
  EXPECT_EQ(pool.usable(), 3);
  pool.RemoveNode(NodeId(0));
  pool.Restore(taken[0]);
  EXPECT_EQ(pool.total(), 2);
  pool.CheckInvariants({taken[2]});
}

TEST(SlotPool, SharesADeviceAsFarAsItsMemoryGoes) {
  SlotPool pool;
  pool.AddNode(NodeId(0), "a", 6, {10, 10});  // slots 0, 2, 4 lie on device 0
  const std::vector<SlotId> first = pool.Take(3, 4);
  EXPECT_EQ(first, (std::vector<SlotId>{{NodeId(0), 0}, {NodeId(0), 1}, {NodeId(0), 2}})) << "the emptier device first";
  EXPECT_FALSE(pool.Fits(2, 4));
  EXPECT_TRUE(pool.Fits(1, 4));
  EXPECT_TRUE(pool.Fits(2, 2));
  pool.Take(1, 4);
  EXPECT_FALSE(pool.Fits(1, 4)) << "two slots are free, but only 2 bytes on each device";
  EXPECT_TRUE(pool.HasCompany({first[0]}));
  EXPECT_FALSE(pool.HasCompany({first[0], first[2]})) << "its own processes are no company";
  pool.Release(first[2]);
  EXPECT_TRUE(pool.Fits(1, 4));
  pool.CheckInvariants({first[0], first[1], {NodeId(0), 3}});
}

TEST(SlotPool, GivesAnEmptyDeviceToWhatNeedsMoreThanItHas) {
  SlotPool pool;
  pool.AddNode(NodeId(0), "a", 2, {10});
  EXPECT_FALSE(pool.Fits(2, 11));
  const std::vector<SlotId> taken = pool.Take(1, 11);
  EXPECT_FALSE(pool.Fits(1, 1)) << "it has taken all there is";
  pool.Release(taken[0]);
  EXPECT_TRUE(pool.Fits(2, 5));
  pool.Take(1, SlotPool::kWholeDevice);
  EXPECT_FALSE(pool.Fits(1, 0)) << "not even to what is thought to need nothing";
}

TEST(SlotPool, DoesNotLookAtMemoryThatIsNotKnown) {
  SlotPool pool;
  pool.AddNode(NodeId(0), "a", 2);
  EXPECT_TRUE(pool.Fits(2, 1000));
  EXPECT_FALSE(pool.HasCompany({pool.Take(2, 1000)[0]}));
}

TEST(SlotPool, LooksForMemoryOnEveryNode) {
  SlotPool pool;
  pool.AddNode(NodeId(0), "small", 2, {3});
  pool.AddNode(NodeId(1), "large", 4, {100});
  EXPECT_EQ(pool.Take(2, 3), (std::vector<SlotId>{{NodeId(1), 0}, {NodeId(1), 1}})) << "the fullest node has no memory for both";
  EXPECT_EQ(pool.Take(3, 2), (std::vector<SlotId>{{NodeId(0), 0}, {NodeId(1), 2}, {NodeId(1), 3}}));
  EXPECT_EQ(pool.free(), 1);
}

TEST(SlotPool, ForeseesWhenMemoryComesFree) {
  SlotPool pool;
  pool.AddNode(NodeId(0), "a", 4, {10});
  const std::vector<SlotId> large = pool.Take(1, 6), small = pool.Take(1, 2);
  EXPECT_EQ(pool.EndsUntilFit(1, 2, {&small, &large}), 0);
  EXPECT_EQ(pool.EndsUntilFit(1, 4, {&small, &large}), 1);
  EXPECT_EQ(pool.EndsUntilFit(1, 7, {&small, &large}), 2);
  EXPECT_EQ(pool.EndsUntilFit(1, 7, {&large, &small}), 1);
  EXPECT_EQ(pool.EndsUntilFit(2, 7, {&large, &small}), -1);
}

}  // namespace
}  // namespace headsweep
