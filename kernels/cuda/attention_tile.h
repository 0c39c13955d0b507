// Tiles of rows in shared memory, as the attention kernels use them: where a value lies, how a tile arrives,
// how rows leave.
//
// A tile is (rows, kWidth), kWidth a multiple of 16, in chunks of 16 bytes. Chunks of a row are permuted by
// an exclusive or with bits of the row's number, so that eight neighbouring rows' chunks at one column lie in
// different banks: neither ldmatrix nor a float4 read down a column conflicts, and no byte is lost to
// padding. The permutation repeats every 8 rows: a warp may number its own 16 rows from 0.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/numeric.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/ptx.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

template <class T>
inline constexpr int kChunk = 16 / static_cast<int>(sizeof(T));  // values in 16 bytes

// Offset of a chunk, in values.
template <class T, int kWidth>
__device__ __forceinline__ int ChunkOffset(int row, int chunk) {
  constexpr int kChunks = kWidth / kChunk<T>;
  static_assert(kChunks % 2 == 0, "a row is a multiple of 32 bytes");
  constexpr int kMask = kChunks % 8 == 0 ? 7 : kChunks % 4 == 0 ? 3 : 1;
  constexpr int kRowsPerLine = 8 / (kMask + 1);  // rows whose chunks share the 8 bank groups
  return (row * kChunks + (chunk ^ (row / kRowsPerLine & kMask))) * kChunk<T>;
}

template <class T, int kWidth>
__device__ __forceinline__ int ValueOffset(int row, int column) {
  return ChunkOffset<T, kWidth>(row, column / kChunk<T>) + column % kChunk<T>;
}

// An access of sizeof(Unit) bytes, whatever the type of what is there.
template <class Unit>
__device__ __forceinline__ Unit LoadUnit(const void* from) {
#if defined(HEADSWEEP_CUDA_ON_HOST)
  Unit unit;
  std::memcpy(&unit, from, sizeof(unit));
  return unit;
#else
  return *static_cast<const Unit*>(from);
#endif
}
template <class Unit>
__device__ __forceinline__ void StoreUnit(void* to, Unit unit) {
#if defined(HEADSWEEP_CUDA_ON_HOST)
  std::memcpy(to, &unit, sizeof(unit));
#else
  *static_cast<Unit*>(to) = unit;
#endif
}

// Up to 16 bytes, in units that their address is a multiple of. `count` values are there, the others read as
// 0.
template <class Unit, class T>
__device__ __forceinline__ Pack<T> ReadChunk(const T* from, int count) {
  constexpr int kValues = static_cast<int>(sizeof(Unit) / sizeof(T));
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < kChunk<T>; i += kValues) {
    StoreUnit<Unit>(&pack.value[i], i < count ? LoadUnit<Unit>(from + i) : Unit{0});
  }
  return pack;
}
// The same where rows start at multiples of `access` bytes, `from` at one of 16 in its row.
template <class T>
__device__ __forceinline__ Pack<T> ReadValues(const T* from, int count, int access) {
  if (access == 16) return Pack<T>::Load(from);
  return sizeof(T) == 4 || access == 4 ? ReadChunk<std::uint32_t>(from, count)
                                       : ReadChunk<std::uint16_t>(from, count);
}
template <class Unit, class T>
__device__ __forceinline__ void WriteChunk(T* to, const Pack<T>& pack, int count) {
  constexpr int kValues = static_cast<int>(sizeof(Unit) / sizeof(T));
#pragma unroll
  for (int i = 0; i < kChunk<T>; i += kValues) {
    if (i < count) StoreUnit<Unit>(to + i, LoadUnit<Unit>(&pack.value[i]));
  }
}

// Rows in device memory, of one (example, head).
template <class T>
struct GlobalRows {
  T* base;              // of row 0, at the first column wanted
  std::int64_t stride;  // values from row to row
  int rows;             // that exist
  int columns;          // that exist, from base on
  int access;           // bytes: every row starts at a multiple of it, and columns end at one (AccessBytes)
};

// tile (tile_rows, kWidth) = rows first, first + 1, ... of `from`, zeros where there are none. All threads of
// the block call it. 16-byte rows come by cp.async: commit and wait before use; others are there after the
// next barrier.
template <class T, int kWidth>
__device__ __forceinline__ void LoadTile(T* tile, int tile_rows, const GlobalRows<const T>& from, int first) {
  constexpr int kChunks = kWidth / kChunk<T>;
  const int threads = static_cast<int>(blockDim.x);
  if (from.access == 16) {
    if constexpr (32 % kChunks == 0) {
      // A thread stays in its column and walks down, its address by additions alone.
      const int step = threads / kChunks, chunk = static_cast<int>(threadIdx.x) % kChunks;
      const int rows = chunk * kChunk<T> < from.columns ? from.rows - first : 0;  // that exist in this column
      int row = static_cast<int>(threadIdx.x) / kChunks;
      const T* address = from.base + (first + row) * from.stride + chunk * kChunk<T>;
#pragma unroll 1
      for (; row < tile_rows; row += step, address += step * from.stride) {
        CopyAsync16(tile + ChunkOffset<T, kWidth>(row, chunk), row < rows ? address : from.base, row < rows);
      }
    } else {
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x); i < tile_rows * kChunks; i += threads) {
        const int row = i / kChunks, chunk = i % kChunks;
        const bool valid = first + row < from.rows && chunk * kChunk<T> < from.columns;
        const T* address = from.base + (valid ? (first + row) * from.stride + chunk * kChunk<T> : 0);
        CopyAsync16(tile + ChunkOffset<T, kWidth>(row, chunk), address, valid);
      }
    }
    return;
  }
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < tile_rows * kChunks; i += threads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const int count = first + row < from.rows ? from.columns - chunk * kChunk<T> : 0;
    const T* address = from.base + (count > 0 ? (first + row) * from.stride + chunk * kChunk<T> : 0);
    ReadValues(address, count, from.access).Store(tile + ChunkOffset<T, kWidth>(row, chunk));
  }
}

// Rows first .. first + 15 of `to` = tile (16, kWidth), as far as they exist. One warp's lanes call it.
template <class T, int kWidth>
__device__ __forceinline__ void StoreWarpRows(const T* tile, const GlobalRows<T>& to, int first, int lane) {
  constexpr int kChunks = kWidth / kChunk<T>;
#pragma unroll 1
  for (int i = lane; i < 16 * kChunks; i += 32) {
    const int row = i / kChunks, chunk = i % kChunks;
    const int count = to.columns - chunk * kChunk<T>;
    if (first + row >= to.rows || count <= 0) continue;
    const Pack<T> pack = Pack<T>::Load(tile + ChunkOffset<T, kWidth>(row, chunk));
    T* address = to.base + (first + row) * to.stride + chunk * kChunk<T>;
    if (to.access == 16) {
      pack.Store(address);
    } else if (sizeof(T) == 4 || to.access == 4) {
      WriteChunk<std::uint32_t>(address, pack, count);
    } else {
      WriteChunk<std::uint16_t>(address, pack, count);
    }
  }
}

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
