// Every op of a training step as something to run and a cost that no implementation can undercut; on any
// backend.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/bench/gemm_skeleton.h"

namespace headsweep::bench {

// What an op costs at least: moved bytes (read plus written), or floating-point operations of products.
struct OpCase {
  std::string name;
  int calls_a_step = 1;
  double bytes = 0;  // 0: use flops
  double flops = 0;
  std::function<void()> run;  // enqueues it
};

// Memory of one backend for all cases; filled with small random numbers so that no op meets denormals or
// infinities. Freed with this object.
class OpBuffers {
 public:
  explicit OpBuffers(Backend& backend) : backend_(backend) {}
  ~OpBuffers();
  OpBuffers(const OpBuffers&) = delete;
  OpBuffers& operator=(const OpBuffers&) = delete;

  float* Floats(std::int64_t count);
  Element* Elements(std::int64_t count);
  std::int32_t* Ints(std::int64_t count, int below);

 private:
  template <class Value, class Host>
  Value* Filled(std::int64_t count, std::size_t value_bytes, const std::vector<Host>& pattern);

  Backend& backend_;
  std::vector<void*> blocks_;
};

// Every op of a training step of shape s, on one backend. Byte counts are those of a perfect implementation:
// each operand once. The buffers must outlive the cases.
std::vector<OpCase> StepOps(Backend& backend, OpBuffers& memory, const StepShape& s);

}  // namespace headsweep::bench
