// Why CUDA cannot be used here, in words: what the CUDA runtime answers, turned into one problem with a
// remedy. Pure, and without any CUDA header, so that it is tested where there is neither toolkit nor GPU.
// kernels/cuda/device.cc collects the facts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/base/gpu_report.h"

namespace headsweep {

// GpuProblem::code.
namespace gpu_problem {
inline constexpr const char* kNotBuilt = "built-without-cuda";
inline constexpr const char* kNoDriver = "no-driver";
inline constexpr const char* kOldDriver = "driver-older-than-toolkit";
inline constexpr const char* kHidden = "hidden";  // CUDA_VISIBLE_DEVICES leaves none
inline constexpr const char* kNoDevice = "no-device";
inline constexpr const char* kArchitecture = "architecture-not-built";
inline constexpr const char* kBusy = "device-busy";  // exclusive mode, and another process has it
inline constexpr const char* kNotReady =
    "driver-not-ready";  // driver and its parts do not fit together, or are starting
inline constexpr const char* kFailed = "cuda-error";
}  // namespace gpu_problem

// What was asked and answered.
struct CudaFacts {
  int error = 0;            // of cudaGetDeviceCount (cudaError_t); 0 = it answered
  std::string error_text;   // cudaGetErrorString
  int runtime_version = 0;  // 1000 * major + 10 * minor, of the toolkit this program was built with
  int driver_version = 0;   // the highest that the driver knows; 0 = there is no driver
  int devices = 0;
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES; nullopt = not set
  bool device_files = false;           // /dev/nvidia0 or the like is there: a GPU is
};

std::string CudaVersionText(int version);  // 12080 -> "12.8"; 0 -> ""

GpuProblem NotBuiltWithCuda();

// nullopt: there are devices.
std::optional<GpuProblem> ExplainCuda(const CudaFacts& facts);

// architectures: as CMake's CUDA_ARCHITECTURES, separated by commas: "80-real,90-real,100" (a plain number is
// machine code for it and PTX; -virtual: PTX alone). Machine code runs on GPUs of the same major and no lower
// minor version, PTX on all later ones ("90a" neither on others nor as PTX). nullopt: the device can run it.
std::optional<GpuProblem> ExplainArchitecture(const std::string& architectures, int major, int minor,
                                              const std::string& device_name);

// The device of one of several processes on a node: the only visible one, or else the one of its number among the node's
// processes (LOCAL_RANK, as torchrun sets it; nullptr = not set). Throws ConfigError if LOCAL_RANK names none.
int DeviceOfProcess(const char* local_rank, int devices);

}  // namespace headsweep
