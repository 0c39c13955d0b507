// Products of tiles, by one warp: 16 own rows against a streamed tile. Two engines with one interface: bf16
// on the tensor cores (mma.sync, float32 sums), float32 by fused multiply-adds.
//
// Sums lie in registers, spread over the warp: Fragment<T, N> is a (16, N) tile, of which a lane has kRows
// rows, and N / kRowLanes columns of each. At(r, j) is the lane's r-th row and j-th column of it;
// TileMath<T>::Row, Column and OutColumn say which. Lanes that share rows differ in their lowest bits only,
// so that sums and maxima along rows are butterflies (RowReduce).
//
// bf16: two rows, lane / 4 and + 8; column pairs 2 * (lane % 4) + 8i. This is the accumulator layout of
// mma.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16") and at once the layout of its left operand:
// probabilities go on to the second product without leaving registers.
//
// float: four rows, lane / 8 + 4r; columns lane % 8 + 8j of logits: each float4 of a streamed row, read once,
// serves four multiply-adds in four rows. Out columns come in fours, so that they too are read as float4.
// Probabilities reach the other lanes by shared memory, `staging`.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_tile.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

__device__ __forceinline__ float Exp2(float x) {  // 2^x; 0 of -infinity
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

template <class T>
struct TileMath;

// --- bf16 -------------------------------------------------------------------------------------------------
template <>
struct TileMath<bf16> {
  static constexpr int kRows = 2, kRowLanes = 4;
  static __device__ __forceinline__ int Row(int lane, int r) { return lane / kRowLanes + 8 * r; }
  static __device__ __forceinline__ int Column(int lane, int j) {
    return 8 * (j / 2) + 2 * (lane % kRowLanes) + j % 2;
  }

  template <int kColumns>
  struct Fragment {
    static constexpr int kPerRow = kColumns / kRowLanes;
    float x[kColumns / 8][4];
    __device__ __forceinline__ float& At(int r, int j) { return x[j / 2][2 * r + j % 2]; }
    static __device__ __forceinline__ int OutColumn(int lane, int j) { return Column(lane, j); }
  };

  // Own rows as left operand of the logits' product. kKeep: in registers, for kernels whose sums leave no
  // room for a second block on the multiprocessor but some for these.
  template <int kHead, bool kKeep>
  struct Operand {
    const bf16* rows;
    std::uint32_t kept[kKeep ? kHead / 16 : 1][4];

    static __device__ __forceinline__ void Read(const bf16* rows, int lane, int step, std::uint32_t (&a)[4]) {
      LoadMatrix4(a, rows + ChunkOffset<bf16, kHead>(lane % 16, 2 * step + lane / 16));
    }
    __device__ __forceinline__ void Load(const bf16* warp_rows, int lane) {
      rows = warp_rows;
      if (kKeep) {
#pragma unroll
        for (int step = 0; step < kHead / 16; ++step) Read(rows, lane, step, kept[kKeep ? step : 0]);
      }
    }
  };

  // x = own (16, kHead) tile (kStream, kHead)^T, the first 16 * steps columns of both.
  template <int kHead, bool kKeep, int kStream>
  static __device__ __forceinline__ void Logits(const Operand<kHead, kKeep>& own, const bf16* tile, int steps,
                                                int lane, Fragment<kStream>& fragment) {
#pragma unroll
    for (auto& x : fragment.x) {
#pragma unroll
      for (float& value : x) value = 0;
    }
    const auto step = [&](int k) {
      std::uint32_t a[4];
      if (kKeep) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = own.kept[kKeep ? k : 0][i];
      } else {
        Operand<kHead, kKeep>::Read(own.rows, lane, k, a);
      }
#pragma unroll
      for (int i = 0; i < kStream / 16; ++i) {
        std::uint32_t b[4];
        LoadMatrix4(b,
                    tile + ChunkOffset<bf16, kHead>(16 * i + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
        const std::uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
        MmaBf16(fragment.x[2 * i], a, first);
        MmaBf16(fragment.x[2 * i + 1], a, second);
      }
    };
    if constexpr (kKeep || kHead < 128) {
#pragma unroll
      for (int k = 0; k < kHead / 16; ++k) step(k);
    } else {  // a loop: addresses of all steps at once would not fit in registers
#pragma unroll 2
      for (int k = 0; k < steps; ++k) step(k);
    }
  }

  // out (16, kOut) += p (16, kStream) tile (kStream, columns column0 .. column0 + kOut of kWidth)
  template <int kWidth, int kStream, int kOut>
  static __device__ __forceinline__ void AddProduct(Fragment<kStream>& p, const bf16* tile, int column0,
                                                    int lane, float*, Fragment<kOut>& out) {
#pragma unroll
    for (int k = 0; k < kStream / 16; ++k) {
      const std::uint32_t a[4] = {
          PackBf16(p.x[2 * k][0], p.x[2 * k][1]), PackBf16(p.x[2 * k][2], p.x[2 * k][3]),
          PackBf16(p.x[2 * k + 1][0], p.x[2 * k + 1][1]), PackBf16(p.x[2 * k + 1][2], p.x[2 * k + 1][3])};
#pragma unroll
      for (int i = 0; i < kOut / 16; ++i) {
        std::uint32_t b[4];
        LoadMatrix4Transposed(
            b, tile + ChunkOffset<bf16, kWidth>(16 * k + lane % 16, column0 / 8 + 2 * i + lane / 16));
        const std::uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
        MmaBf16(out.x[2 * i], a, first);
        MmaBf16(out.x[2 * i + 1], a, second);
      }
    }
  }

  // tile (16, kOut) = factor[r] * out, rounded.
  template <int kOut>
  static __device__ __forceinline__ void Round(Fragment<kOut>& out, const float (&factor)[kRows], int lane,
                                               bf16* tile) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < Fragment<kOut>::kPerRow; j += 2) {
        StoreUnit<std::uint32_t>(tile + ValueOffset<bf16, kOut>(Row(lane, r), Column(lane, j)),
                                 PackBf16(factor[r] * out.At(r, j), factor[r] * out.At(r, j + 1)));
      }
    }
  }
};

// --- float ------------------------------------------------------------------------------------------------
template <>
struct TileMath<float> {
  static constexpr int kRows = 4, kRowLanes = 8;
  static __device__ __forceinline__ int Row(int lane, int r) { return lane / kRowLanes + 4 * r; }
  static __device__ __forceinline__ int Column(int lane, int j) { return lane % kRowLanes + 8 * j; }

  template <int kColumns>
  struct Fragment {
    static constexpr int kPerRow = kColumns / kRowLanes;
    static constexpr int kVector = kPerRow < 4 ? kPerRow : 4;  // of out columns
    float x[kRows][kPerRow];
    __device__ __forceinline__ float& At(int r, int j) { return x[r][j]; }
    static __device__ __forceinline__ int OutColumn(int lane, int j) {
      return j / kVector * (kRowLanes * kVector) + lane % kRowLanes * kVector + j % kVector;
    }
  };

  template <int kHead, bool kKeep>
  struct Operand {
    const float* rows;
    __device__ __forceinline__ void Load(const float* warp_rows, int) { rows = warp_rows; }
  };

  template <int kHead, bool kKeep, int kStream>
  static __device__ __forceinline__ void Logits(const Operand<kHead, kKeep>& own, const float* tile,
                                                int steps, int lane, Fragment<kStream>& fragment) {
    constexpr int kPerRow = Fragment<kStream>::kPerRow;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < kPerRow; ++j) fragment.x[r][j] = 0;
    }
#pragma unroll 2
    for (int chunk = 0; chunk < 4 * steps; ++chunk) {
      Pack<float> a[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) a[r] = Read<kHead>(own.rows, Row(lane, r), chunk);
#pragma unroll
      for (int j = 0; j < kPerRow; ++j) {
        const Pack<float> b = Read<kHead>(tile, Column(lane, j), chunk);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int r = 0; r < kRows; ++r) fragment.x[r][j] += a[r].value[i] * b.value[i];
        }
      }
    }
  }

  template <int kWidth, int kStream, int kOut>
  static __device__ __forceinline__ void AddProduct(Fragment<kStream>& p, const float* tile, int column0,
                                                    int lane, float* staging, Fragment<kOut>& out) {
    constexpr int kPitch = kStream + 8, kPerRow = Fragment<kOut>::kPerRow, kVector = Fragment<kOut>::kVector;
    __syncwarp();  // staging may still be read
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < Fragment<kStream>::kPerRow; ++j) {
        staging[Row(lane, r) * kPitch + Column(lane, j)] = p.x[r][j];
      }
    }
    __syncwarp();
#pragma unroll 1
    for (int k = 0; k < kStream; k += 4) {
      Pack<float> a[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        a[r] = Pack<float>::Load(staging + Row(lane, r) * kPitch + k);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < kPerRow; j += kVector) {
          const float* from =
              tile + ValueOffset<float, kWidth>(k + i, column0 + Fragment<kOut>::OutColumn(lane, j));
          float b[kVector];
          if constexpr (kVector == 4) {
            const Pack<float> pack = Pack<float>::Load(from);
#pragma unroll
            for (int e = 0; e < kVector; ++e) b[e] = pack.value[e];
          } else {
#pragma unroll
            for (int e = 0; e < kVector; ++e) b[e] = from[e];
          }
#pragma unroll
          for (int e = 0; e < kVector; ++e) {
#pragma unroll
            for (int r = 0; r < kRows; ++r) out.x[r][j + e] += a[r].value[i] * b[e];
          }
        }
      }
    }
  }

  template <int kOut>
  static __device__ __forceinline__ void Round(Fragment<kOut>& out, const float (&factor)[kRows], int lane,
                                               float* tile) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < Fragment<kOut>::kPerRow; ++j) {
        tile[ValueOffset<float, kOut>(Row(lane, r), Fragment<kOut>::OutColumn(lane, j))] =
            factor[r] * out.x[r][j];
      }
    }
  }

 private:
  template <int kWidth>
  static __device__ __forceinline__ Pack<float> Read(const float* tile, int row, int chunk) {
    return Pack<float>::Load(tile + ChunkOffset<float, kWidth>(row, chunk));
  }
};

template <class T, int kColumns>
using Fragment = typename TileMath<T>::template Fragment<kColumns>;

template <class T, int kColumns>
__device__ __forceinline__ void Clear(Fragment<T, kColumns>& fragment) {
#pragma unroll
  for (int r = 0; r < TileMath<T>::kRows; ++r) {
#pragma unroll
    for (int j = 0; j < Fragment<T, kColumns>::kPerRow; ++j) fragment.At(r, j) = 0;
  }
}

// value combined over the lanes that share rows; the same bits in each of them.
template <class T, class Combine>
__device__ __forceinline__ float RowReduce(float value, Combine combine) {
#pragma unroll
  for (int distance = 1; distance < TileMath<T>::kRowLanes; distance *= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
