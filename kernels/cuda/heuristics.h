// Tile choices of the attention kernels: pure host functions and constants, tested without a card.
//
// A head size D is padded with zeros, in shared memory only, to the next head-size class. A block of threads
// owns 16 rows per warp of one (example, head) and streams tiles of the other side past them:
//   kForward        owns queries, streams keys and values, sums O
//   kQueryGradient  owns queries and their dO, streams keys and values, sums dQ
//   kKeyGradient    owns keys and values, streams queries and their dO, sums dK and dV
// Sums live in registers, `out` columns at a time: where out < head, a block of its own does each chunk of
// columns, and draws the probabilities again. So head sizes up to 512 need no scratch in device memory at
// all.
//
// C++17 without any CUDA header: used by host code and, as constants, by kernels.
#pragma once

#include <cstdint>

namespace headsweep {

enum class AttentionPass { kForward, kQueryGradient, kKeyGradient };

inline constexpr int kMaxHeadSize = 512;
inline constexpr int kHeadClasses[] = {16, 32, 64, 96, 128, 256, 512};
inline constexpr int kWarpRows = 16;  // rows that a warp owns: the height of mma.m16n8k16
inline constexpr int kMaxWarps = 8;   // of a block, kForward; the gradients' blocks have four at most

// The smallest class that holds D, 1 <= D <= kMaxHeadSize.
constexpr int HeadClass(int D) {
  for (int head : kHeadClasses) {
    if (D <= head) return head;
  }
  return 0;
}

// What a kernel is compiled for.
struct TileShape {
  int head;    // columns of rows in shared memory: the class
  int out;     // columns that a block sums in registers, out / 2 registers a thread and sum
  int stream;  // rows of a streamed tile; the tile of logits takes stream / 2 registers a thread
};

// Registers bound `out` and `stream` (255 a thread; with a sum, logits and, in the gradients, their
// gradients: at head 128, kKeyGradient, 2 * 64 + 2 * 16 = 160), shared memory bounds `stream`
// (PlanAttention).
constexpr TileShape AttentionTile(AttentionPass pass, int element_bytes, int head) {
  const bool half = element_bytes == 2;
  TileShape shape{head, head, 32};
  if (pass == AttentionPass::kForward) {
    if (shape.out > 256) shape.out = 256;
    shape.stream = half ? (head <= 128 ? 64 : 32) : (head <= 128 ? 32 : 16);
  } else if (pass == AttentionPass::kQueryGradient) {
    if (shape.out > 256) shape.out = 256;
    shape.stream = half ? (head <= 64    ? 64
                           : head <= 256 ? 32
                                         : 16)
                        : (head <= 64    ? 32
                           : head <= 256 ? 16
                                         : 8);
  } else {
    if (shape.out > 128) shape.out = 128;
    shape.stream = half ? (head <= 256 ? 32 : 16) : (head <= 64 ? 32 : head <= 256 ? 16 : 8);
  }
  return shape;
}

// Blocks that a multiprocessor should at least hold, as __launch_bounds__ wants it, hence registers a thread:
// two blocks of 256 threads allow 128. 0 leaves it to ptxas, which for bf16 gradients up to head size 64
// settles near 168, three blocks of four warps, where asking for three would make it spill. 1: all 255.
constexpr int MinimumBlocks(AttentionPass pass, int element_bytes, int head) {
  const bool half = element_bytes == 2;
  if (pass == AttentionPass::kForward) return head <= (half ? 64 : 16) ? 2 : 1;
  return half && head <= 64 ? 0 : 1;
}

// Floats of scratch per warp that turn a tile of probabilities into an operand of the second product; the
// tensor cores need none. Rows of stream + 8 floats: no bank conflicts, neither written by columns nor read
// by rows.
constexpr int StagingFloats(int element_bytes, int stream) {
  return element_bytes == 2 ? 0 : kWarpRows * (stream + 8);
}

// Dynamic shared memory of a block: own rows, `stages` streamed tiles, staging, and with kKeyGradient two
// floats a streamed row (log-sum-exp, delta).
constexpr std::int64_t SharedBytes(AttentionPass pass, int element_bytes, int head, int warps, int stages) {
  const TileShape shape = AttentionTile(pass, element_bytes, head);
  const bool forward = pass == AttentionPass::kForward;
  const std::int64_t own =
      static_cast<std::int64_t>(forward ? 1 : 2) * warps * kWarpRows * head * element_bytes;
  const std::int64_t tile =
      static_cast<std::int64_t>(shape.stream) * (forward ? head + shape.out : 2 * head) * element_bytes;
  const std::int64_t rows = pass == AttentionPass::kKeyGradient ? 2 * shape.stream * std::int64_t{4} : 0;
  return own + stages * (tile + rows) + std::int64_t{4} * warps * StagingFloats(element_bytes, shape.stream);
}

// What the choice depends on besides the shape.
struct DeviceLimits {
  std::int64_t shared_bytes =
      0;               // per block, opted in: 99 KiB (sm_86, 89), 163 KiB (sm_80), 227 KiB (sm_90, 100)
  int processors = 1;  // streaming multiprocessors
};

struct AttentionPlan {
  int warps = 0;   // of a block: 1, 2, 4 or 8; it owns kWarpRows * warps rows
  int stages = 0;  // 2: the next tile arrives while one is worked on; 1: shared memory is too small for that
  std::int64_t shared_bytes = 0;
  std::int64_t tiles = 0;   // of own rows, per (example, head)
  std::int64_t chunks = 0;  // of output columns
  std::int64_t blocks = 0;  // heads * tiles * chunks
};

// Warps that the rows and the device call for, whatever fits.
// Eight warps halve the traffic of streamed tiles: with four, 64 queries a block at head size 64 need 16 KiB
// a megaflop, beyond an H100's L2 at full rate. But a block of 128 rows must not be half empty (T = 192), and
// must leave enough blocks to fill the device.
inline int WantedWarps(AttentionPass pass, int head, std::int64_t heads, std::int64_t rows,
                       const DeviceLimits& limits) {
  int warps = 4;
  while (warps > 1 && rows <= kWarpRows * (warps / 2)) warps /= 2;
  const std::int64_t wide = kWarpRows * kMaxWarps;
  const bool full = (rows + wide - 1) / wide * wide - rows < wide / 2 || rows >= 4 * wide;
  const bool busy = heads * ((rows + wide - 1) / wide) >= 2 * static_cast<std::int64_t>(limits.processors);
  if (pass == AttentionPass::kForward && head <= 128 && rows > wide / 2 && full && busy) warps = kMaxWarps;
  return warps;
}

// heads: B * H; rows: own ones per (example, head), T or S. warps == 0 where nothing fits, which no device
// with 99 KiB sees.
inline AttentionPlan PlanAttention(AttentionPass pass, int element_bytes, int D, std::int64_t heads,
                                   std::int64_t rows, const DeviceLimits& limits) {
  const int head = HeadClass(D);
  const int out = AttentionTile(pass, element_bytes, head).out;
  AttentionPlan plan;
  for (int warps = WantedWarps(pass, head, heads, rows, limits); warps >= 1 && plan.warps == 0; warps /= 2) {
    for (int stages = 2; stages >= 1 && plan.warps == 0; --stages) {
      const std::int64_t bytes = SharedBytes(pass, element_bytes, head, warps, stages);
      if (bytes > limits.shared_bytes) continue;
      plan.warps = warps;
      plan.stages = stages;
      plan.shared_bytes = bytes;
    }
  }
  if (plan.warps == 0) return plan;
  const std::int64_t own = static_cast<std::int64_t>(kWarpRows) * plan.warps;
  plan.tiles = (rows + own - 1) / own;
  plan.chunks = (D + out - 1) / out;
  plan.blocks = heads * plan.tiles * plan.chunks;
  return plan;
}

// Widest access (16, 4 or element_bytes) that divides everything: bytes of a head's row, of the row strides,
// and the addresses, all or-ed together by the caller.
constexpr int AccessBytes(std::uint64_t ored, int element_bytes) {
  return ored % 16 == 0 ? 16 : ored % 4 == 0 ? 4 : element_bytes;
}

}  // namespace headsweep
