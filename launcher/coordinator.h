// Coordinator: carries the scheduler core's decisions out. Events come in from the agents (links), the clock
// and the user; the core decides; what it wants recorded is appended to the journal and fsynced before
// anything else of the same call happens; then the agents are told. A failed append is fatal: the exception
// leaves the event loop, and with it this process. Single-threaded, on the event loop.
#pragma once

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/file_system.h"
#include "launcher/core.h"
#include "launcher/display.h"
#include "launcher/joined_sweep.h"
#include "launcher/journal.h"
#include "launcher/link.h"
#include "launcher/sweep_lock.h"
#include "launcher/timing.h"
#include "launcher/workspace.h"

namespace headsweep {

struct CoordinatorOptions {
  std::string sweep;
  std::string directory;           // this launcher's own, with live.json and requests/; "" = the sweep's
  JoinedSweep* joined = nullptr;   // the other launchers, if the sweep is shared; outlives the coordinator
  int threads = 1;             // of one trainer
  std::string device = "cpu";  // "cuda": a slot is a GPU
  std::string metric = "perplexity_per_word";  // of an evaluation: what early stopping compares
  Timing timing;
  double seconds_left = 0;  // of the allocation; 0: not known
  LockOwner launcher;  // this process: requests are addressed to it
  // Whether the sweep is still this launcher's. When not, it throws ConfigError out of the event loop, before anything
  // is recorded. Not set: it is.
  std::function<bool()> is_ours = {};
  // A trial's config.toml, for a number of micro-batches `divisor` times that of the sweep file (after
  // out-of-memory failures).
  std::function<std::string(const StageId& stage, int divisor)> config_toml;
  // "train heads=4 head_size=32 seed=1", for a person.
  std::function<std::string(const StageId& stage)> describe;
};

class Coordinator {
 public:
  Coordinator(boost::asio::io_context& loop, std::vector<Link*> links, FileSystem& files, const Clock& clock,
              const Workspace& workspace, Journal& journal, Core core, Display& display,
              CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Welcomes the agents and begins. on_end(exit_code, clean) is called once, after every agent was told to
  // leave; clean: no agent was lost on the way.
  void Start(std::function<void(int exit_code, bool clean)> on_end);

  // The user, or the batch system, wants it to end: the first time everything is checkpointed, the second
  // time it is killed.
  void RequestStop(const std::string& reason);

  const Core& core() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace headsweep
