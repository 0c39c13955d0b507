#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/bench/device_suites.h"
#include "tests/bench/op_cases.h"

namespace headsweep::bench {
namespace {

bool IsCard(const Options& options) { return options.device == "cuda"; }

}  // namespace

std::unique_ptr<Backend> MakeDevice(const Options& options) {
  BackendOptions device;
  device.device = options.device;
  device.threads = options.threads.back();
  device.precision = options.precision;
  return MakeBackend(device);
}

StepShape DeviceShape(const Options& options) {
  StepShape shape;
  if (IsCard(options)) {
    shape = {.L = 12,
             .C = 768,
             .H = 12,
             .D = 64,
             .F = 3072,
             .T = 1024,
             .B = 8,
             .V = 50304};  // 50257, rounded up to 128
  } else if (options.device == "cuda-on-host") {
    shape = {.L = 1, .C = 32, .H = 2, .D = 16, .F = 64, .T = 16, .B = 2, .V = 64};
  }
  return shape;
}

double MedianSeconds(Backend& backend, const std::function<void()>& enqueue, double seconds) {
  constexpr double kShortest = 2e-3;
  constexpr int kFewest = 5, kMost = 200, kMostRuns = 1000;
  const double once = std::max(backend.Seconds(enqueue), 1e-7);
  const int runs = std::clamp(static_cast<int>(kShortest / once) + 1, 1, kMostRuns);
  std::vector<double> samples;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  while (static_cast<int>(samples.size()) < kMost &&
         (static_cast<int>(samples.size()) < kFewest || elapsed() < seconds)) {
    samples.push_back(backend.Seconds([&] {
      for (int i = 0; i < runs; ++i) enqueue();
    }) / runs);
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

std::string DeviceRates::Describe(const std::string& precision) const {
  return fmt::format("products of {0} cubed in {1} {2:.1f} TFLOP/s, copies {3:.0f} GB/s read and written",
                     side, precision, flops / 1e12, bytes / 1e9);
}

DeviceRates MeasureRates(Backend& backend, const Options& options) {
  OpBuffers memory(backend);
  DeviceRates rates;
  rates.side = IsCard(options) ? 8192 : options.device == "cpu" ? 1024 : 64;
  const int n = rates.side;
  const std::int64_t square = std::int64_t{n} * n;
  Element *a = memory.Elements(square), *b = memory.Elements(square), *c = memory.Elements(square);
  const double product = MedianSeconds(
      backend, [&] { backend.LinearForward(a, b, nullptr, c, nullptr, n, n, n, Activation::kNone); }, 1);
  rates.flops = 2.0 * static_cast<double>(square) * n / product;
  const auto count = static_cast<std::int64_t>((IsCard(options) ? 256e6 : 1e6) /
                                               static_cast<double>(backend.element_bytes()));
  Element *from = memory.Elements(count), *to = memory.Elements(count);
  // The gradient of no activation is a copy.
  const double copy = MedianSeconds(
      backend, [&] { backend.ActivationBackward(from, from, to, count, Activation::kNone); }, 0.5);
  rates.bytes = 2.0 * static_cast<double>(count) * static_cast<double>(backend.element_bytes()) / copy;
  return rates;
}

}  // namespace headsweep::bench
