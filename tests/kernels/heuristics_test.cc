// Tile choices of the CUDA attention kernels: pure functions, no card.
#include "kernels/cuda/heuristics.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace headsweep {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kSmallest = 99 * kKiB;  // sm_86 and 89: what must do
constexpr std::int64_t kAmpere = 163 * kKiB, kHopper = 227 * kKiB;
constexpr AttentionPass kPasses[] = {AttentionPass::kForward, AttentionPass::kQueryGradient,
                                     AttentionPass::kKeyGradient};

DeviceLimits Device(std::int64_t shared_bytes, int processors = 132) { return {shared_bytes, processors}; }

TEST(AttentionHeuristics, ClassIsTheSmallestThatHoldsTheHeadSize) {
  EXPECT_EQ(HeadClass(1), 16);
  EXPECT_EQ(HeadClass(16), 16);
  EXPECT_EQ(HeadClass(17), 32);
  EXPECT_EQ(HeadClass(80), 96);
  EXPECT_EQ(HeadClass(257), 512);
  for (int D = 1; D <= kMaxHeadSize; ++D) {
    const int head = HeadClass(D);
    EXPECT_GE(head, D);
    for (int other : kHeadClasses) {
      if (other >= D) {
        EXPECT_GE(other, head) << D;
      }
    }
  }
  EXPECT_EQ(HeadClass(kMaxHeadSize + 1), 0);
}

using PlanParam = std::tuple<int, std::int64_t>;  // element bytes, shared memory

class AttentionPlans : public ::testing::TestWithParam<PlanParam> {};

TEST_P(AttentionPlans, EveryHeadSizeFitsAndIsCoveredOnce) {
  const auto [element_bytes, shared_bytes] = GetParam();
  for (AttentionPass pass : kPasses) {
    for (int D = 1; D <= kMaxHeadSize; ++D) {
      for (std::int64_t rows : {1, 16, 17, 63, 64, 65, 127, 128, 192, 300, 512, 4096}) {
        SCOPED_TRACE("pass " + std::to_string(static_cast<int>(pass)) + " D " + std::to_string(D) + " rows " +
                     std::to_string(rows));
        const AttentionPlan plan = PlanAttention(pass, element_bytes, D, 64, rows, Device(shared_bytes));
        ASSERT_GE(plan.warps, 1);
        ASSERT_LE(plan.warps, pass == AttentionPass::kForward ? kMaxWarps : kMaxWarps / 2);
        ASSERT_TRUE(plan.stages == 1 || plan.stages == 2);
        ASSERT_LE(plan.shared_bytes, shared_bytes);
        ASSERT_EQ(plan.shared_bytes, SharedBytes(pass, element_bytes, HeadClass(D), plan.warps, plan.stages));
        const std::int64_t own = static_cast<std::int64_t>(plan.warps) * kWarpRows;
        ASSERT_GE(plan.tiles * own, rows);
        ASSERT_LT((plan.tiles - 1) * own, rows);
        const std::int64_t out = AttentionTile(pass, element_bytes, HeadClass(D)).out;
        ASSERT_GE(plan.chunks * out, D);
        ASSERT_LT((plan.chunks - 1) * out, D);
        ASSERT_EQ(plan.blocks, 64 * plan.tiles * plan.chunks);
      }
    }
  }
}

std::string PlanName(const ::testing::TestParamInfo<PlanParam>& of) {
  return "bytes" + std::to_string(std::get<0>(of.param)) + "_shared" +
         std::to_string(std::get<1>(of.param) / kKiB) + "KiB";
}
INSTANTIATE_TEST_SUITE_P(Devices, AttentionPlans,
                         ::testing::Combine(::testing::Values(2, 4),
                                            ::testing::Values(kSmallest, kAmpere, kHopper)),
                         PlanName);

TEST(AttentionHeuristics, TilesKeepWhatTheKernelsRelyOn) {
  for (AttentionPass pass : kPasses) {
    for (int element_bytes : {2, 4}) {
      for (int head : kHeadClasses) {
        const TileShape shape = AttentionTile(pass, element_bytes, head);
        SCOPED_TRACE("pass " + std::to_string(static_cast<int>(pass)) + " bytes " +
                     std::to_string(element_bytes) + " head " + std::to_string(head));
        EXPECT_EQ(shape.head, head);
        EXPECT_EQ(shape.head % shape.out, 0) << "chunks of columns end where the class does";
        EXPECT_EQ(shape.stream % (element_bytes == 2 ? 16 : 8), 0) << "whole fragments";
        EXPECT_LE(shape.stream, 64) << "dropout: one bit a probability in 32, stream / 2 of them a lane";
        // Float32 sums and tiles of logits in registers, of 255 a thread: leave room for addresses and
        // operands.
        const int sums = pass == AttentionPass::kKeyGradient ? 2 : 1;
        const int tiles = pass == AttentionPass::kForward ? 1 : 2;
        EXPECT_LE(sums * shape.out / 2 + tiles * shape.stream / 2, 160);
      }
    }
  }
}

TEST(AttentionHeuristics, UsualHeadSizesOverlapCopiesWithWorkOnEveryDevice) {
  for (std::int64_t shared_bytes : {kSmallest, kAmpere, kHopper}) {
    for (AttentionPass pass : kPasses) {
      for (int D : {32, 64, 96, 128}) {
        const AttentionPlan plan = PlanAttention(pass, 2, D, 192, 512, Device(shared_bytes));
        EXPECT_EQ(plan.stages, 2) << D;
        EXPECT_GE(plan.warps, 4) << D;
      }
    }
  }
}

TEST(AttentionHeuristics, ABlockIsNoLargerThanItsRows) {
  const auto warps = [](std::int64_t rows) {
    return PlanAttention(AttentionPass::kForward, 2, 64, 1000, rows, Device(kHopper)).warps;
  };
  EXPECT_EQ(warps(1), 1);
  EXPECT_EQ(warps(16), 1);
  EXPECT_EQ(warps(17), 2);
  EXPECT_EQ(warps(33), 4);
  EXPECT_EQ(warps(64), 4);
}

TEST(AttentionHeuristics, WideBlocksWhereTheyAreFullAndLeaveEnoughOfThem) {
  const auto warps = [](std::int64_t heads, std::int64_t rows) {
    return PlanAttention(AttentionPass::kForward, 2, 64, heads, rows, Device(kHopper)).warps;
  };
  EXPECT_EQ(warps(1000, 128), 8);
  EXPECT_EQ(warps(1000, 192), 4);  // T % 128 = 64: half of the second block would be empty
  EXPECT_EQ(warps(1000, 250), 8);
  EXPECT_EQ(warps(1000, 1088), 8);  // one empty half among nine
  EXPECT_EQ(warps(100, 128), 4);    // 100 blocks would leave processors idle
  EXPECT_EQ(PlanAttention(AttentionPass::kKeyGradient, 2, 64, 1000, 128, Device(kHopper)).warps, 4);
}

TEST(AttentionHeuristics, NothingToDoIsNoBlocks) {
  EXPECT_EQ(PlanAttention(AttentionPass::kForward, 2, 64, 0, 128, Device(kHopper)).blocks, 0);
  EXPECT_EQ(PlanAttention(AttentionPass::kKeyGradient, 4, 64, 8, 0, Device(kHopper)).blocks, 0);
}

TEST(AttentionHeuristics, NoPlanWhereSharedMemoryIsTooSmall) {
  EXPECT_EQ(PlanAttention(AttentionPass::kForward, 4, 512, 8, 128, Device(48 * kKiB)).warps, 0);
}

TEST(AttentionHeuristics, WidestAccessThatEveryRowAllows) {
  const auto access = [](int D, int element_bytes, std::int64_t stride, std::uint64_t address) {
    const auto bytes = static_cast<std::uint64_t>(element_bytes);
    return AccessBytes(
        static_cast<std::uint64_t>(D) * bytes | static_cast<std::uint64_t>(stride) * bytes | address,
        element_bytes);
  };
  EXPECT_EQ(access(64, 2, 3 * 8 * 64, 4096), 16);
  EXPECT_EQ(access(40, 2, 3 * 40, 4096), 16);
  EXPECT_EQ(access(58, 2, 3 * 58, 4096), 4);
  EXPECT_EQ(access(59, 2, 3 * 59, 4096), 2);
  EXPECT_EQ(access(64, 2, 65, 4096), 2);      // rows of an odd stride
  EXPECT_EQ(access(64, 2, 64, 4096 + 8), 4);  // a tensor that begins in the middle of a row of 16 bytes
  EXPECT_EQ(access(64, 2, 64, 4096 + 2), 2);
  EXPECT_EQ(access(59, 4, 59, 4096), 4);
  EXPECT_EQ(access(4, 4, 8, 4096), 16);
}

}  // namespace
}  // namespace headsweep
