// The backends and precisions that every op test runs on. To add one: a line in Backends(). The CUDA kernels
// run on the CPU in both precisions under three thread orders (kernels/cuda/on_host/executor.h). Cards take
// part where there is one; where there is none, OpSuite.RunsOnACard skips and says why. With
// HEADSWEEP_REQUIRE_CUDA=1 their absence is a failure of every test.
#pragma once

#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "cluster/base/errors.h"
#include "kernels/backend.h"
#include "kernels/cuda/on_host/executor.h"

namespace headsweep::testing {

struct BackendCase {
  std::string name;  // of the test instance
  BackendOptions options;
  cuda_on_host::ThreadOrder order = {};  // of cuda-on-host
};

inline std::ostream& operator<<(std::ostream& out, const BackendCase& c) { return out << c.name; }

inline std::vector<BackendCase> CpuBackends() {
  return {
      {"cpu1", {"cpu", 1}},
      {"cpu3", {"cpu", 3}},  // more threads than some machines have, and not a power of two
  };
}

inline bool CardIsRequired() {
  const char* require = std::getenv("HEADSWEEP_REQUIRE_CUDA");
  return require != nullptr && std::string(require) == "1";
}

// Cases of device "cuda" only where a card is, or must be.
inline std::vector<BackendCase> WhereDevicesAre(std::vector<BackendCase> backends) {
  const bool cards = CardIsRequired() || !ProbeGpus().devices.empty();
  if (!cards) std::erase_if(backends, [](const BackendCase& c) { return c.options.device == "cuda"; });
  return backends;
}

inline std::vector<BackendCase> Backends() {
  using cuda_on_host::ThreadOrder;
  std::vector<BackendCase> backends = CpuBackends();
  for (const bool half : {false, true}) {
    const BackendOptions on_host{"cuda-on-host", 1, half ? "bfloat16" : "float32"};
    const std::string name = half ? "host_bf16_" : "host_float_";
    backends.push_back({name + "rising", on_host, {ThreadOrder::kRising, 0}});
    backends.push_back({name + "falling", on_host, {ThreadOrder::kFalling, 0}});
    backends.push_back({name + "shuffled", on_host, {ThreadOrder::kShuffled, 7}});
  }
  backends.push_back({"cuda_float", {"cuda", 1, "float32"}});
  backends.push_back({"cuda_bf16", {"cuda", 1, "bfloat16"}});
  return WhereDevicesAre(backends);
}

struct OpenedBackend {
  std::unique_ptr<Backend> backend;  // nullptr: see why
  std::string why;
  bool required = false;  // its absence is a failure
};

inline OpenedBackend OpenBackend(const BackendCase& c) {
  OpenedBackend opened;
  cuda_on_host::SetThreadOrder(c.order);
  opened.required = c.options.device != "cuda" || CardIsRequired();
  try {
    opened.backend = MakeBackend(c.options);
  } catch (const Unsupported& e) {
    opened.why = e.what();
  } catch (const DeviceError& e) {
    opened.why = e.what();
  }
  return opened;
}

}  // namespace headsweep::testing
