// Attention, and what head importance is made of: from the contract to launches. Kernels:
// attention_forward.h, attention_backward.h.
#include <initializer_list>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

// A block is a head; warp w takes examples w, w + 8, …; each example's sum over t is a fixed tree.
__global__ void __launch_bounds__(kBlockThreads)
    HeadImportanceKernel(const float* delta, int B, int H, int T, float scale, float* per_example,
                         float* per_token, float* squares, float* gate_gradient) {
  HS_SHARED(double, of_warp, [kBlockThreads / kWarpThreads][4]);
  const int h = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) % kWarpThreads,
            warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  double sums[4] = {};
  for (int b = warp; b < B; b += kBlockThreads / kWarpThreads) {
    const float* row = delta + (static_cast<std::int64_t>(b) * H + h) * T;
    double sum = 0, absolute = 0;
    for (int t = lane; t < T; t += kWarpThreads) {
      const double value = static_cast<double>(scale) * row[t];
      sum += value;
      absolute += fabs(value);
    }
    sum = WarpSum(sum);
    sums[0] += fabs(sum);
    sums[1] += WarpSum(absolute);
    sums[2] += sum * sum;
    sums[3] += sum;
  }
  if (lane == 0) {
    for (int i = 0; i < 4; ++i) of_warp[warp][i] = sums[i];
  }
  __syncthreads();
  float* const targets[4] = {per_example, per_token, squares, gate_gradient};
  if (threadIdx.x >= 4 || targets[threadIdx.x] == nullptr) return;
  double total = 0;
  for (int w = 0; w < kBlockThreads / kWarpThreads; ++w) total += of_warp[w][threadIdx.x];
  targets[threadIdx.x][h] += static_cast<float>(total);
}

void CheckShape(const char* op, const AttentionShape& shape) {
  if (shape.D < 1 || shape.D > kMaxHeadSize) {
    throw Unsupported(fmt::format("{}: head size {} is outside 1..{}", op, shape.D, kMaxHeadSize));
  }
  if (!(shape.scale > 0)) throw Unsupported(fmt::format("{}: scale {} is not positive", op, shape.scale));
}

DeviceLimits LimitsOf(int device) {
  int shared_bytes = 0, processors = 1;
  Check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  Check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  return {shared_bytes, processors};
}

template <class T>
void Describe(const AttentionShape& shape, const T* q, const T* k, const T* v, const float* gates,
              AttentionArguments<T>& a) {
  a.q = q;
  a.k = k;
  a.v = v;
  a.gates = gates;
  a.T = shape.T;
  a.S = shape.S;
  a.H = shape.H;
  a.D = shape.D;
  a.q_stride = shape.q_stride;
  a.kv_stride = shape.kv_stride;
  a.causal = shape.causal;
  a.key_lengths = shape.key_lengths;
  a.scale = shape.scale;
  a.to_log2 = shape.S == 1 ? 0x1p-60f : 1.44269504f;
  a.scale_log2 = a.scale * a.to_log2;
  a.dropout = shape.dropout.rate > 0;
  if (a.dropout) {
    a.threshold = DropoutThreshold(shape.dropout.rate);
    a.kept_scale = DropoutScale(shape.dropout.rate);
    a.seed = shape.dropout.seed;
    a.site = shape.dropout.site;
    a.first_example = shape.dropout.first_example;
    a.numbers = shape.dropout.numbers;
  }
}

// Widest access that the shape's strides and all addresses allow.
template <class T>
int AccessOf(const AttentionShape& shape, std::initializer_list<const void*> addresses) {
  std::uint64_t ored = static_cast<std::uint64_t>(shape.D) | static_cast<std::uint64_t>(shape.q_stride) |
                       static_cast<std::uint64_t>(shape.kv_stride);
  ored *= sizeof(T);
  for (const void* address : addresses) ored |= reinterpret_cast<std::uintptr_t>(address);
  return AccessBytes(ored, static_cast<int>(sizeof(T)));
}

}  // namespace

template <class T>
void CudaBackend<T>::AttentionForward(const AttentionShape& shape, const Element* q, const Element* k,
                                      const Element* v, const float* gates, Element* out, Element* gated,
                                      float* lse) {
  if (shape.B == 0 || shape.H == 0 || shape.T == 0) return;
  CheckShape("AttentionForward", shape);
  AttentionForwardArguments<T> a;
  Describe<T>(shape, E(q), E(k), E(v), gates, a);
  a.out = E(out);
  a.gated = E(gated);
  a.lse = lse;
  a.access = AccessOf<T>(shape, {q, k, v, out, gated});
  Check(RunAttentionForward(a, static_cast<std::int64_t>(shape.B) * shape.H, LimitsOf(device_), stream_),
        "AttentionForward");
  CheckLaunch("AttentionForward");
}

template <class T>
void CudaBackend<T>::AttentionBackward(const AttentionShape& shape, const Element* q, const Element* k,
                                       const Element* v, const float* gates, const Element* out,
                                       const float* lse, const Element* dout, Element* dq, Element* dk,
                                       Element* dv, float* delta) {
  if (shape.B == 0 || shape.H == 0) return;
  CheckShape("AttentionBackward", shape);
  AttentionBackwardArguments<T> a;
  Describe<T>(shape, E(q), E(k), E(v), gates, a);
  a.out = E(out);
  a.lse = lse;
  a.dout = E(dout);
  a.dq = E(dq);
  a.dk = E(dk);
  a.dv = E(dv);
  a.delta = delta;
  a.access = AccessOf<T>(shape, {q, k, v, out, dout, dq, dk, dv});
  Check(RunAttentionBackward(a, static_cast<std::int64_t>(shape.B) * shape.H, LimitsOf(device_), stream_),
        "AttentionBackward");
  CheckLaunch("AttentionBackward");
}

template <class T>
void CudaBackend<T>::HeadImportance(const float* delta, int B, int H, int T_, float scale, float* per_example,
                                    float* per_token, float* squares, float* gate_gradient) {
  if (B == 0 || H == 0 || T_ == 0) return;
  HS_LAUNCH(HeadImportanceKernel, static_cast<unsigned>(H), kBlockThreads, 0, stream_, delta, B, H, T_, scale,
            per_example, per_token, squares, gate_gradient);
  CheckLaunch("HeadImportance");
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
