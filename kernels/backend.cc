#include "kernels/backend.h"

#include "cluster/base/errors.h"
#include "kernels/cpu/cpu_backend.h"

namespace headsweep {

std::unique_ptr<Backend> MakeBackend(const BackendOptions& options) {
  if (options.device == "cpu") {
    if (options.threads < 1) {
      throw ConfigError(fmt::format("a CPU backend needs at least one thread, not {}", options.threads));
    }
    return std::make_unique<CpuBackend>(options.threads);
  }
  if (options.device == "cuda") {
    throw Unsupported("device \"cuda\": this program was built without CUDA; use device \"cpu\"");
  }
  throw ConfigError(fmt::format("unknown device \"{}\"; known devices: cpu, cuda", options.device));
}

}  // namespace headsweep
