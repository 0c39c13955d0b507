// mpirun --hostfile over several nodes, as cluster/examples/README.md describes it; the nodes are network namespaces, and a
// script takes the place of ssh.
#include <fstream>

#include "cluster/base/run_program.h"
#include "tests/crash/disturbed_sweep.h"

namespace headsweep {
namespace {

using namespace testing;

std::string Script() { return std::string(HEADSWEEP_SOURCE_DIR) + "/cluster/test_nodes"; }

// Gone at the end, with everything in them.
class Nodes {
 public:
  explicit Nodes(int count) : prefix_("hf" + std::to_string(::getpid() % 100000) + "n") {
    up_ = RunProgram({Script(), prefix_, "up", std::to_string(count)}, 30).exit_code == 0;
  }
  ~Nodes() { RunProgram({Script(), prefix_, "down"}, 30); }
  bool up() const { return up_; }
  std::string Name(int node) const { return prefix_ + std::to_string(node); }
  const std::string& prefix() const { return prefix_; }

 private:
  std::string prefix_;
  bool up_ = false;
};

using HostfileTest = DisturbedSweepTest;

TEST_F(HostfileTest, TwoNodesUnderMpirunGiveTheSameBitsAsOne) {
  if (::geteuid() != 0 || FindProgram("ip").empty() || FindProgram("mpirun").empty())
    GTEST_SKIP() << "network namespaces need root and iproute2";
  const Nodes nodes(2);
  if (!nodes.up()) GTEST_SKIP() << "network namespaces cannot be made here";
  std::ofstream(temp_ / "hosts") << nodes.Name(0) << " slots=1\n" << nodes.Name(1) << " slots=1\n";
  const Workspace workspace(temp_ / "ws");
  const Finished end =
      Start(workspace, {Script(), nodes.prefix(), "run", "0", FindProgram("mpirun"), "--mca", "plm_rsh_agent", Script() + " rsh",
                        "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0", "--hostfile",
                        temp_ / "hosts", "--map-by", "node", "--bind-to", "none", "-n", "2"})
          ->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  std::set<std::string> hosts;
  for (const JournalEvent& event : Events(workspace))
    if (event.type == journal::kAttemptStarted) hosts.insert(event.fields.at("host"));
  EXPECT_EQ(hosts, (std::set<std::string>{nodes.Name(0), nodes.Name(1)}));
  EXPECT_EQ(DigestsOf(workspace), Reference());
}

}  // namespace
}  // namespace headsweep
