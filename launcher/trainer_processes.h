// TrainerProcesses: the trial processes of one node, from "start" to "ended" (messages.h): starts them in slots once nobody else
// works on the trial, hands on what they say, asks them to stop, kills what does not go, and judges how each ended. The agent
// (agent.h) owns it and decides when; everything happens on its event loop.
#pragma once

#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/file_system.h"
#include "launcher/agent.h"
#include "launcher/workspace.h"

namespace headsweep {

// What all trials of a node have in common, known once the coordinator has welcomed it.
struct TrialPlace {
  Workspace workspace;
  std::string sweep;
  int threads = 1;                      // of one trainer
  std::vector<std::vector<int>> slots;  // the CPUs of each; see PlanSlots
  std::vector<std::string> slot_gpus;   // of each slot, if trials run on GPUs: CUDA_VISIBLE_DEVICES of its trainer
};

class TrainerProcesses {
 public:
  // send: to the coordinator. on_idle: the last process has been reaped and reported; may be called from any call below.
  TrainerProcesses(boost::asio::io_context& loop, FileSystem& files, const Clock& clock, const AgentOptions& options,
                   std::function<void(nlohmann::json)> send, std::function<void()> on_idle);
  // Kills what still runs, and waits for it.
  ~TrainerProcesses();
  TrainerProcesses(const TrainerProcesses&) = delete;
  TrainerProcesses& operator=(const TrainerProcesses&) = delete;

  // Before anything is started.
  void SetPlace(const TrialPlace& place);

  void Start(const nlohmann::json& message);  // kStart
  void Obey(const nlohmann::json& message);   // kStop, kKill, kRendezvous: of an attempt that is not here, nothing happens
  void StopAll();                             // as if each had been asked
  void KillAll(const std::string& reason);    // and whatever is started from now on ends at once
  void AcceptAgain();                         // after KillAll
  bool empty() const;

  void Tick();  // at least every few hundred milliseconds
  void Reap();  // after a SIGCHLD; Tick does it too

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headsweep
