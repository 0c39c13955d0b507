// Collective: what the processes of one trial exchange. Rank 0 .. world_size-1. One interface; carriers: a
// world of one (collective.cc), Gloo over TCP on CPUs (collective_gloo.cc), NCCL on GPUs
// (collective_nccl.cc).
//
// Rules. Every rank calls the same operations in the same order with the same counts. float* and shards are in the backend's memory, everything else is host memory. Deterministic: the order of reduction is a function of
// world size and count, so the same inputs give the same bits, and every rank gets the same ones. Every wait
// has a timeout; a failed operation is a CommError that says which rank waited in which operation for how
// long, after which the collective is dead: every later call throws the same. Not thread-safe: one thread
// drives it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace headsweep {

// The part of [0, count) that belongs to a rank: begin and end. Parts differ by at most one and follow each
// other.
inline std::pair<std::int64_t, std::int64_t> ShardOf(std::int64_t count, int rank, int world_size) {
  return {count * rank / world_size, count * (rank + 1) / world_size};
}

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string description() const = 0;  // carrier and network, for the log

  // values[i] = sum over ranks, in place. Returns at once: the sum is made, after those enqueued before,
  // while the caller goes on with other memory. What was written to values before the call (also by the
  // backend's enqueued work) is summed.
  virtual void AllReduceSum(float* values, std::int64_t count) = 0;
  // Until all enqueued sums are there. Throws what failed meanwhile.
  virtual void Wait() = 0;

  // The rest returns when it is done.
  virtual void AllReduceSum(double* host_values, std::int64_t count) = 0;
  virtual void Broadcast(void* host_bytes, std::int64_t count, int root) = 0;
  // Small values, one of each rank, in the order of ranks.
  virtual std::vector<std::string> AllGather(const std::string& value) = 0;
  // values: count values of so many bytes in the backend's memory. Each rank holds its shard (ShardOf); afterwards every
  // rank holds all of them.
  virtual void AllGatherShards(void* values, std::int64_t count, std::int64_t value_bytes) = 0;
  virtual void Barrier() = 0;
};

// How the processes of a trial find each other: a small key-value store carried by whoever started them. Keys
// are set once; keys and values are text.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual void Set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. Throws CommError after timeout_seconds.
  virtual std::string Get(const std::string& key, double timeout_seconds) = 0;
};

// What sums of gradients look like on their way: kBfloat16 halves the bytes and rounds every partial sum.
enum class Wire { kFloat32, kBfloat16 };

struct CollectiveOptions {
  int rank = 0;
  int world_size = 1;
  double timeout_seconds = 60;  // of the meeting, and of each operation
  Wire wire = Wire::kFloat32;   // of AllReduceSum(float*)
  // Gloo: waits for what the backend has enqueued, before its memory is read. Nothing to do on CPUs.
  std::function<void()> settle = nullptr;
};

std::unique_ptr<Collective> MakeSingleProcessCollective();
// Both: meet over the rendezvous, which must outlive every rank's call. Throw CommError when a rank does not
// come.
std::unique_ptr<Collective> MakeGlooCollective(const CollectiveOptions& options, Rendezvous& rendezvous);

}  // namespace headsweep
