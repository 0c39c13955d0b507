// What this compilation of kernels/cuda runs on: a card (target_card.cc) or the CPU (on_host/target.cc). Host
// code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cuda/portable.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {

extern const char* const kTargetName;  // "cuda", "cuda-on-host"

// Makes the device that this process should use the current one and gives its index. Throws DeviceError where
// there is none.
int OpenTarget();

std::string DescribeTarget(int device);  // for provenance

// Bytes of the current device's memory that can still be taken for a model; nullopt where it has none of its own.
std::optional<std::int64_t> FreeTargetMemory();

// The stream as a card's library knows it; nullptr where there is no card.
void* StreamOfCard(cudaStream_t stream);

}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
