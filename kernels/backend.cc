#include "kernels/backend.h"

#include "cluster/base/errors.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/make_backend.h"

namespace headsweep {

std::unique_ptr<Backend> MakeBackend(const BackendOptions& options) {
  if (options.device == "cpu") {
    if (options.threads < 1) {
      throw ConfigError(fmt::format("a CPU backend needs at least one thread, not {}", options.threads));
    }
    if (options.precision != "float32") {
      throw Unsupported(
          fmt::format("precision \"{}\" on device \"cpu\": it computes in float32 only", options.precision));
    }
    return std::make_unique<CpuBackend>(options.threads);
  }
  if (options.device == "cuda-on-host") return cuda_on_host::MakeCudaBackend(options);
  if (options.device == "cuda") {
    throw Unsupported("device \"cuda\": this program was built without CUDA; use device \"cpu\"");
  }
  throw ConfigError(
      fmt::format("unknown device \"{}\"; known devices: cpu, cuda, cuda-on-host", options.device));
}

}  // namespace headsweep
