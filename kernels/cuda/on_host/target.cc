#include "kernels/cuda/target.h"

#include <fmt/format.h>

namespace headsweep::cuda_on_host {

const char* const kTargetName = "cuda-on-host";

int OpenTarget() { return 0; }

std::string DescribeTarget(int) {
  return fmt::format("cuda-on-host: CUDA kernels on the CPU, threads {}", ToString(CurrentThreadOrder()));
}

std::optional<std::int64_t> FreeTargetMemory() { return std::nullopt; }

void* StreamOfCard(cudaStream_t) { return nullptr; }

}  // namespace headsweep::cuda_on_host
