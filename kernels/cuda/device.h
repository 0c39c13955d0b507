// The GPUs of this machine as the CUDA runtime shows them, and the choice of one. Only in builds with CUDA;
// host code.
#pragma once

#include <cstdint>
#include <string>

#include "cluster/base/gpu_report.h"

namespace headsweep::cuda {

// What there is; never throws. Opens each device for a moment to ask for its free memory (a second or so
// each): for a short-lived process. A device that cannot be opened has free_bytes 0.
GpuReport ProbeGpus();

// Makes a device the current one of the calling thread and opens it. index counts what CUDA_VISIBLE_DEVICES
// shows. Throws DeviceError with the problem and its remedy: no driver, an old one, no device, no such
// device, one that this program has no code for, one that another process has for itself.
void UseDevice(int index);

// Bytes that cudaMalloc can still give on the current device.
std::int64_t FreeMemory();

// "NVIDIA H100 80GB HBM3 (compute capability 9.0, 79.6 GiB), CUDA 12.8 (driver for 13.0)"
std::string DescribeDevice(int index);

}  // namespace headsweep::cuda
