#include "kernels/cuda/cublaslt_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <vector>

#include "cluster/base/errors.h"

namespace headsweep::cuda {
namespace {

constexpr const char* kRemedy =
    "install NVIDIA's cuBLAS of that version (toolkit, or pip: nvidia-cublas; nvidia-cublas-cu12 for CUDA 12), or "
    "let LD_LIBRARY_PATH name its folder";

// Places, in the order in which they are tried.
std::vector<std::string> Candidates(const std::string& name) {
  std::vector<std::string> candidates = {name};
  std::istringstream built(HEADSWEEP_CUBLAS_FOLDERS);  // where CMake found it, separated by ':'
  for (std::string folder; std::getline(built, folder, ':');) candidates.push_back(folder + "/" + name);
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(variable))
      for (const char* folder : {"/lib64/", "/lib/"}) candidates.push_back(root + std::string(folder) + name);
  return candidates;
}

template <class Function>
void Find(void* library, const char* name, const std::string& file, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr)
    throw DeviceError(fmt::format("dlsym {}", name), 0, fmt::format("{} does not have it; {}", file, kRemedy),
                      -1);
}

CublasLt Load() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  std::string tried;
  for (const std::string& file : Candidates(name)) {
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* why = ::dlerror();
      tried += fmt::format("{}{}", tried.empty() ? "" : "; ", why != nullptr ? why : file.c_str());
      continue;
    }
    CublasLt lt;
    lt.file = file;
    Find(library, "cublasLtCreate", file, lt.Create);
    Find(library, "cublasLtDestroy", file, lt.Destroy);
    Find(library, "cublasLtGetVersion", file, lt.GetVersion);
    Find(library, "cublasLtGetStatusString", file, lt.GetStatusString);
    Find(library, "cublasLtMatmul", file, lt.Matmul);
    Find(library, "cublasLtMatmulAlgoConfigGetAttribute", file, lt.AlgoConfigGetAttribute);
    Find(library, "cublasLtMatmulAlgoGetHeuristic", file, lt.AlgoGetHeuristic);
    Find(library, "cublasLtMatmulDescCreate", file, lt.DescCreate);
    Find(library, "cublasLtMatmulDescDestroy", file, lt.DescDestroy);
    Find(library, "cublasLtMatmulDescSetAttribute", file, lt.DescSetAttribute);
    Find(library, "cublasLtMatmulPreferenceCreate", file, lt.PreferenceCreate);
    Find(library, "cublasLtMatmulPreferenceDestroy", file, lt.PreferenceDestroy);
    Find(library, "cublasLtMatmulPreferenceSetAttribute", file, lt.PreferenceSetAttribute);
    Find(library, "cublasLtMatrixLayoutCreate", file, lt.LayoutCreate);
    Find(library, "cublasLtMatrixLayoutDestroy", file, lt.LayoutDestroy);
    return lt;
  }
  throw DeviceError(fmt::format("dlopen {}", name), 0,
                    fmt::format("it is not found ({}); {}", tried, kRemedy), -1);
}

}  // namespace

const CublasLt& LoadCublasLt() {
  static const CublasLt lt = Load();
  return lt;
}

}  // namespace headsweep::cuda
