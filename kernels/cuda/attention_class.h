// Launches of one head-size class. Included by attention_<E>_<class>.cu alone.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_backward.h"
#include "kernels/cuda/attention_forward.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace internal {

template <class E, class Arguments>
cudaError_t LaunchAttention(AttentionPass pass, void (*kernel)(const Arguments), Arguments a,
                            std::int64_t heads, const DeviceLimits& limits, cudaStream_t stream) {
  const int rows = pass == AttentionPass::kKeyGradient ? a.S : a.T;
  const AttentionPlan plan = PlanAttention(pass, static_cast<int>(sizeof(E)), a.D, heads, rows, limits);
  if (plan.warps == 0 || plan.blocks > INT_MAX) return cudaErrorInvalidConfiguration;
  if (plan.blocks == 0) return cudaSuccess;
  a.stages = plan.stages;
  a.tiles = static_cast<int>(plan.tiles);
  a.chunks = static_cast<int>(plan.chunks);
  constexpr std::int64_t kWithoutAsking =
      48 * 1024;  // bytes of dynamic shared memory that every kernel may have
  if (plan.shared_bytes > kWithoutAsking) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(plan.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  HS_LAUNCH(kernel, dim3(static_cast<unsigned>(plan.blocks)), dim3(static_cast<unsigned>(32 * plan.warps)),
            static_cast<std::size_t>(plan.shared_bytes), stream, a);
  return cudaSuccess;
}

}  // namespace internal

template <class E, int kHead>
cudaError_t LaunchAttentionForward(AttentionForwardArguments<E> a, std::int64_t heads,
                                   const DeviceLimits& limits, cudaStream_t stream) {
  return internal::LaunchAttention<E>(AttentionPass::kForward, AttentionForwardKernel<E, kHead>, a, heads,
                                      limits, stream);
}
template <class E, int kHead>
cudaError_t LaunchAttentionQueryGradient(AttentionBackwardArguments<E> a, std::int64_t heads,
                                         const DeviceLimits& limits, cudaStream_t stream) {
  return internal::LaunchAttention<E>(AttentionPass::kQueryGradient, AttentionQueryGradientKernel<E, kHead>,
                                      a, heads, limits, stream);
}
template <class E, int kHead>
cudaError_t LaunchAttentionKeyGradient(AttentionBackwardArguments<E> a, std::int64_t heads,
                                       const DeviceLimits& limits, cudaStream_t stream) {
  return internal::LaunchAttention<E>(AttentionPass::kKeyGradient, AttentionKeyGradientKernel<E, kHead>, a,
                                      heads, limits, stream);
}

#define HEADSWEEP_ATTENTION_CLASS(E, kHead)                                                                \
  template cudaError_t LaunchAttentionForward<E, kHead>(AttentionForwardArguments<E>, std::int64_t,        \
                                                        const DeviceLimits&, cudaStream_t);                \
  template cudaError_t LaunchAttentionQueryGradient<E, kHead>(AttentionBackwardArguments<E>, std::int64_t, \
                                                              const DeviceLimits&, cudaStream_t);          \
  template cudaError_t LaunchAttentionKeyGradient<E, kHead>(AttentionBackwardArguments<E>, std::int64_t,   \
                                                            const DeviceLimits&, cudaStream_t)

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
