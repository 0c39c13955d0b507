// What the PTX instructions of ptx.h do, for the CPU: the last lane that arrives does the work of all 32.
// Products are exact in float32 (bf16 x bf16 fits); sums are taken in float32, k rising, on top of d. A card
// adds up in another, unspecified order, so the last bits differ.
#pragma once

#include <cstdint>

#include "kernels/cuda/on_host/executor.h"

namespace headsweep::cuda_on_host::internal {

// All of a warp: d += a b for fragments in the layout of mma.m16n8k16.
void MmaBf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);

// count: 2 or 4 matrices; r: `count` registers.
void LoadMatrices(std::uint32_t* r, const void* row, int count, bool transposed);

template <int kCount, bool kTransposed>
void LoadMatrix(std::uint32_t (&r)[kCount], const void* row) {
  LoadMatrices(r, row, kCount, kTransposed);
}

// The target is poisoned at once and filled at the wait: the latest moment that a card allows.
void CopyAsync16(void* to, const void* from, bool valid);
inline void CopyAsyncCommit() { ++current->copy_group; }
void CopyAsyncWait(std::uint64_t unfinished_groups);

}  // namespace headsweep::cuda_on_host::internal
