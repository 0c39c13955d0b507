#include "trainer/collective.h"

#include <map>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// A world of one: every sum is already there.
class SingleProcessCollective final : public Collective {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  void AllReduceSum(float*, std::int64_t) override {}
  void AllReduceSum(double*, std::int64_t) override {}
  void Broadcast(void*, std::int64_t, int root) override {
    HEADSWEEP_CHECK(root == 0, "root {} in a world of 1", root);
  }
  std::vector<std::string> AllGather(const std::string& value) override { return {value}; }
  void Wait() override {}
  void Barrier() override {}
};

// In a world of one nobody else can still set a key: waiting would only delay the failure.
class LocalRendezvous final : public Rendezvous {
 public:
  void Set(const std::string& key, const std::string& value) override { values_[key] = value; }
  std::string Get(const std::string& key, double) override {
    const auto found = values_.find(key);
    if (found == values_.end()) throw CommError("this process", "get " + key, 0, "nobody has set it");
    return found->second;
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace

std::unique_ptr<Collective> MakeSingleProcessCollective() {
  return std::make_unique<SingleProcessCollective>();
}
std::unique_ptr<Rendezvous> MakeLocalRendezvous() { return std::make_unique<LocalRendezvous>(); }

}  // namespace headsweep
