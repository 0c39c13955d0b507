// Softmax cross-entropy with label smoothing, in place: probabilities never get a tensor of their own. One
// block a row, one pass for maximum, sum and argmax together (online softmax; Milakov & Gimelshein 2018), a
// second for the gradient.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mutants.h"
#include "kernels/cuda/reduce.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

namespace {

constexpr int kRowThreads = 256;

// Of a part of a row: its maximum, where that is first, sum of exp(x - maximum), sum of x.
struct RowPart {
  float maximum, exponentials, sum;
  int first;
};

__device__ __forceinline__ RowPart Merge(const RowPart& a, const RowPart& b) {
  RowPart both;
  const bool b_leads = b.maximum > a.maximum || (b.maximum == a.maximum && b.first < a.first);
  both.maximum = b_leads ? b.maximum : a.maximum;
  both.first = b_leads ? b.first : a.first;
  // Equal maxima need no factor; for infinite ones it would be NaN.
  both.exponentials = a.exponentials * (a.maximum == both.maximum ? 1.0f : expf(a.maximum - both.maximum)) +
                      b.exponentials * (b.maximum == both.maximum ? 1.0f : expf(b.maximum - both.maximum));
  both.sum = a.sum + b.sum;
  return both;
}

// Gives every thread of the block the whole row. A fixed tree.
__device__ __forceinline__ RowPart MergeBlock(RowPart mine) {
  HS_SHARED(RowPart, of_warp, [kRowThreads / kWarpThreads]);
#pragma unroll
  for (int lanes = 1; lanes < kWarpThreads; lanes *= 2) {
    RowPart other;
    other.maximum = __shfl_xor_sync(kAllLanes, mine.maximum, lanes);
    other.exponentials = __shfl_xor_sync(kAllLanes, mine.exponentials, lanes);
    other.sum = __shfl_xor_sync(kAllLanes, mine.sum, lanes);
    other.first = __shfl_xor_sync(kAllLanes, mine.first, lanes);
    mine = Merge(mine, other);
  }
  if (threadIdx.x % kWarpThreads == 0) of_warp[threadIdx.x / kWarpThreads] = mine;
  HS_MUTANT(MISSING_BARRIER, , __syncthreads());
  RowPart all = of_warp[0];
  for (int warp = 1; warp < kRowThreads / kWarpThreads; ++warp) all = Merge(all, of_warp[warp]);
  return all;
}

//   loss = log sum_v exp(x_v - max) - ((1 - smoothing)(x_c - max) + smoothing mean_v(x_v - max))
//   gradient_v = gradient_scale * (softmax_v - smoothing / V - (v == c)(1 - smoothing))
template <class E, int W>
__global__ void __launch_bounds__(kRowThreads)
    CrossEntropyKernel(E* logits, const std::int32_t* targets, float* losses, std::int32_t* predictions,
                       int V, float smoothing, float gradient_scale, const PassNumbers* numbers) {
  const std::int64_t r = blockIdx.x;
  E* const row = logits + r * V;
  const int first = static_cast<int>(threadIdx.x) * W, target = targets[r];
  constexpr int kStep = kRowThreads * W;
  if (target < 0 && predictions == nullptr) {  // the whole block is of one mind
    if (gradient_scale != 0) {
      for (int v = first; v < V; v += kStep) {
        const float zeros[W] = {};
        StoreFloats(row + v, zeros);
      }
    }
    if (threadIdx.x == 0) losses[r] = 0;
    return;
  }
  RowPart part{-INFINITY, 0, 0, V};
  for (int v = first; v < V; v += kStep) {
    float x[W];
    LoadFloats(row + v, x);
    RowPart piece{x[0], 0, 0, v};
#pragma unroll
    for (int j = 1; j < W; ++j) {
      if (x[j] > piece.maximum) {
        piece.maximum = x[j];
        piece.first = v + j;
      }
    }
#pragma unroll
    for (int j = 0; j < W; ++j) {
      piece.exponentials += x[j] == piece.maximum ? 1.0f : expf(x[j] - piece.maximum);
      piece.sum += x[j];
    }
    part = Merge(part, piece);
  }
  RowPart all = MergeBlock(part);
  if (all.maximum == INFINITY) all.exponentials = NAN;  // infinity - infinity: a diverged model must show
  // A NaN among the logits has made this one NaN; then no value is the largest.
  const bool broken = all.exponentials != all.exponentials;
  const float target_logit = target < 0 ? 0.0f : ToFloat(row[target]) - all.maximum;
  // Without smoothing the sum must not enter: an impossible class may have logit -infinity, and 0 * infinity
  // is NaN.
  const float expected = smoothing == 0 ? target_logit
                                        : (1.0f - smoothing) * target_logit +
                                              smoothing * (all.sum / static_cast<float>(V) - all.maximum);
  const float loss = target < 0 ? 0.0f : logf(all.exponentials) - expected;
  if (threadIdx.x == 0) {
    if (predictions != nullptr) predictions[r] = broken || all.first == V ? 0 : all.first;
    losses[r] = loss;
  }
  if (gradient_scale == 0) return;
  if (numbers != nullptr) gradient_scale *= numbers->gradient_scale;
  if (!(fabsf(loss) < INFINITY)) gradient_scale = NAN;
  __syncthreads();  // row[target] has been read by all
  const float to_gradient = gradient_scale / all.exponentials,
              spread = gradient_scale * smoothing / static_cast<float>(V),
              at_target = gradient_scale * (1.0f - smoothing);
  for (int v = first; v < V; v += kStep) {
    float x[W];
    LoadFloats(row + v, x);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      x[j] = expf(x[j] - all.maximum) * to_gradient - spread;
      if (v + j == target) x[j] -= HS_MUTANT_VALUE(DROPPED_MASK, 0.0f, at_target);
      if (target < 0) x[j] = 0;
    }
    StoreFloats(row + v, x);
  }
}

}  // namespace

template <class T>
void CudaBackend<T>::CrossEntropy(Element* logits, const std::int32_t* targets, float* losses,
                                  std::int32_t* predictions, std::int64_t R, int V, float smoothing,
                                  float gradient_scale, const PassNumbers* numbers) {
  if (R == 0 || V == 0) return;
  ByWidth<T>(V, {logits}, [&](auto width) {
    constexpr int W = decltype(width)::value;
    HS_LAUNCH((CrossEntropyKernel<T, W>), static_cast<unsigned>(R), kRowThreads, 0, stream_, E(logits),
              targets, losses, predictions, V, smoothing, gradient_scale, numbers);
  });
  CheckLaunch("CrossEntropy");
}

template class CudaBackend<float>;  // of the members defined here
template class CudaBackend<bf16>;

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
