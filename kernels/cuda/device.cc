#include "kernels/cuda/device.h"

#include <cuda_runtime.h>
#include <sys/stat.h>

#include <cstdlib>

#include "cluster/base/errors.h"
#include "kernels/device_problems.h"

#ifndef HEADSWEEP_CUDA_ARCHITECTURES
#error "kernels/cuda/CMakeLists.txt tells which architectures are built"
#endif

namespace headsweep::cuda {
namespace {

bool Exists(const char* path) {
  struct stat info;
  return ::stat(path, &info) == 0;
}

CudaFacts CollectFacts() {
  CudaFacts facts;
  facts.runtime_version = CUDART_VERSION;
  if (cudaDriverGetVersion(&facts.driver_version) != cudaSuccess) facts.driver_version = 0;
  const cudaError_t error = cudaGetDeviceCount(&facts.devices);
  facts.error = static_cast<int>(error);
  if (error != cudaSuccess) facts.error_text = cudaGetErrorString(error);
  static_cast<void>(cudaGetLastError());  // reported here; not left for the next call to find
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible = visible;
  facts.device_files = Exists("/dev/nvidia0") || Exists("/dev/nvidiactl") || Exists("/dev/dxg");
  return facts;
}

std::string UuidText(const cudaUUID_t& uuid, bool mig) {
  std::string text = mig ? "MIG" : "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

GpuDevice Describe(int index, const cudaDeviceProp& properties) {
  GpuDevice device;
  device.index = index;
  device.name = properties.name;
  device.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  device.compute_capability = fmt::format("{}.{}", properties.major, properties.minor);
  // The runtime has no flag for it; the driver names instances "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
  device.mig = device.name.find(" MIG ") != std::string::npos;
  device.uuid = UuidText(properties.uuid, device.mig);
  device.pci_bus_id = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                                  properties.pciDeviceID);
  return device;
}

[[noreturn]] void Throw(const char* call, int code, const GpuProblem& problem, int index) {
  throw DeviceError(call, code, fmt::format("{}; {}", problem.message, problem.remedy), index);
}

void Require(cudaError_t error, const char* call, int index) {
  if (error != cudaSuccess)
    throw DeviceError(call, static_cast<int>(error), cudaGetErrorString(error), index);
}

}  // namespace

GpuReport ProbeGpus() {
  GpuReport report;
  report.cuda_build = true;
  const CudaFacts facts = CollectFacts();
  report.runtime = CudaVersionText(facts.runtime_version);
  report.driver = CudaVersionText(facts.driver_version);
  report.problem = ExplainCuda(facts);
  if (report.problem) return report;
  for (int index = 0; index < facts.devices; ++index) {
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, index);
    if (error != cudaSuccess) {
      report.problem =
          GpuProblem{gpu_problem::kFailed,
                     fmt::format("device {} cannot be asked: {}", index, cudaGetErrorString(error)),
                     "see what the kernel's log says (dmesg | grep -i nvrm)"};
      continue;
    }
    if (const auto problem = ExplainArchitecture(HEADSWEEP_CUDA_ARCHITECTURES, properties.major,
                                                 properties.minor, properties.name)) {
      report.problem = problem;
      continue;
    }
    GpuDevice device = Describe(index, properties);
    std::size_t free = 0, total = 0;
    if (cudaSetDevice(index) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess)
      device.free_bytes = static_cast<std::int64_t>(free);
    static_cast<void>(cudaGetLastError());
    report.devices.push_back(std::move(device));
  }
  return report;
}

void UseDevice(int index) {
  const CudaFacts facts = CollectFacts();
  if (const auto problem = ExplainCuda(facts)) Throw("cudaGetDeviceCount", facts.error, *problem, index);
  if (index < 0 || index >= facts.devices)
    throw DeviceError(
        "cudaSetDevice", static_cast<int>(cudaErrorInvalidDevice),
        fmt::format("there are {} devices{}, counted from 0", facts.devices,
                    facts.visible ? fmt::format(" under CUDA_VISIBLE_DEVICES=\"{}\"", *facts.visible) : ""),
        index);
  cudaDeviceProp properties;
  Require(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties", index);
  if (const auto problem = ExplainArchitecture(HEADSWEEP_CUDA_ARCHITECTURES, properties.major,
                                               properties.minor, properties.name))
    Throw("cudaSetDevice", static_cast<int>(cudaErrorNoKernelImageForDevice), *problem, index);
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess)
    error = cudaFree(nullptr);  // opens the device now, so that its failure is seen here
  if (error != cudaSuccess) {
    CudaFacts failed = facts;
    failed.error = static_cast<int>(error);
    failed.error_text = cudaGetErrorString(error);
    Throw("cudaSetDevice", failed.error, *ExplainCuda(failed), index);
  }
}

std::int64_t FreeMemory() {
  std::size_t free = 0, total = 0;
  int index = 0;
  Require(cudaGetDevice(&index), "cudaGetDevice", -1);
  Require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", index);
  return static_cast<std::int64_t>(free);
}

std::string DescribeDevice(int index) {
  cudaDeviceProp properties;
  Require(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties", index);
  int driver = 0;
  Require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion", index);
  return fmt::format("{} (compute capability {}.{}, {:.1f} GiB), CUDA {} (driver for {})", properties.name,
                     properties.major, properties.minor,
                     static_cast<double>(properties.totalGlobalMem) / (1024.0 * 1024 * 1024),
                     CudaVersionText(CUDART_VERSION), CudaVersionText(driver));
}

}  // namespace headsweep::cuda
