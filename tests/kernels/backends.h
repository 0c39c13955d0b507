// The backends and precisions that every op test runs on. To add one: a line in Backends().
// A device that is compiled out or absent skips visibly; with HEADSWEEP_REQUIRE_CUDA=1 that is a failure.
#pragma once

#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "cluster/base/errors.h"
#include "kernels/backend.h"

namespace headsweep::testing {

struct BackendCase {
  std::string name;  // of the test instance
  BackendOptions options;
  double tolerance;  // error allowed per unit of the expected value's scale, see ExpectClose()
};

inline std::ostream& operator<<(std::ostream& out, const BackendCase& c) { return out << c.name; }

inline std::vector<BackendCase> Backends() {
  return {
      {"cpu1", {"cpu", 1}, 3e-6},
      {"cpu3", {"cpu", 3}, 3e-6},  // more threads than some machines have, and not a power of two
  };
}

struct OpenedBackend {
  std::unique_ptr<Backend> backend;  // nullptr: see why
  std::string why;
  bool required = false;  // its absence is a failure
};

inline OpenedBackend OpenBackend(const BackendCase& c) {
  OpenedBackend opened;
  const char* require = std::getenv("HEADSWEEP_REQUIRE_CUDA");
  opened.required = c.options.device == "cpu" || (require != nullptr && std::string(require) == "1");
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
