// PTX instructions that C++ has no words for: tensor-core products, matrix loads from shared memory,
// asynchronous copies. Layouts are those of the PTX ISA manual, sections "Matrix fragments for mma.m16n8k16
// with floating point type", "ldmatrix" and "cp.async"; the CPU's versions are in on_host/ptx.h. With lane =
// 0..31, g = lane / 4, t = lane % 4, and two bf16 a register, the one with the lower index in the lower half:
//
// clang-format off
//   A (16 x 16, row-major)   a[0] = A[g][2t, 2t+1]     a[1] = A[g+8][2t, 2t+1]
//                            a[2] = A[g][2t+8, 2t+9]   a[3] = A[g+8][2t+8, 2t+9]
//   B (16 x 8)               b[0] = B[2t, 2t+1][g]     b[1] = B[2t+8, 2t+9][g]
//   D (16 x 8, float)        d[0] = D[g][2t]           d[1] = D[g][2t+1]
//                            d[2] = D[g+8][2t]         d[3] = D[g+8][2t+1]
// clang-format on
//
// All 32 lanes of a warp must call. sm_80 or later.
#pragma once

#include <cstdint>

#include "kernels/cuda/numeric.h"
#include "kernels/cuda/portable.h"
#if defined(HEADSWEEP_CUDA_ON_HOST)
#include "kernels/cuda/on_host/ptx.h"
#endif

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

// d += a b.  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
__device__ __forceinline__ void MmaBf16(float (&d)[4], const std::uint32_t (&a)[4],
                                        const std::uint32_t (&b)[2]) {
#if defined(HEADSWEEP_CUDA_ON_HOST)
  internal::MmaBf16(d, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// Loads 8 x 8 matrices of 2-byte values from shared memory. Lane i gives the address of one row of 16 bytes,
// aligned to 16: row i % 8 of matrix i / 8 (for LoadMatrix2, lanes 0–15; the others' addresses are not looked
// at). r[m] of lane i: values [i / 4][2 (i % 4), 2 (i % 4) + 1] of matrix m; Transposed: values [2 (i % 4), 2
// (i % 4) + 1][i / 4].
__device__ __forceinline__ void LoadMatrix4(std::uint32_t (&r)[4], const void* shared_row) {
#if defined(HEADSWEEP_CUDA_ON_HOST)
  internal::LoadMatrix<4, false>(r, shared_row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_row)))
               : "memory");
#endif
}
__device__ __forceinline__ void LoadMatrix4Transposed(std::uint32_t (&r)[4], const void* shared_row) {
#if defined(HEADSWEEP_CUDA_ON_HOST)
  internal::LoadMatrix<4, true>(r, shared_row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_row)))
               : "memory");
#endif
}
__device__ __forceinline__ void LoadMatrix2(std::uint32_t (&r)[2], const void* shared_row) {
#if defined(HEADSWEEP_CUDA_ON_HOST)
  internal::LoadMatrix<2, false>(r, shared_row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_row)))
               : "memory");
#endif
}
__device__ __forceinline__ void LoadMatrix2Transposed(std::uint32_t (&r)[2], const void* shared_row) {
#if defined(HEADSWEEP_CUDA_ON_HOST)
  internal::LoadMatrix<2, true>(r, shared_row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_row)))
               : "memory");
#endif
}

// Copies 16 bytes from global to shared memory behind the thread's back; zeros if !valid, and then `global`
// is not read. Both addresses multiples of 16. The values are there for the calling thread after a
// CopyAsyncWait() that covers the copy, for other threads after a barrier as well. A thread waits for its own
// copies only, by groups: CopyAsyncCommit() closes a group, CopyAsyncWait<N>() waits until at most the N
// groups closed last are unfinished.
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global, bool valid) {
#if defined(HEADSWEEP_CUDA_ON_HOST)
  internal::CopyAsync16(shared, global, valid);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
#endif
}
__device__ __forceinline__ void CopyAsyncCommit() {
#if defined(HEADSWEEP_CUDA_ON_HOST)
  internal::CopyAsyncCommit();
#else
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}
template <int N>
__device__ __forceinline__ void CopyAsyncWait() {
#if defined(HEADSWEEP_CUDA_ON_HOST)
  internal::CopyAsyncWait(N);
#else
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
#endif
}

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
