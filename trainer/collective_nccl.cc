// The Collective of processes on GPUs: NCCL, one communicator, on a stream of its own. The communicator does
// not block: every wait polls for completion, for errors that NCCL reports from its own threads, and for the
// timeout, and a failure aborts the communicator, so that no process is left in a kernel that spins for a
// dead peer. The library is loaded when it is first used: a build with CUDA starts where there is none.
// Source: NCCL user guide, "Fault tolerance" and "In-place operations".
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "trainer/collective.h"
#include "trainer/collective_nccl.h"
#include "trainer/collective_network.h"

namespace headsweep {
namespace {

constexpr std::chrono::microseconds kPoll(20);  // a bucket takes hundreds

void CheckCuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw DeviceError(call, error, cudaGetErrorString(error), -1);
}

// The functions of libnccl that are used here.
struct Nccl {
  void* library = nullptr;
  decltype(&ncclGetVersion) GetVersion;
  decltype(&ncclGetUniqueId) GetUniqueId;
  decltype(&ncclCommInitRankConfig) CommInitRankConfig;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError;
  decltype(&ncclCommAbort) CommAbort;
  decltype(&ncclGetErrorString) GetErrorString;
  decltype(&ncclGetLastError) GetLastError;
  decltype(&ncclAllReduce) AllReduce;
  decltype(&ncclBroadcast) Broadcast;
  decltype(&ncclGroupStart) GroupStart;
  decltype(&ncclGroupEnd) GroupEnd;
};

template <class Function>
void Resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr)
    throw Unsupported(
        fmt::format("the NCCL that is installed has no {}: version 2.14 or later is needed", name));
}

Nccl Load() {
  const char* named = std::getenv("HEADSWEEP_NCCL_LIBRARY");
  std::vector<std::string> names = {"libnccl.so.2", "libnccl.so"};
  if (named != nullptr && *named != '\0') names = {named};
  Nccl nccl{};
  std::string reason;
  for (const std::string& name : names) {
    nccl.library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (nccl.library != nullptr) break;
    reason = ::dlerror();
  }
  if (nccl.library == nullptr)
    throw Unsupported(
        fmt::format("several GPUs of one trial need NCCL, which is not found ({}); install libnccl2, or let "
                    "HEADSWEEP_NCCL_LIBRARY name it, or set run.devices = 1",
                    reason));
  Resolve(nccl.library, "ncclGetVersion", nccl.GetVersion);
  Resolve(nccl.library, "ncclGetUniqueId", nccl.GetUniqueId);
  Resolve(nccl.library, "ncclCommInitRankConfig", nccl.CommInitRankConfig);
  Resolve(nccl.library, "ncclCommGetAsyncError", nccl.CommGetAsyncError);
  Resolve(nccl.library, "ncclCommAbort", nccl.CommAbort);
  Resolve(nccl.library, "ncclGetErrorString", nccl.GetErrorString);
  Resolve(nccl.library, "ncclGetLastError", nccl.GetLastError);
  Resolve(nccl.library, "ncclAllReduce", nccl.AllReduce);
  Resolve(nccl.library, "ncclBroadcast", nccl.Broadcast);
  Resolve(nccl.library, "ncclGroupStart", nccl.GroupStart);
  Resolve(nccl.library, "ncclGroupEnd", nccl.GroupEnd);
  return nccl;
}

const Nccl& Library() {
  static const Nccl nccl = Load();
  return nccl;
}

std::string ToHex(const ncclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

ncclUniqueId FromHex(const std::string& text) {
  ncclUniqueId id{};
  HEADSWEEP_CHECK(text.size() == 2 * sizeof id.internal, "a unique id of {} digits", text.size());
  for (std::size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

// Memory on the device for host values; grows.
class Staging {
 public:
  ~Staging() { cudaFree(memory_); }
  char* Take(std::size_t bytes) {
    if (bytes > bytes_) {
      CheckCuda(cudaFree(memory_), "cudaFree");
      memory_ = nullptr;
      bytes_ = 0;
      CheckCuda(cudaMalloc(&memory_, bytes), "cudaMalloc");
      bytes_ = bytes;
    }
    return static_cast<char*>(memory_);
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

class NcclCollective final : public Collective {
 public:
  NcclCollective(const CollectiveOptions& options, Rendezvous& rendezvous, void* compute_stream)
      : options_(options), nccl_(Library()), compute_(static_cast<cudaStream_t>(compute_stream)) {
    if (options.wire != Wire::kFloat32)
      throw Unsupported("run.wire = \"bfloat16\" is for Gloo; NCCL sends gradients as float32");
    CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    CheckCuda(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    CheckCuda(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    Connect(rendezvous);
  }
  ~NcclCollective() override {
    // Not ncclCommDestroy, which waits for all peers: one that is dead would be waited for.
    if (communicator_ != nullptr) nccl_.CommAbort(communicator_);
    cudaEventDestroy(ready_);
    cudaEventDestroy(done_);
    cudaStreamDestroy(stream_);
  }

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  std::string description() const override {
    int version = 0;
    nccl_.GetVersion(&version);
    return fmt::format("NCCL {}.{}.{} by {}, {} of {}", version / 10000, version / 100 % 100, version % 100,
                       interface_, options_.rank, options_.world_size);
  }

  void AllReduceSum(float* values, std::int64_t count) override {
    Begin("all-reduce");
    FollowCompute();
    Enqueue(nccl_.AllReduce(values, values, static_cast<std::size_t>(count), ncclFloat32, ncclSum,
                            communicator_, stream_));
  }
  void Wait() override {
    if (failure_) throw CommError(*failure_);
    if (operation_ != nullptr) Finish();
  }
  void AllReduceSum(double* host_values, std::int64_t count) override {
    Begin("all-reduce of values");
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(double);
    char* device = CopyIn(host_values, bytes);
    Enqueue(nccl_.AllReduce(device, device, static_cast<std::size_t>(count), ncclFloat64, ncclSum,
                            communicator_, stream_));
    CopyOutAndFinish(host_values, device, bytes);
  }
  void Broadcast(void* host_bytes, std::int64_t count, int root) override {
    Begin("broadcast");
    const auto bytes = static_cast<std::size_t>(count);
    char* device = CopyIn(host_bytes, bytes);
    Enqueue(nccl_.Broadcast(device, device, bytes, ncclUint8, root, communicator_, stream_));
    CopyOutAndFinish(host_bytes, device, bytes);
  }
  std::vector<std::string> AllGather(const std::string& value) override {
    std::vector<double> sizes(static_cast<std::size_t>(options_.world_size));
    sizes[static_cast<std::size_t>(options_.rank)] = static_cast<double>(value.size());
    AllReduceSum(sizes.data(), options_.world_size);
    Begin("all-gather");
    std::string all;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const auto size = static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]);
      rank == options_.rank ? all += value : all.append(size, '\0');
    }
    char* device = CopyIn(all.data(), all.size());
    std::vector<std::size_t> counts(sizes.begin(), sizes.end());
    BroadcastParts(device, counts);
    CopyOutAndFinish(all.data(), device, all.size());
    std::vector<std::string> values;
    std::size_t begin = 0;
    for (const std::size_t size : counts) {
      values.push_back(all.substr(begin, size));
      begin += size;
    }
    return values;
  }
  void AllGatherShards(void* values, std::int64_t count, std::int64_t value_bytes) override {
    Begin("all-gather of shards");
    FollowCompute();
    std::vector<std::size_t> bytes;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const auto [begin, end] = ShardOf(count, rank, options_.world_size);
      bytes.push_back(static_cast<std::size_t>((end - begin) * value_bytes));
    }
    BroadcastParts(static_cast<char*>(values), bytes);
    Finish();
  }
  void Barrier() override {
    double nothing = 0;
    AllReduceSum(&nothing, 1);
  }

 private:
  void Connect(Rendezvous& rendezvous) {
    Begin("connect");
    interface_ = MeetOnNetwork(rendezvous, options_).name;
    // "=": this name and no longer one. What the user has set stays.
    ::setenv("NCCL_SOCKET_IFNAME", ("=" + interface_).c_str(), /*overwrite=*/0);
    ncclUniqueId id{};
    if (options_.rank == 0) {
      Require(nccl_.GetUniqueId(&id));
      rendezvous.Set("nccl", ToHex(id));
    } else {
      id = FromHex(rendezvous.Get("nccl", options_.timeout_seconds));
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    Enqueue(nccl_.CommInitRankConfig(&communicator_, options_.world_size, id, options_.rank, &config));
    Finish();
  }

  // Starts the clock of an operation, or of a chain of enqueued ones.
  void Begin(const char* operation) {
    if (failure_) throw CommError(*failure_);
    if (operation_ == nullptr) started_ = clock_.Monotonic();
    operation_ = operation;
  }

  // What the backend has enqueued so far is done before what is enqueued here next.
  void FollowCompute() {
    CheckCuda(cudaEventRecord(ready_, compute_), "cudaEventRecord");
    CheckCuda(cudaStreamWaitEvent(stream_, ready_, 0), "cudaStreamWaitEvent");
  }

  void Require(ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress) Fail(nccl_.GetErrorString(result));
  }
  // A call to a communicator that does not block may still be in progress; the next call must wait for it.
  void Enqueue(ncclResult_t result) {
    Require(result);
    if (result == ncclInProgress && !Settles(Left())) Fail("timed out");
  }
  void BroadcastParts(char* device, const std::vector<std::size_t>& bytes) {
    Require(nccl_.GroupStart());
    for (std::size_t rank = 0, begin = 0; rank < bytes.size(); begin += bytes[rank++]) {
      if (bytes[rank] > 0)
        Require(nccl_.Broadcast(device + begin, device + begin, bytes[rank], ncclUint8,
                                static_cast<int>(rank), communicator_, stream_));
    }
    Enqueue(nccl_.GroupEnd());
  }

  double Left() const { return options_.timeout_seconds - (clock_.Monotonic() - started_); }

  // Until the communicator has nothing in progress; false after so many seconds.
  bool Settles(double seconds) {
    const double deadline = clock_.Monotonic() + seconds;
    while (true) {
      ncclResult_t state = ncclSuccess;
      Require(nccl_.CommGetAsyncError(communicator_, &state));
      if (state == ncclSuccess) return true;
      Require(state);
      if (clock_.Monotonic() > deadline) return false;
      std::this_thread::sleep_for(kPoll);
    }
  }

  // Until all that is enqueued is done.
  void Finish() {
    CheckCuda(cudaEventRecord(done_, stream_), "cudaEventRecord");
    while (true) {
      const cudaError_t state = cudaEventQuery(done_);
      if (state == cudaSuccess) break;
      if (state != cudaErrorNotReady) CheckCuda(state, "cudaEventQuery");
      ncclResult_t error = ncclSuccess;
      Require(nccl_.CommGetAsyncError(communicator_, &error));
      Require(error);
      if (Left() < 0) Fail("timed out; a peer is frozen, cut off or much slower");
      std::this_thread::sleep_for(kPoll);
    }
    operation_ = nullptr;
  }

  [[noreturn]] void Fail(const std::string& reason) {
    const char* last = communicator_ != nullptr ? nccl_.GetLastError(communicator_) : "";
    failure_.emplace(
        fmt::format("the peers of rank {} of {} by {}", options_.rank, options_.world_size, interface_),
        operation_, clock_.Monotonic() - started_,
        last != nullptr && *last != '\0' ? fmt::format("{} ({})", reason, last) : reason);
    if (communicator_ != nullptr) nccl_.CommAbort(communicator_);  // ends its kernels
    communicator_ = nullptr;
    throw CommError(*failure_);
  }

  char* CopyIn(const void* host, std::size_t bytes) {
    char* device = staging_.Take(std::max<std::size_t>(bytes, 1));
    CheckCuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
    return device;
  }
  void CopyOutAndFinish(void* host, const char* device, std::size_t bytes) {
    Finish();  // before the copy, which waits for the stream without a timeout
    CheckCuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    CheckCuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

  const CollectiveOptions options_;
  const Nccl& nccl_;
  const SystemClock clock_;
  const cudaStream_t compute_;
  std::string interface_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr, done_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  Staging staging_;
  const char* operation_ = nullptr;  // in progress
  double started_ = 0;
  std::optional<CommError> failure_;
};

}  // namespace

std::unique_ptr<Collective> MakeNcclCollective(const CollectiveOptions& options, Rendezvous& rendezvous,
                                               void* compute_stream) {
  return std::make_unique<NcclCollective>(options, rendezvous, compute_stream);
}

int NcclVersion() {
  int version = 0;
  Library().GetVersion(&version);
  return version;
}

}  // namespace headsweep
