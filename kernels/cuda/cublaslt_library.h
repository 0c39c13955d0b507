// cuBLASLt, loaded when it is first needed: a program with the CUDA backend starts, and trains on CPUs, where
// the library is not installed, and a CPU trial does not pay for mapping half a gigabyte. Only in builds with
// CUDA; host code.
#pragma once

#include <cublasLt.h>

#include <string>

namespace headsweep::cuda {

// The functions that matmul_cublaslt.cc uses, under their own names.
struct CublasLt {
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtGetVersion) GetVersion;
  decltype(&cublasLtGetStatusString) GetStatusString;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) AlgoConfigGetAttribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) AlgoGetHeuristic;
  decltype(&cublasLtMatmulDescCreate) DescCreate;
  decltype(&cublasLtMatmulDescDestroy) DescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) DescSetAttribute;
  decltype(&cublasLtMatmulPreferenceCreate) PreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) PreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) PreferenceSetAttribute;
  decltype(&cublasLtMatrixLayoutCreate) LayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) LayoutDestroy;
  std::string file;  // what was loaded
};

// Loaded once, then kept. Looked for as libcublasLt.so.<major version of the build>: by the dynamic linker
// (LD_LIBRARY_PATH, the system's folders), then where it was at build time, in CUDA_HOME and CUDA_PATH.
// Throws DeviceError that says where it looked. Thread-safe.
const CublasLt& LoadCublasLt();

}  // namespace headsweep::cuda
