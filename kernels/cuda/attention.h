// Attention on the card: what the backend calls. Kernels: attention_forward.h, attention_backward.h.
// The contract, shapes and layouts are those of Backend::AttentionForward and AttentionBackward
// (kernels/backend.h); bits are the same on every call. No scratch. Everything is enqueued on `stream`.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_kernel.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

// Fill in what depends on the launch (stages, tiles, chunks) and launch. heads: B * H > 0. Errors: those of
// cudaFuncSetAttribute, cudaErrorInvalidConfiguration where no tile fits the device or the grid would have
// more than 2^31 - 1 blocks. Errors of the launch itself: cudaGetLastError(). Instantiated for every E and
// head-size class in attention_<E>_<class>.cu, a file each: they compile side by side.
template <class E, int kHead>
cudaError_t LaunchAttentionForward(AttentionForwardArguments<E> a, std::int64_t heads,
                                   const DeviceLimits& limits, cudaStream_t stream);
template <class E, int kHead>
cudaError_t LaunchAttentionQueryGradient(AttentionBackwardArguments<E> a, std::int64_t heads,
                                         const DeviceLimits& limits, cudaStream_t stream);
template <class E, int kHead>
cudaError_t LaunchAttentionKeyGradient(AttentionBackwardArguments<E> a, std::int64_t heads,
                                       const DeviceLimits& limits, cudaStream_t stream);

// The same for any head size a.D.
template <class E>
cudaError_t RunAttentionForward(const AttentionForwardArguments<E>& a, std::int64_t heads,
                                const DeviceLimits& limits, cudaStream_t stream);
// delta first, then the gradients that read it.
template <class E>
cudaError_t RunAttentionBackward(const AttentionBackwardArguments<E>& a, std::int64_t heads,
                                 const DeviceLimits& limits, cudaStream_t stream);

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
