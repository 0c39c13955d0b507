// Core: the scheduler as a pure state machine. Events go in, commands come out; there is no MPI, clock, file, thread or
// random number in here, so it is tested by simulation. The coordinator feeds it, writes every Record to the journal, syncs,
// and only then carries out the other commands of the same call.
//
// What is fatal: a broken invariant (HEADSWEEP_CHECK). What is idempotent: every event; a duplicate, late or unknown one (of an
// older attempt, of a lost node) changes nothing. Stages: waiting -> ready (parent finished) -> running -> finished | diverged |
// failed; a stopped or lost attempt puts its stage back to ready. finished and diverged never change again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cluster/base/ids.h"
#include "launcher/journal_format.h"

namespace headsweep {

// One unit of work, from the plan.
struct StageSpec {
  StageId id;
  std::optional<StageId> parent;  // must be finished first; a failed or diverged parent makes this stage "skipped"
  std::string kind;               // "train" | "prune"
  int slots = 1;                  // processes, each on a slot of its own, all started together
  int retries = 2;                // attempts beyond the first that its own failures may cost
  double flops = 0;               // estimate; longest first
};

enum class StageState { kWaiting, kReady, kRunning, kFinished, kDiverged, kFailed, kSkipped };
const char* ToString(StageState state);

struct SlotId {
  NodeId node;
  int index = 0;
  auto operator<=>(const SlotId&) const = default;
};

// --- Events ---------------------------------------------------------------------------------------------------------------
struct NodeJoined { NodeId node; std::string host; int slots = 1; };
struct NodeLost { NodeId node; std::string reason; };
struct AttemptProgressed { StageId stage; Attempt attempt; std::int64_t step = 0, steps = 0; };
struct AttemptCheckpointed { StageId stage; Attempt attempt; std::int64_t step = 0; };
struct AttemptEnded {
  StageId stage;
  Attempt attempt;
  std::string outcome;   // control_protocol.h: finished | diverged | stopped | failed
  std::string cause;     // of a failure: control_protocol.h, or "signal", "hang", "lost-node", "exit"
  std::string message;
  std::string summary;   // JSON StageSummary of a finished or diverged stage
};
struct StopRequested { std::string reason; };  // Ctrl-C, SIGTERM, time limit
struct Tick {};                                // time passed; see `now`
using Event = std::variant<NodeJoined, NodeLost, AttemptProgressed, AttemptCheckpointed, AttemptEnded, StopRequested, Tick>;

// --- Commands -------------------------------------------------------------------------------------------------------------
struct Record { JournalEvent event; };         // append to the journal before anything else of this call is done
struct StartAttempt { StageId stage; Attempt attempt; std::vector<SlotId> slots; };
struct StopAttempt { StageId stage; Attempt attempt; };                      // ask to checkpoint and leave
struct KillAttempt { StageId stage; Attempt attempt; std::string reason; };  // its end is still reported by AttemptEnded
struct EndSweep { int exit_code = 0; std::string reason; };                  // nothing runs any more
using Command = std::variant<Record, StartAttempt, StopAttempt, KillAttempt, EndSweep>;

struct CorePolicy {
  double hang_floor_seconds = 120;  // no progress for max(hang_factor * median step time, floor) -> killed, retried
  double hang_factor = 20;
  int common_failure_limit = 3;     // that many different stages fail, none ever finished, same cause: stop early
};

struct StageStatus {
  StageState state = StageState::kWaiting;
  Attempt attempt;                  // the latest; value 0 = none yet
  std::vector<SlotId> slots;        // while running
  std::int64_t step = 0, steps = 0;
  double started_at = 0;            // `now` of the start
  int failures = 0;                 // charged against retries
  std::string cause, message, summary;
};

class Core {
 public:
  // history: the journal's events so far (replay); done: stages whose sealed result was found in the workspace.
  // Attempts that were running in the history are over: their stages are ready again (the launcher before is dead).
  Core(std::vector<StageSpec> plan, CorePolicy policy, const std::vector<JournalEvent>& history,
       const std::map<StageId, std::string>& done_summaries);

  // now: monotonic seconds, never decreasing. Commands are in the order in which they must be carried out.
  std::vector<Command> Handle(const Event& event, double now);

  const StageStatus& status(const StageId& stage) const;
  const std::vector<StageSpec>& plan() const { return plan_; }
  struct Counts { int waiting = 0, ready = 0, running = 0, finished = 0, diverged = 0, failed = 0, skipped = 0; };
  Counts counts() const;
  double finished_flops() const;    // of finished stages plus the done part of running ones
  double total_flops() const;       // of all stages that can still be finished
  bool ended() const { return ended_; }
  void CheckInvariants() const;     // aborts on a violation; called by tests after every event

 private:
  std::vector<StageSpec> plan_;
  CorePolicy policy_;
  bool ended_ = false;
  // The author of core.cc adds the rest of the state here.
};

}  // namespace headsweep
