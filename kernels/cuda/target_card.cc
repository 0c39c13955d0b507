#include <algorithm>
#include <cstdlib>

#include "kernels/cuda/device.h"
#include "kernels/cuda/target.h"
#include "kernels/device_problems.h"

namespace headsweep::cuda {
namespace {

// What a backend may still take for itself once its model is there: scratch of ops, and the runtime's own.
constexpr std::int64_t kReserve = std::int64_t{384} << 20;

}  // namespace

const char* const kTargetName = "cuda";

int OpenTarget() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;  // UseDevice says why
  const int index = DeviceOfProcess(std::getenv("LOCAL_RANK"), devices);
  UseDevice(index);
  return index;
}

std::string DescribeTarget(int device) { return "cuda: " + DescribeDevice(device); }

std::optional<std::int64_t> FreeTargetMemory() { return std::max<std::int64_t>(0, FreeMemory() - kReserve); }

void* StreamOfCard(cudaStream_t stream) { return stream; }

}  // namespace headsweep::cuda
