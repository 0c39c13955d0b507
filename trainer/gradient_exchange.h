// Sums of gradients over the processes of a trial, in buckets that leave while the backward pass still runs.
// A bucket is a stretch of the flat gradient buffer; buckets leave in the order in which the backward pass
// completes them, the same on every rank. Matrices lie layer after layer (ParameterLayout), so a stretch from
// a layer on to the one before the last bucket is whole; the few values of biases and norms, spread over all
// layers, leave last, in one message. Source: Li et al. 2020, "PyTorch Distributed: Experiences on
// Accelerating Data Parallel Training".
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/collective.h"
#include "trainer/model.h"

namespace headsweep {

struct GradientBucket {
  int after_layer = 0;  // complete when the backward pass is through with this layer, as on_layer_done counts
  std::int64_t begin = 0, end = 0;  // values of the flat buffer
  bool operator==(const GradientBucket&) const = default;
};

// Buckets of at least bucket_bytes each where there is that much; every value is in exactly one.
// bucket_bytes 0: one bucket, after everything.
std::vector<GradientBucket> PlanBuckets(const ParameterLayout& layout, const ModelShape& shape,
                                        std::int64_t bucket_bytes);

class GradientExchange {
 public:
  // The arguments must outlive this object.
  GradientExchange(Collective& collective, Model& model, std::int64_t bucket_bytes);

  // To be called as ForwardBackwardOptions::on_layer_done of the step's last piece.
  void LayerDone(int layer);
  // Until all sums are there, on every rank the same bits.
  void Finish();

  double waited_seconds() const {
    return waited_seconds_;
  }  // in all Finish so far: communication that nothing hid

 private:
  Collective& collective_;
  Model& model_;
  const std::vector<GradientBucket> buckets_;
  std::size_t sent_ = 0;  // buckets of this step
  double waited_seconds_ = 0;
};

}  // namespace headsweep
