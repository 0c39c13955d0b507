#include "kernels/cuda/attention_class.h"

namespace headsweep::HEADSWEEP_CUDA_NAMESPACE {
HEADSWEEP_ATTENTION_CLASS(float, 96);
}  // namespace headsweep::HEADSWEEP_CUDA_NAMESPACE
