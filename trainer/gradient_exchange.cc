#include "trainer/gradient_exchange.h"

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "trainer/model_buffers.h"

namespace headsweep {
namespace {

constexpr int kEmbedding = -1;  // on_layer_done's last call

}  // namespace

std::vector<GradientBucket> PlanBuckets(const ParameterLayout& layout, const ModelShape& shape,
                                        std::int64_t bucket_bytes) {
  if (bucket_bytes <= 0) return {{kEmbedding, 0, layout.size()}};
  std::vector<GradientBucket> buckets;
  std::int64_t end = layout.decaying_size();  // what lies behind has left, or is no matrix
  const auto close = [&](int after_layer, std::int64_t begin) {
    if (begin < end) buckets.push_back({after_layer, begin, end});
    end = begin;
  };
  const ModelOffsets offsets(layout, shape);
  const auto is_full = [&](std::int64_t begin) {
    return (end - begin) * static_cast<std::int64_t>(sizeof(float)) >= bucket_bytes;
  };
  if (!shape.tied && is_full(offsets.output_projection)) close(shape.layers(), offsets.output_projection);
  for (int layer = shape.layers() - 1; layer >= 0; --layer) {
    const std::int64_t begin = offsets.layers[static_cast<std::size_t>(layer)].qkv_weight;
    if (is_full(begin)) close(layer, begin);
  }
  close(kEmbedding, 0);
  if (layout.decaying_size() < layout.size())
    buckets.push_back({kEmbedding, layout.decaying_size(), layout.size()});
  return buckets;
}

GradientExchange::GradientExchange(Collective& collective, Model& model, std::int64_t bucket_bytes)
    : collective_(collective),
      model_(model),
      buckets_(PlanBuckets(model.layout(), model.shape(), bucket_bytes)) {}

void GradientExchange::LayerDone(int layer) {
  for (; sent_ < buckets_.size() && buckets_[sent_].after_layer >= layer; ++sent_) {
    const GradientBucket& bucket = buckets_[sent_];
    collective_.AllReduceSum(model_.gradients() + bucket.begin, bucket.end - bucket.begin);
  }
}

void GradientExchange::Finish() {
  HEADSWEEP_CHECK(sent_ == buckets_.size(), "{} of {} buckets were sent", sent_, buckets_.size());
  sent_ = 0;
  const SystemClock clock;
  const double started = clock.Monotonic();
  collective_.Wait();
  waited_seconds_ += clock.Monotonic() - started;
}

}  // namespace headsweep
