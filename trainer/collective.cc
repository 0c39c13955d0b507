#include "trainer/collective.h"

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// A world of one: every sum is already there.
class SingleProcessCollective final : public Collective {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::string description() const override { return "one process"; }
  void AllReduceSum(float*, std::int64_t) override {}
  void Wait() override {}
  void AllReduceSum(double*, std::int64_t) override {}
  void Broadcast(void*, std::int64_t, int root) override {
    HEADSWEEP_CHECK(root == 0, "root {} in a world of 1", root);
  }
  std::vector<std::string> AllGather(const std::string& value) override { return {value}; }
  void AllGatherShards(void*, std::int64_t, std::int64_t) override {}
  void Barrier() override {}
};

}  // namespace

std::unique_ptr<Collective> MakeSingleProcessCollective() {
  return std::make_unique<SingleProcessCollective>();
}

}  // namespace headsweep
