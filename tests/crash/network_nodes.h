// "Nodes" on this machine for mpirun: network namespaces with host names of their own (cluster/test_nodes).
#pragma once

#include <unistd.h>

#include <string>
#include <vector>

#include "cluster/base/run_program.h"

namespace headsweep::testing {

// Gone at the end, with everything that runs in them.
class NetworkNodes {
 public:
  explicit NetworkNodes(int count) : prefix_("hs" + std::to_string(::getpid() % 100000) + "n"), count_(count) {
    if (::geteuid() != 0 || FindProgram("ip").empty() || FindProgram("mpirun").empty()) {
      why_not_ = "network namespaces need root, iproute2 and mpirun";
    } else if (RunProgram({Script(), prefix_, "up", std::to_string(count)}, 30).exit_code != 0) {
      why_not_ = "network namespaces cannot be made here";
    }
  }
  ~NetworkNodes() {
    if (up()) RunProgram({Script(), prefix_, "down"}, 30);
  }
  NetworkNodes(const NetworkNodes&) = delete;
  NetworkNodes& operator=(const NetworkNodes&) = delete;

  bool up() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }
  std::string Host(int node) const { return prefix_ + std::to_string(node); }

  // What comes before a program so that mpirun starts a process of it on each node, from node 0. variables: of the environment,
  // for all of them.
  std::vector<std::string> Mpirun(const std::vector<std::string>& variables) const {
    std::string hosts;
    for (int i = 0; i < count_; ++i) hosts += (i > 0 ? "," : "") + Host(i);
    std::vector<std::string> command = {Script(), prefix_, "run", "0", FindProgram("mpirun"), "--mca", "plm_rsh_agent",
                                        Script() + " rsh", "--mca", "btl_tcp_if_include", "eth0", "--mca",
                                        "oob_tcp_if_include", "eth0"};
    for (const std::string& variable : variables) command.insert(command.end(), {"-x", variable});
    command.insert(command.end(), {"-host", hosts, "-n", std::to_string(count_)});
    return command;
  }

  // Takes the node's cable out of the switch: packets are lost without a word. Or puts it back.
  bool Cut(int node) const { return Ip({"link", "set", "port" + std::to_string(node), "nomaster"}); }
  bool Heal(int node) const { return Ip({"link", "set", "port" + std::to_string(node), "master", "bridge"}); }

 private:
  static std::string Script() { return std::string(HEADSWEEP_SOURCE_DIR) + "/cluster/test_nodes"; }
  bool Ip(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {FindProgram("ip"), "-n", prefix_ + "sw"});
    return RunProgram(arguments, 30).exit_code == 0;
  }

  std::string prefix_, why_not_;
  int count_;
};

}  // namespace headsweep::testing
