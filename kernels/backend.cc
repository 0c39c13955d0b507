#include "kernels/backend.h"

#include <chrono>

#include "cluster/base/errors.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/make_backend.h"
#include "kernels/device_problems.h"

#ifdef HEADSWEEP_CUDA
#include "kernels/cuda/device.h"
#endif

namespace headsweep {

double Backend::Seconds(const std::function<void()>& enqueue) {
  Synchronize();
  const auto start = std::chrono::steady_clock::now();
  enqueue();
  Synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

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
  if (options.device == "cuda-on-host") {
#ifdef HEADSWEEP_WITH_CUDA_ON_HOST
    return cuda_on_host::MakeCudaBackend(options);
#else
    throw Unsupported(
        "device \"cuda-on-host\", for tests of the CUDA kernels, is not in this build; configure with "
        "-DHEADSWEEP_CUDA_ON_HOST=ON");
#endif
  }
  if (options.device == "cuda") {
#ifdef HEADSWEEP_CUDA
    return cuda::MakeCudaBackend(options);
#else
    const GpuProblem problem = NotBuiltWithCuda();
    throw Unsupported(fmt::format("device \"cuda\": {}; {}", problem.message, problem.remedy));
#endif
  }
  throw ConfigError(
      fmt::format("unknown device \"{}\"; known devices: cpu, cuda, cuda-on-host", options.device));
}

GpuReport ProbeGpus() {
#ifdef HEADSWEEP_CUDA
  return cuda::ProbeGpus();
#else
  GpuReport report;
  report.problem = NotBuiltWithCuda();
  return report;
#endif
}

}  // namespace headsweep
