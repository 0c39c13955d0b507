// The trainer's end of the control channel (control_protocol.h): lines out, requests in, no thread. Between
// two looks nothing is read; a peer that is gone or never reads turns into a request to stop.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/collective.h"

namespace headsweep {

class AgentChannel {
 public:
  // Takes over the descriptor (a socket or a pipe) and makes it non-blocking. stop is set by a "stop" message
  // and by end of file. The process must ignore SIGPIPE. Throws IoError when fd is not open.
  AgentChannel(int fd, std::atomic<bool>& stop);
  ~AgentChannel();
  AgentChannel(const AgentChannel&) = delete;
  AgentChannel& operator=(const AgentChannel&) = delete;

  // Reads what has arrived. Never waits.
  void Poll();
  // Writes one line. Waits at most kSendSeconds for room, then gives the peer up: stop is set and nothing is
  // sent any more.
  void Send(const nlohmann::json& message);
  bool peer_is_gone() const { return gone_; }
  // As Poll, after at most so many seconds without anything to read.
  void WaitAndPoll(double seconds);
  // What other processes of the trial have set in the rendezvous, as far as it was read.
  const std::map<std::string, std::string>& published() const { return published_; }
  bool stop_requested() const { return stop_; }

  static constexpr double kSendSeconds =
      10;  // an agent polls every millisecond; longer means that it is stuck

 private:
  void Receive(const std::string& line);
  void GiveUp();

  int fd_;
  std::atomic<bool>& stop_;
  std::string received_;  // of an unfinished line
  std::map<std::string, std::string> published_;
  bool gone_ = false;
};

// The rendezvous that the launcher's agents carry between the processes of a trial. The channel must outlive it. A request
// to stop ends a Get with CommError.
std::unique_ptr<Rendezvous> MakeChannelRendezvous(AgentChannel& channel);

}  // namespace headsweep
