// Link: how the coordinator and the agents talk. One interface, two carriers: within a process (here) and MPI
// (mpi_link.h). Everything happens on the event loop's thread, and nothing ever waits: a Send returns at
// once, what arrives is handed to the receiver by the loop. Order between two peers is kept. A peer that is
// lost is never waited for, but may be heard again.
#pragma once

#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cluster/base/ids.h"

namespace headsweep {

class Link {
 public:
  using Receiver = std::function<void(NodeId from, const nlohmann::json& message)>;
  virtual ~Link() = default;
  virtual std::vector<NodeId> peers() const = 0;
  // Called once, before the loop runs. The receiver is never called from within Send.
  virtual void Start(Receiver receiver) = 0;
  virtual void Send(NodeId to, const nlohmann::json& message) = 0;
  // What is on its way to the peer is not waited for: it may never arrive.
  virtual void Abandon(NodeId peer) = 0;
};

// Two ends within one process: what goes into the one comes out of the other. first: at node `a`, its peer is
// `b`.
std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> MakeLoopback(boost::asio::io_context& loop, NodeId a,
                                                                     NodeId b);

}  // namespace headsweep
