#include "kernels/backend.h"

#include <chrono>
#include <cmath>
#include <vector>

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

void Backend::LinearBackwardThroughActivation(const Element* dy, const Element* weight, const Element* pre,
                                              Element* dpre, std::int64_t R, int I, int O,
                                              Activation activation) {
  LinearBackward(dy, nullptr, weight, dpre, nullptr, nullptr, R, I, O, /*accumulate_dx=*/false);
  ActivationBackward(dpre, pre, dpre, R * I, activation);
}

void Backend::Repeat(std::unique_ptr<Recording>&, const std::function<void()>& enqueue) { enqueue(); }

namespace {

// Of backends whose work is done when an op returns.
class DoneMailbox final : public Backend::Mailbox {
 public:
  DoneMailbox(Backend& backend, std::int64_t floats)
      : backend_(backend), values_(static_cast<std::size_t>(floats)) {}
  void Post(std::int64_t at, const float* from, std::int64_t count) override {
    backend_.CopyOut(values_.data() + at, from, count);
  }
  const float* Wait() override { return values_.data(); }

 private:
  Backend& backend_;
  std::vector<float> values_;
};

}  // namespace

std::unique_ptr<Backend::Mailbox> Backend::MakeMailbox(std::int64_t floats) {
  return std::make_unique<DoneMailbox>(*this, floats);
}

std::array<float, 3> Backend::AdamW::Rates(float learning_rate, std::int64_t step) const {
  const auto correction = [&](float beta) {
    return static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(step))));
  };
  return {learning_rate, correction(beta1), correction(beta2)};
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
