// Collective: what the processes of one trial exchange. Rank 0 .. world_size-1. Single-process version here; Gloo and NCCL
// implement the same. Buffers are the backend's memory. Every operation has a timeout; failure is CommError, after which the
// collective is dead. Deterministic: fixed order of reduction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace headsweep {

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // values[i] = sum over ranks, in place. Enqueued; Wait() makes all enqueued results visible.
  virtual void AllReduceSum(float* values, std::int64_t count) = 0;
  virtual void AllReduceSum(double* host_values, std::int64_t count) = 0;  // small host values; returns when done
  virtual void Broadcast(void* host_bytes, std::int64_t count, int root) = 0;
  virtual std::vector<std::string> AllGather(const std::string& value) = 0;
  virtual void Wait() = 0;
  virtual void Barrier() = 0;
};

// How the processes of a trial find each other: a small key-value store carried by whoever started them.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual void Set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. Throws CommError after timeout_seconds.
  virtual std::string Get(const std::string& key, double timeout_seconds) = 0;
};

std::unique_ptr<Collective> MakeSingleProcessCollective();
// In-process store for a world of one (and tests).
std::unique_ptr<Rendezvous> MakeLocalRendezvous();

}  // namespace headsweep
