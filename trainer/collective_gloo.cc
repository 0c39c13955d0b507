// The Collective of processes on CPUs: Gloo over TCP. One thread carries out all operations in the order in
// which they were asked for, so sums of gradients travel while the caller computes, and every rank has the
// same order. Large sums go round a ring (the order of additions is a function of place and world size
// alone), small ones by recursive halving, which needs fewer messages. Source:
// https://github.com/facebookincubator/gloo, docs/algorithms.md
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "trainer/bfloat16.h"
#include "trainer/collective.h"
#include "trainer/collective_network.h"

namespace headsweep {
namespace {

constexpr std::size_t kSmallBytes =
    64 << 10;  // below, a ring's 2 (n - 1) rounds cost more than its thrift saves

std::string ToHex(const std::vector<char>& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::vector<char> FromHex(const std::string& text) {
  std::vector<char> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

// Gloo's view of a Rendezvous. Gloo's values are bytes, ours are text.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(Rendezvous& rendezvous, double timeout_seconds)
      : rendezvous_(rendezvous), timeout_(timeout_seconds) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    rendezvous_.Set("gloo." + key, ToHex(data));
  }
  std::vector<char> get(const std::string& key) override {
    return FromHex(rendezvous_.Get("gloo." + key, timeout_));
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) rendezvous_.Get("gloo." + key, timeout_);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  Rendezvous& rendezvous_;
  const double timeout_;
};

template <class T>
void Add(void* sum, const void* a, const void* b, std::size_t count) {
  auto* out = static_cast<T*>(sum);
  const auto* left = static_cast<const T*>(a);
  const auto* right = static_cast<const T*>(b);
  for (std::size_t i = 0; i < count; ++i) out[i] = left[i] + right[i];
}

void AddBfloat16(void* sum, const void* a, const void* b, std::size_t count) {
  auto* out = static_cast<std::uint16_t*>(sum);
  const auto* left = static_cast<const std::uint16_t*>(a);
  const auto* right = static_cast<const std::uint16_t*>(b);
  for (std::size_t i = 0; i < count; ++i) out[i] = ToBfloat16(FromBfloat16(left[i]) + FromBfloat16(right[i]));
}

class GlooCollective final : public Collective {
 public:
  GlooCollective(const CollectiveOptions& options, Rendezvous& rendezvous)
      : options_(options), timeout_(static_cast<std::int64_t>(options.timeout_seconds * 1000)) {
    Connect(rendezvous);
    worker_ = std::thread([this] { Work(); });
  }

  ~GlooCollective() override {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  std::string description() const override {
    return fmt::format("Gloo over TCP, {} of {} at {}", options_.rank, options_.world_size, address_);
  }

  void AllReduceSum(float* values, std::int64_t count) override {
    Settle();
    Enqueue("all-reduce", [this, values, count] {
      options_.wire == Wire::kBfloat16 ? ReduceRounded(values, count) : Reduce(values, count, Add<float>);
    });
  }
  void Wait() override { AwaitAll(); }
  void AllReduceSum(double* host_values, std::int64_t count) override {
    Run("all-reduce of values", [=, this] { Reduce(host_values, count, Add<double>); });
  }
  void Broadcast(void* host_bytes, std::int64_t count, int root) override {
    Run("broadcast", [=, this] { BroadcastNow(static_cast<char*>(host_bytes), count, root); });
  }
  std::vector<std::string> AllGather(const std::string& value) override {
    std::vector<std::string> values;
    Run("all-gather", [&] { values = GatherNow(value); });
    return values;
  }
  void AllGatherShards(void* values, std::int64_t count, std::int64_t value_bytes) override {
    Settle();
    Run("all-gather of shards",
        [=, this] { GatherShardsNow(static_cast<char*>(values), count, value_bytes); });
  }
  void Barrier() override {
    Run("barrier", [this] {
      gloo::BarrierOptions barrier(context_);
      barrier.setTag(NextTag());
      barrier.setTimeout(timeout_);
      gloo::barrier(barrier);
    });
  }

 private:
  struct Operation {
    const char* name;
    std::function<void()> work;
  };

  void Connect(Rendezvous& rendezvous) {
    const SystemClock clock;
    const double started = clock.Monotonic();
    try {
      address_ = MeetOnNetwork(rendezvous, options_).address;
      auto device = gloo::transport::tcp::CreateDevice(address_.c_str());
      auto context = std::make_shared<gloo::rendezvous::Context>(options_.rank, options_.world_size);
      context->setTimeout(timeout_);
      GlooStore store(rendezvous, options_.timeout_seconds);
      context->connectFullMesh(store, device);
      context_ = std::move(context);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // of Gloo
      throw CommError(Self(), "connect", clock.Monotonic() - started, error.what());
    }
  }

  void Settle() const {
    if (options_.settle) options_.settle();
  }

  std::string Self() const {
    return fmt::format("the peers of rank {} of {}{}", options_.rank, options_.world_size,
                       address_.empty() ? "" : " at " + address_);
  }

  // --- The caller's side ---

  void Enqueue(const char* name, std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) throw CommError(*failure_);
      queue_.push_back({name, std::move(work)});
    }
    changed_.notify_all();
  }
  void AwaitAll() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return failure_ || (queue_.empty() && !busy_); });
    if (failure_) throw CommError(*failure_);
  }
  void Run(const char* name, std::function<void()> work) {
    Enqueue(name, std::move(work));
    AwaitAll();
  }

  // --- The thread's side ---

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return leaving_ || !queue_.empty(); });
      if (queue_.empty() || failure_) {
        if (leaving_) return;
        queue_.clear();
        continue;
      }
      const Operation operation = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      std::optional<CommError> failure = Carry(operation);
      lock.lock();
      busy_ = false;
      if (failure) failure_ = std::move(failure);
      changed_.notify_all();
    }
  }

  std::optional<CommError> Carry(const Operation& operation) {
    const SystemClock clock;
    const double started = clock.Monotonic();
    try {
      operation.work();
      return std::nullopt;
    } catch (const std::exception& error) {  // of Gloo: peer closed, timeout
      context_->closeConnections();          // the others need not wait for their own timeouts
      return CommError(Self(), operation.name, clock.Monotonic() - started, error.what());
    }
  }

  // Each operation has a tag of its own, so that a message can never be taken for one of the operation
  // before.
  std::uint32_t NextTag() { return tag_++; }

  template <class T>
  void Reduce(T* values, std::int64_t count, gloo::AllreduceOptions::Func add) {
    if (count == 0) return;
    using Options = gloo::AllreduceOptions;
    Options options(context_);
    options.setOutput(values, static_cast<std::size_t>(count));
    options.setReduceFunction(std::move(add));
    const bool small = static_cast<std::size_t>(count) * sizeof(T) < kSmallBytes;
    options.setAlgorithm(small ? Options::Algorithm::BCUBE : Options::Algorithm::RING);
    options.setTag(NextTag());
    options.setTimeout(timeout_);
    gloo::allreduce(options);
  }

  void ReduceRounded(float* values, std::int64_t count) {
    rounded_.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) rounded_[static_cast<std::size_t>(i)] = ToBfloat16(values[i]);
    Reduce(rounded_.data(), count, AddBfloat16);
    for (std::int64_t i = 0; i < count; ++i) values[i] = FromBfloat16(rounded_[static_cast<std::size_t>(i)]);
  }

  void BroadcastNow(char* bytes, std::int64_t count, int root) {
    gloo::BroadcastOptions options(context_);
    options.setOutput(bytes, static_cast<std::size_t>(count));
    options.setRoot(root);
    options.setTag(NextTag());
    options.setTimeout(timeout_);
    gloo::broadcast(options);
  }

  // out holds this rank's part already; the others' parts come in.
  template <class T>
  void GatherParts(T* out, std::vector<std::size_t> counts) {
    gloo::AllgathervOptions options(context_);
    options.setOutput(out, std::move(counts));
    options.setTag(NextTag());
    options.setTimeout(timeout_);
    gloo::allgatherv(options);
  }

  std::vector<std::string> GatherNow(const std::string& value) {
    const auto ranks = static_cast<std::size_t>(options_.world_size),
               me = static_cast<std::size_t>(options_.rank);
    std::vector<std::uint64_t> sizes(ranks);
    sizes[me] = value.size();
    GatherParts(sizes.data(), std::vector<std::size_t>(ranks, 1));
    std::string all;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      rank == me ? all += value : all.append(sizes[rank], '\0');
    if (!all.empty()) GatherParts(all.data(), {sizes.begin(), sizes.end()});
    std::vector<std::string> values;
    std::size_t begin = 0;
    for (const std::uint64_t size : sizes) {
      values.push_back(all.substr(begin, size));
      begin += size;
    }
    return values;
  }

  void GatherShardsNow(char* values, std::int64_t count, std::int64_t value_bytes) {
    std::vector<std::size_t> counts;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const auto [begin, end] = ShardOf(count, rank, options_.world_size);
      counts.push_back(static_cast<std::size_t>((end - begin) * value_bytes));
    }
    if (count > 0) GatherParts(values, std::move(counts));
  }

  const CollectiveOptions options_;
  const std::chrono::milliseconds timeout_;
  std::string address_;
  std::shared_ptr<gloo::Context> context_;  // used by the thread alone, once it runs
  std::uint32_t tag_ = 0;                   // likewise
  std::vector<std::uint16_t> rounded_;      // likewise

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> queue_;
  bool busy_ = false, leaving_ = false;
  std::optional<CommError> failure_;
  std::thread worker_;
};

}  // namespace

std::unique_ptr<Collective> MakeGlooCollective(const CollectiveOptions& options, Rendezvous& rendezvous) {
  return std::make_unique<GlooCollective>(options, rendezvous);
}

}  // namespace headsweep
