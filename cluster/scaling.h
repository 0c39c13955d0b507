// Scaling on paper: how long a data-parallel step takes on n devices, from the measured step of one and a
// description of the network. Pure. What is assumed:
//  - A step of one device is `fixed` (weight update and whatever else does not shrink) plus work that is
//  proportional to
//    its share of the effective batch, ceil(batch / n) examples: a third of it forward, two thirds backward.
//  - Gradients leave in buckets; they complete evenly, byte by byte, during the backward pass, and travel one
//  after the other.
//  - An all-reduce of S bytes takes the shorter of a ring, 2 (n-1)/n S / bandwidth + 2 (n-1) latency, and a
//  tree,
//    2 S / bandwidth + 2 ceil(log2 n) latency (Thakur et al. 2005; NCCL chooses in the same way).
//  - Within a node the inner link counts. Over several, the devices of a node first reduce inside it, the
//  nodes then among
//    each other over one outer link a node, which its devices share (Goyal et al. 2017, section 4).
//  - `overlap` of the communication runs beside computation: 1 where a network adapter does the work (GPUs),
//  0 where the
//    cores that compute also carry the bytes. The rest adds to the step.
//  - Each step ends with one all-reduce of a few values (loss, stop flag), which nothing hides.
//  - Devices are equally fast and nothing else runs. Stragglers, evaluation, checkpoints are not in it.
#pragma once

#include <cstdint>
#include <vector>

namespace headsweep {

struct NetworkLink {
  double bandwidth = 0;  // bytes a second, one direction
  double latency = 0;    // seconds a message
};

struct ScalingModel {
  double step_seconds = 0;   // measured, one device, the whole effective batch
  double fixed_seconds = 0;  // of it
  std::int64_t batch = 0;    // examples
  double gradient_bytes = 0;
  double bucket_bytes = 0;  // 0: everything in one message after the backward pass
  int devices_per_node = 1;
  NetworkLink inner, outer;  // within a node; of a node
  double overlap = 1;        // 0 to 1
};

struct ScalingPoint {
  int devices = 1;
  double compute = 0;        // seconds of one device's share, fixed part included
  double communication = 0;  // seconds on the network
  double exposed = 0;        // of them, not hidden
  double step = 0;           // compute + exposed
  double speedup = 1, efficiency = 1;
};

ScalingPoint Scale(const ScalingModel& model, int devices);

// Seconds of one all-reduce.
double AllReduceSeconds(const ScalingModel& model, double bytes, int devices);

}  // namespace headsweep
