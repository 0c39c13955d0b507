#include "cluster/scaling.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

constexpr double kForwardShare = 1.0 / 3;  // of a step's products: forward 1, backward 2
constexpr double kValuesBytes = 16;        // loss and stop flag

double OverLink(const NetworkLink& link, double bytes, int n) {
  if (n <= 1) return 0;
  const double rounds = std::bit_width(static_cast<unsigned>(n - 1));  // ceil(log2 n)
  const double ring = 2.0 * (n - 1) / n * bytes / link.bandwidth + 2.0 * (n - 1) * link.latency;
  const double tree = 2 * bytes / link.bandwidth + 2 * rounds * link.latency;
  return std::min(ring, tree);
}

}  // namespace

double AllReduceSeconds(const ScalingModel& model, double bytes, int devices) {
  const int inside = std::min(devices, model.devices_per_node);
  const int nodes = (devices + model.devices_per_node - 1) / model.devices_per_node;
  return OverLink(model.inner, bytes, inside) + OverLink(model.outer, bytes, nodes);
}

ScalingPoint Scale(const ScalingModel& model, int devices) {
  HEADSWEEP_CHECK(devices >= 1 && model.batch >= 1 && model.step_seconds > model.fixed_seconds,
                  "{} devices, batch {}, step of {} s with {} s fixed", devices, model.batch,
                  model.step_seconds, model.fixed_seconds);
  ScalingPoint point;
  point.devices = devices;
  const auto share = static_cast<double>((model.batch + devices - 1) / devices);
  const double work = (model.step_seconds - model.fixed_seconds) * share / static_cast<double>(model.batch);
  const double forward = work * kForwardShare, backward = work - forward;
  point.compute = work + model.fixed_seconds;

  const double bucket = model.bucket_bytes > 0 ? model.bucket_bytes : model.gradient_bytes;
  double sent = 0, free_at = 0;  // of the network, from the step's beginning
  while (sent < model.gradient_bytes && devices > 1) {
    const double bytes = std::min(bucket, model.gradient_bytes - sent);
    sent += bytes;
    const double complete = forward + backward * sent / model.gradient_bytes;
    const double seconds = AllReduceSeconds(model, bytes, devices);
    free_at = std::max(free_at, complete) + seconds;
    point.communication += seconds;
  }
  const double exposed_if_hidden = std::max(0.0, free_at - work);
  const double values = AllReduceSeconds(model, kValuesBytes, devices);
  point.exposed = model.overlap * exposed_if_hidden + (1 - model.overlap) * point.communication + values;
  point.communication += values;
  point.step = point.compute + point.exposed;
  point.speedup = model.step_seconds / point.step;
  point.efficiency = point.speedup / devices;
  return point;
}

}  // namespace headsweep
