// Agent: what looks after the trainers of one node. It starts them in slots, hands on what they say, asks
// them to stop, kills what does not go, and reports how each attempt ended. It decides nothing: which attempt
// runs where is the coordinator's. Single-threaded: everything happens on the event loop. Messages:
// messages.h.
#pragma once

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/file_system.h"
#include "launcher/link.h"
#include "launcher/timing.h"
#include "launcher/workspace.h"

namespace headsweep {

struct AgentOptions {
  NodeId coordinator{0};
  std::string host;
  std::string trainer;    // path of headsweep-trainer
  std::vector<int> cpus;  // usable on this host, shared with the host's other agents
  int slots = 0;          // asked for; 0 = as many as fit
  int rank_on_host = 0, ranks_on_host = 1;
  Timing timing;
  // The JSON StageSummary of a stage whose result is sealed but whose trainer did not live to tell, or was
  // another launcher's.
  // "" if it cannot be read. Not set: nothing is read.
  std::function<std::string(const Workspace& workspace, const std::string& stage)> read_summary = {};
};

class Agent {
 public:
  Agent(boost::asio::io_context& loop, Link& link, FileSystem& files, const Clock& clock,
        AgentOptions options);
  // Kills what still runs, and waits for it.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Connects: from now on the coordinator's messages are obeyed. on_end(clean) is called once, when nothing
  // runs here any more and the coordinator said "end", or it was silent for too long (clean = false).
  void Start(std::function<void(bool clean)> on_end);

  // Whether it has ended because the coordinator fell silent.
  bool lost_coordinator() const;

  // This rank itself was asked to stop: tells the coordinator, and has the trainers checkpoint at once in
  // case it is dying.
  void OnSignal(const std::string& name);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace headsweep
