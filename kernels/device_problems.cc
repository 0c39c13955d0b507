#include "kernels/device_problems.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// cudaError_t, whose numbers are part of CUDA's interface (driver_types.h).
enum CudaError : int {
  kInitializationError = 3,
  kStubLibrary = 34,
  kInsufficientDriver = 35,
  kDevicesUnavailable = 46,
  kNoDevice = 100,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
  kCompatNotSupportedOnDevice = 804,
};

const char* kUseTheCpu = "or run on the CPU: run.device = \"cpu\" (--device cpu)";

GpuProblem NoDriver(const CudaFacts& facts) {
  return {gpu_problem::kNoDriver,
          facts.device_files
              ? "there is an NVIDIA GPU, but its driver cannot be used (libcuda.so.1 is not found)"
              : "there is no NVIDIA driver on this machine (libcuda.so.1 is not found)",
          fmt::format("install NVIDIA's driver for CUDA {} or later, start the container with --gpus all "
                      "(Apptainer: --nv), {}",
                      CudaVersionText(facts.runtime_version), kUseTheCpu)};
}

GpuProblem NoDevice(const CudaFacts& facts) {
  if (facts.visible)
    return {gpu_problem::kHidden,
            fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" leaves no GPU visible", *facts.visible),
            "unset it, or let it name GPUs that nvidia-smi -L lists, by number or UUID"};
  return {gpu_problem::kNoDevice, "the driver sees no GPU",
          fmt::format("look at nvidia-smi -L and the job's request (Slurm: --gres=gpu:1), {}", kUseTheCpu)};
}

struct Architecture {
  int version = 0;  // 10 * major + minor
  bool real = true, ptx = true, exact = false;
};

Architecture ParseArchitecture(std::string text) {
  Architecture architecture;
  const auto dash = text.find('-');
  const std::string kind = dash == std::string::npos ? "" : text.substr(dash + 1);
  text = text.substr(0, dash);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), architecture.version);
  architecture.exact = error == std::errc() && end != text.data() + text.size() && *end == 'a';
  architecture.real = kind != "virtual";
  architecture.ptx = kind != "real" && !architecture.exact;
  return architecture;
}

bool RunsOn(const Architecture& built, int device) {
  if (built.exact) return built.real && built.version == device;
  const bool same_major = built.version / 10 == device / 10;
  return (built.real && same_major && built.version <= device) || (built.ptx && built.version <= device);
}

}  // namespace

std::string CudaVersionText(int version) {
  return version <= 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

GpuProblem NotBuiltWithCuda() {
  return {gpu_problem::kNotBuilt, "this program was built without CUDA",
          fmt::format("install NVIDIA's CUDA toolkit (nvcc) and configure again with -DHEADSWEEP_CUDA=ON, {}",
                      kUseTheCpu)};
}

std::optional<GpuProblem> ExplainCuda(const CudaFacts& facts) {
  switch (facts.error) {
    case 0:
      if (facts.devices > 0) return std::nullopt;
      return NoDevice(facts);
    case kInsufficientDriver:
    case kStubLibrary:
      if (facts.driver_version <= 0) return NoDriver(facts);
      return GpuProblem{
          gpu_problem::kOldDriver,
          fmt::format("the NVIDIA driver is for CUDA {}, older than CUDA {} that this program was built with",
                      CudaVersionText(facts.driver_version), CudaVersionText(facts.runtime_version)),
          fmt::format("update the driver, or build with a CUDA toolkit of version {} or earlier",
                      CudaVersionText(facts.driver_version))};
    case kNoDevice:
      if (facts.driver_version <= 0) return NoDriver(facts);
      return NoDevice(facts);
    case kDevicesUnavailable:
      return GpuProblem{
          gpu_problem::kBusy, fmt::format("the GPUs are taken ({})", facts.error_text),
          "another process has them (nvidia-smi shows it, and the compute mode): wait, or choose others by "
          "CUDA_VISIBLE_DEVICES"};
    case kInitializationError:
    case kSystemNotReady:
    case kSystemDriverMismatch:
    case kCompatNotSupportedOnDevice:
      return GpuProblem{
          gpu_problem::kNotReady,
          fmt::format("the driver is not ready: {} (code {})", facts.error_text, facts.error),
          "see whether nvidia-smi works; a driver that was updated needs a reboot, NVSwitch machines need "
          "nvidia-fabricmanager running"};
    default:
      return GpuProblem{
          gpu_problem::kFailed,
          fmt::format("CUDA cannot be started: {} (code {})", facts.error_text, facts.error),
          "see whether nvidia-smi works, and what the kernel's log says (dmesg | grep -i nvrm)"};
  }
}

std::optional<GpuProblem> ExplainArchitecture(const std::string& architectures, int major, int minor,
                                              const std::string& device_name) {
  const int device = 10 * major + minor;
  std::istringstream list(architectures);
  for (std::string entry; std::getline(list, entry, ',');)
    if (RunsOn(ParseArchitecture(entry), device)) return std::nullopt;
  return GpuProblem{gpu_problem::kArchitecture,
                    fmt::format("{} has compute capability {}.{}, but this program was built for {}",
                                device_name, major, minor, architectures),
                    fmt::format("configure with -DHEADSWEEP_CUDA_ARCHITECTURES={} and build again", device)};
}

int DeviceOfProcess(const char* local_rank, int devices) {
  if (local_rank == nullptr || *local_rank == '\0' || devices <= 1) return 0;
  const std::string text = local_rank;
  int rank = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || end != text.data() + text.size() || rank < 0 || rank >= devices)
    throw ConfigError(fmt::format(
        "LOCAL_RANK={}: there are {} visible GPUs, counted from 0; start one process for each of them", text, devices));
  return rank;
}

}  // namespace headsweep
