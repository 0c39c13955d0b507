// The suites on a device other than the CPU cores themselves: "cuda", or "cuda-on-host" (small sizes; it
// tries the code, its times mean nothing). Time is the device's own (Backend::Seconds), so nothing is
// interleaved: a card is ours alone.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "tests/bench/gemm_skeleton.h"
#include "tests/bench/suites.h"

namespace headsweep::bench {

Report RunDeviceOps(const Options& options);
Report RunDeviceStep(const Options& options);

std::unique_ptr<Backend> MakeDevice(const Options& options);

// GPT-2 124M (Radford et al. 2019) with batch 8 on a card; the suites' small shape elsewhere.
StepShape DeviceShape(const Options& options);

// Median seconds of one run of what enqueue enqueues: so many runs are timed together that the device's clock
// counts at least 2 ms, and that at least five times and for `seconds` in all. One run goes before, unlooked
// at.
double MedianSeconds(Backend& backend, const std::function<void()>& enqueue, double seconds);

// What the device reaches with nothing else to do: the vendor's products (or ours, on CPUs), and plain
// copies.
struct DeviceRates {
  double flops = 0;  // a second, square products of `side`
  double bytes = 0;  // a second, read and written, copies of 256 MiB
  int side = 0;
  std::string Describe(const std::string& precision) const;
};
DeviceRates MeasureRates(Backend& backend, const Options& options);

}  // namespace headsweep::bench
