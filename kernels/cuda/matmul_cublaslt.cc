// matmul.h by cuBLASLt (NVIDIA cuBLAS documentation, "Using the cuBLASLt API").
//
// cuBLASLt counts columns first. A row-major (rows, columns) matrix is its column-major (columns, rows) one,
// so c = op(a) op(b) is asked for as c^T = op(b)^T op(a)^T: b is its A and a is its B, and a bias along a row
// of c is along a column of its D.
//
// Determinism. One handle, one stream and one workspace for each backend. The algorithm is the heuristic's
// first for the shape, the addresses' alignments and the device, chosen once and kept; timing decides
// nothing. Sums split over K are allowed only where the parts are added in a step of their own in float32
// (CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE), which gives the same bits always.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "cluster/base/errors.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cublaslt_library.h"
#include "kernels/cuda/matmul.h"

namespace headsweep::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32}
                                        << 20;  // what NVIDIA recommends for Hopper; 4 MiB would do before it

template <class T>
constexpr cudaDataType_t kTypeOf = CUDA_R_32F;
template <>
constexpr cudaDataType_t kTypeOf<bf16> = CUDA_R_16BF;

void CheckLt(const CublasLt& lt, cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  int device = -1;
  cudaGetDevice(&device);
  throw DeviceError(call, static_cast<int>(status), lt.GetStatusString(status), device);
}

// What an address may be assumed to be a multiple of, up to 256 bytes: all that cuBLASLt looks at.
std::uint32_t AlignmentOf(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return static_cast<std::uint32_t>(bits == 0 ? 256 : std::min<std::uintptr_t>(bits & (~bits + 1), 256));
}

// Everything that the choice of an algorithm depends on.
using Key = std::tuple<bool, bool, std::int64_t, std::int64_t, std::int64_t,  // the product
                       cudaDataType_t, cublasLtEpilogue_t, std::array<std::uint32_t, 5>>;

// Where the operands of one call lie. bias, pre: nullptr where the epilogue has none.
struct Operands {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;
  void* pre = nullptr;  // what goes into the activation: written by GELU's epilogues, read by its gradient's
  std::array<std::uint32_t, 5> Alignments() const {
    return {AlignmentOf(a), AlignmentOf(b), AlignmentOf(c), AlignmentOf(bias), AlignmentOf(pre)};
  }
};

// A product that is set up: only addresses are missing.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  std::size_t workspace = 0;
  bool found = false;  // false: the library has no algorithm for it
};

}  // namespace

template <class T>
struct MatMul<T>::State {
  explicit State(int device_) : lt(LoadCublasLt()), device(device_) {
    CheckLt(lt, lt.Create(&handle), "cublasLtCreate");
    try {
      Check(cudaMalloc(&workspace, kWorkspaceBytes), "cudaMalloc of cuBLASLt's workspace");
    } catch (...) {
      lt.Destroy(handle);
      throw;
    }
  }
  ~State() {
    for (auto& [key, plan] : plans) Release(plan);
    cudaFree(workspace);
    lt.Destroy(handle);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void Release(Plan& plan) {
    for (cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.c})
      if (layout != nullptr) lt.LayoutDestroy(layout);
    if (plan.operation != nullptr) lt.DescDestroy(plan.operation);
  }

  template <class Value>
  void Set(Plan& plan, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    CheckLt(lt, lt.DescSetAttribute(plan.operation, attribute, &value, sizeof value),
            "cublasLtMatmulDescSetAttribute");
  }

  // The plan for a product, with these addresses of bias and pre in it; made when it is first asked for.
  const Plan& PlanFor(const Product& product, cudaDataType_t out, cublasLtEpilogue_t epilogue,
                      const Operands& operands) {
    const Key key{product.transpose_a,  product.transpose_b, product.M, product.N, product.K, out, epilogue,
                  operands.Alignments()};
    const auto known = plans.find(key);
    if (known != plans.end()) {
      SetAddresses(known->second, operands);
      return known->second;
    }
    Plan& plan = plans[key];
    try {
      Prepare(plan, product, out, epilogue);
      SetAddresses(plan, operands);  // before the choice, which looks at their alignment
      Choose(plan, operands.Alignments());
    } catch (...) {
      Release(plan);
      plans.erase(key);
      throw;
    }
    return plan;
  }

  void SetAddresses(Plan& plan, const Operands& operands) {
    if (operands.bias != nullptr) Set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    if (operands.pre != nullptr) Set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.pre);
  }

  void Prepare(Plan& plan, const Product& product, cudaDataType_t out, cublasLtEpilogue_t epilogue) {
    CheckLt(lt, lt.DescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    Set(plan, CUBLASLT_MATMUL_DESC_TRANSA, product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(plan, CUBLASLT_MATMUL_DESC_TRANSB, product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
        epilogue == CUBLASLT_EPILOGUE_DGELU)
      Set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.N);
    const auto layout = [&](cublasLtMatrixLayout_t& made, cudaDataType_t type, std::int64_t rows,
                            std::int64_t columns) {
      CheckLt(lt,
              lt.LayoutCreate(&made, type, static_cast<std::uint64_t>(columns),
                              static_cast<std::uint64_t>(rows), columns),
              "cublasLtMatrixLayoutCreate");
    };
    product.transpose_b ? layout(plan.a, kTypeOf<T>, product.N, product.K)
                        : layout(plan.a, kTypeOf<T>, product.K, product.N);
    product.transpose_a ? layout(plan.b, kTypeOf<T>, product.K, product.M)
                        : layout(plan.b, kTypeOf<T>, product.M, product.K);
    layout(plan.c, out, product.M, product.N);
  }

  void Choose(Plan& plan, const std::array<std::uint32_t, 5>& alignments) {
    cublasLtMatmulPreference_t preference = nullptr;
    CheckLt(lt, lt.PreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      return lt.PreferenceSetAttribute(preference, attribute, &value, sizeof value);
    };
    constexpr int kMost = 16;
    std::array<cublasLtMatmulHeuristicResult_t, kMost> results = {};
    int count = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const auto then = [&](cublasStatus_t next) {
      if (status == CUBLAS_STATUS_SUCCESS) status = next;
    };
    then(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes}));
    then(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
             std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}));
    then(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[1]));
    then(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[0]));
    then(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]));
    then(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[2]));
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = lt.AlgoGetHeuristic(handle, plan.operation, plan.a, plan.b, plan.c, plan.c, preference, kMost,
                                   results.data(), &count);
      if (status == CUBLAS_STATUS_NOT_SUPPORTED) status = CUBLAS_STATUS_SUCCESS, count = 0;
    }
    lt.PreferenceDestroy(preference);
    CheckLt(lt, status, "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < count && !plan.found; ++i) {
      const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
      if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes) continue;
      if (!AddsInFixedOrder(result.algo)) continue;
      plan.algorithm = result.algo;
      plan.workspace = result.workspaceSize;
      plan.found = true;
    }
  }

  bool AddsInFixedOrder(const cublasLtMatmulAlgo_t& algorithm) {
    std::uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_MASK;
    std::size_t written = 0;
    CheckLt(lt,
            lt.AlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                      sizeof scheme, &written),
            "cublasLtMatmulAlgoConfigGetAttribute");
    return scheme == CUBLASLT_REDUCTION_SCHEME_NONE || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  }

  void Run(const Plan& plan, const Operands& with, bool accumulate, cudaStream_t stream) {
    const float alpha = 1, beta = accumulate ? 1.0f : 0.0f;
    CheckLt(lt,
            lt.Matmul(handle, plan.operation, &alpha, with.b, plan.a, with.a, plan.b, &beta, with.c, plan.c,
                      with.c, plan.c, &plan.algorithm, workspace, plan.workspace, stream),
            "cublasLtMatmul");
  }

  const CublasLt& lt;
  const int device;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::map<Key, Plan> plans;
};

template <class T>
MatMul<T>::MatMul(int device) : state_(std::make_unique<State>(device)) {}

template <class T>
MatMul<T>::~MatMul() = default;

template <class T>
template <class Out>
void MatMul<T>::Multiply(const Product& product, const T* a, const T* b, Out* c, bool accumulate,
                         cudaStream_t stream) {
  const Operands operands{a, b, c, nullptr, nullptr};
  const Plan& plan = state_->PlanFor(product, kTypeOf<Out>, CUBLASLT_EPILOGUE_DEFAULT, operands);
  if (!plan.found)
    throw DeviceError(
        "cublasLtMatmulAlgoGetHeuristic", static_cast<int>(CUBLAS_STATUS_NOT_SUPPORTED),
        fmt::format("no algorithm for a product of {} x {} x {}", product.M, product.N, product.K),
        state_->device);
  state_->Run(plan, operands, accumulate, stream);
}

template <class T>
bool MatMul<T>::Linear(const LinearCall<T>& call, cudaStream_t stream) {
  // ReLU's epilogue keeps a bit mask where `pre` is wanted, and turns NaN into 0, which would hide a run that
  // diverges. float32 is the path that is compared with the CPU's, and how exact the library's tanh is there
  // is not said.
  const bool gelu = call.activation == Activation::kGelu;
  if (call.activation == Activation::kRelu || (gelu && sizeof(T) == 4)) return false;
  if (!gelu && call.pre != nullptr) return false;
  if (call.pre != nullptr && (call.O % 8 != 0 || AlignmentOf(call.pre) < 16))
    return false;  // rules of the aux output

  const bool bias = call.bias != nullptr;
  cublasLtEpilogue_t epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (gelu && call.pre == nullptr) epilogue = bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  if (gelu && call.pre != nullptr)
    epilogue = bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  const Operands operands{call.x, call.weight, call.y, call.bias, call.pre};
  const Plan& plan = state_->PlanFor({false, true, call.R, call.O, call.I}, kTypeOf<T>, epilogue, operands);
  if (plan.found) state_->Run(plan, operands, /*accumulate=*/false, stream);
  return plan.found;
}

// Gradients of biases stay a pass of their own (column_sums.h): the library's epilogues for them (BGRAD) overwrite
// where gradients are added up, round to the products' type, and do not say in which order they add.
template <class T>
bool MatMul<T>::GeluGradient(const Product& product, const T* a, const T* b, const T* pre, T* c,
                             cudaStream_t stream) {
  if (sizeof(T) == 4) return false;  // as in Linear
  if (product.N % 8 != 0 || AlignmentOf(pre) < 16) return false;
  const Operands operands{a, b, c, nullptr, const_cast<T*>(pre)};
  const Plan& plan = state_->PlanFor(product, kTypeOf<T>, CUBLASLT_EPILOGUE_DGELU, operands);
  if (plan.found) state_->Run(plan, operands, /*accumulate=*/false, stream);
  return plan.found;
}

template <class T>
std::string MatMul<T>::description() const {
  const std::size_t version = state_->lt.GetVersion();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

template class MatMul<float>;
template class MatMul<bf16>;
template void MatMul<float>::Multiply<float>(const Product&, const float*, const float*, float*, bool,
                                             cudaStream_t);
template void MatMul<bf16>::Multiply<bf16>(const Product&, const bf16*, const bf16*, bf16*, bool,
                                           cudaStream_t);
template void MatMul<bf16>::Multiply<float>(const Product&, const bf16*, const bf16*, float*, bool,
                                            cudaStream_t);

}  // namespace headsweep::cuda
