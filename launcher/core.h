// Core: the scheduler as a pure state machine. Events go in, commands come out; there is no MPI, clock, file, thread or
// random number in here, so it is tested by simulation. The coordinator feeds it, writes every Record to the journal, syncs,
// and only then carries out the other commands of the same call.
//
// What is fatal: a broken invariant (HEADSWEEP_CHECK). What is idempotent: every event; a duplicate, late or unknown one (of an
// older attempt, of a lost node) changes nothing. Stages: waiting -> ready (parent finished) -> running -> finished | diverged |
// failed; a stopped or lost attempt puts its stage back to ready. finished and diverged never change again. A stage that the
// sweep's rule for early stopping gives up becomes early-stopped, with all behind it, which is no failure; a person may retry it.
//
// Failures. What each cause costs is in failure_policy.h. A stage whose charged failures exceed its retries has failed, and
// the stages behind it are skipped. Every launch starts with a fresh budget, since people run `resume` to have failed stages
// tried again; an automatic restart (CorePolicy) is the same launch going on, so there the failures so far still count.
//
// Gangs. The stage at the head of the queue gets the next slots that come free until it fits. Meanwhile a smaller one may pass
// it only if it should be done before that, and at most as many do as there are slots.
//
// Memory. Trials share a device (two slots of one GPU, or the slots of a CPU node) as far as its memory goes: what each is
// estimated to need, or what stages of the same kind and estimate have been measured to need. One that runs out of memory in company is
// tried again with a device of its own; one that was alone gets smaller micro-batches.
//
// Several launchers on one sweep (CorePolicy::shared; LEASES.md). Each has a core of its own. Before a stage is started, its
// lease is claimed (ClaimStage, ClaimAnswered); what the others record is heard (HeardOf), so that all cores come to the same
// view; a stage that runs elsewhere is ready here, but in no queue until its attempt there is over.
//
// Every event costs O(log stages + running attempts) at most, plus O(1) for every command and every stage it skips.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/base/ids.h"
#include "launcher/early_stopping.h"
#include "launcher/hang_watch.h"
#include "launcher/journal_format.h"
#include "launcher/ready_queue.h"
#include "launcher/slot_pool.h"

namespace headsweep {

// One unit of work, from the plan.
struct StageSpec {
  StageId id;
  std::optional<StageId> parent;  // must be finished first; a failed or diverged parent makes this stage "skipped"
  std::string kind;               // "train" | "prune"
  int slots = 1;                  // processes, each on a slot of its own, all started together
  int retries = 2;                // attempts beyond the first that its own failures may cost
  double flops = 0;               // estimate; longest first
  int priority = 0;               // higher goes first
  std::string group = {};         // stages with the same one compete when some are stopped early; "": never stopped early
  std::int64_t memory = 0;        // bytes on the device of each process: estimate; 0 = not known
};

enum class StageState { kWaiting, kReady, kRunning, kFinished, kDiverged, kFailed, kSkipped, kEarlyStopped };
const char* ToString(StageState state);

// --- Events ---------------------------------------------------------------------------------------------------------------
// Of a node that is there: changes nothing. device_bytes: see SlotPool::AddNode.
struct NodeJoined { NodeId node; std::string host; int slots = 1; std::vector<std::int64_t> device_bytes = {}; };
// Every node that answered has no slots (no GPU, say): the sweep ends. Changes nothing once a node with slots has joined.
struct NoSlots { std::string reason; };
// Attempts that ran on that node alone are over. Of a gang that also has processes elsewhere, those are killed
// (KillAttempt), and it is over when AttemptEnded says that the last of them is gone.
struct NodeLost { NodeId node; std::string reason; };
struct AttemptProgressed { StageId stage; Attempt attempt; std::int64_t step = 0, steps = 0; };  // also: still alive
struct AttemptCheckpointed { StageId stage; Attempt attempt; std::int64_t step = 0; };
// Of the validation split; lower is better.
struct AttemptEvaluated { StageId stage; Attempt attempt; std::int64_t step = 0; double value = 0; };
struct AttemptEnded {    // every process of the attempt is gone
  StageId stage;
  Attempt attempt;
  std::string outcome;   // control_protocol.h: finished | diverged | stopped | failed
  std::string cause;     // of a failure: control_protocol.h, or failure_policy.h
  std::string message;
  std::string summary;   // JSON StageSummary of a finished or diverged stage
  std::int64_t memory = 0;  // most bytes that a process has held on its device; 0 = not known
};
struct StopRequested { std::string reason; };  // Ctrl-C, SIGTERM, time limit. The second one kills instead of asking
// The allocation ends so many seconds from now. Ahead of that everything is checkpointed, as if asked to stop; and nothing is
// started that would hardly get under way. The latest one counts.
struct TimeLimit { double seconds_left = 0; };
// People's wishes while it runs (requests.h). Paused: nothing is started, what runs goes on, and the sweep does not end. A new
// launch is not paused.
struct PauseRequested { bool paused = true; std::string by; };
// Failed stages are tried again with a fresh budget, and what was skipped because of them waits again. Empty: all that failed. One
// that was stopped early goes on if it is named, and is not stopped early again.
struct RetryRequested { std::vector<StageId> stages; std::string by; };
// Of a shared sweep only:
struct ClaimAnswered { StageId stage; std::optional<Attempt> attempt; };  // of ClaimStage; nothing: somebody else has the stage
struct HeardOf { JournalEvent event; };  // what another launcher has recorded, in the order of its journal
struct LeftBehind { StageId stage; Attempt attempt; };  // of another launcher, which is gone: that attempt is over
struct LeaseLost { StageId stage; Attempt attempt; };   // another launcher has taken over what runs here
struct Tick {};                                // time passed; see `now`. At least every few seconds
using Event = std::variant<NodeJoined, NoSlots, NodeLost, AttemptProgressed, AttemptCheckpointed, AttemptEvaluated, AttemptEnded,
                           StopRequested, TimeLimit, PauseRequested, RetryRequested, ClaimAnswered, HeardOf,
                           LeftBehind, LeaseLost, Tick>;

// --- Commands -------------------------------------------------------------------------------------------------------------
struct Record { JournalEvent event; };         // append to the journal before anything else of this call is done
struct StartAttempt {
  StageId stage;
  Attempt attempt;
  std::vector<SlotId> slots;     // ascending; rank r of the trial runs on slots[r]
  int micro_batch_divisor = 1;   // doubles with each out-of-memory failure of the stage that nobody else can be blamed for
};
struct StopAttempt { StageId stage; Attempt attempt; };                      // ask to checkpoint and leave
struct KillAttempt { StageId stage; Attempt attempt; std::string reason; };  // its end is still reported by AttemptEnded
// Of a shared sweep only:
struct ClaimStage { StageId stage; Attempt least; };      // for an attempt with at least that number; ClaimAnswered is the answer
struct ReleaseStage { StageId stage; Attempt attempt; };  // the attempt is over and recorded: give its lease back
struct Notice { std::string text; };           // for the log: a decision that a person may wonder about
struct EndSweep { int exit_code = 0; std::string reason; };                  // nothing runs any more
using Command = std::variant<Record, StartAttempt, StopAttempt, KillAttempt, ClaimStage, ReleaseStage, Notice, EndSweep>;

struct CorePolicy {
  double hang_floor_seconds = 120;  // no progress for max(hang_factor * median step time, floor) -> killed, retried
  double hang_factor = 20;
  int common_failure_limit = 3;     // that many different stages fail, none ever finished, same cause: stop early
  double stop_grace_seconds = 60;   // an attempt asked to stop is killed after that; a kill is repeated that often
  double gang_patience_seconds = 60;  // nothing runs and no stage fits on the nodes that are there: end after that
  bool automatic_restart = false;   // this is a requeue by the batch system, not a person's `run` or `resume`
  int slot_failure_limit = 3;       // that many different stages in a row fail on one slot: it is left out …
  double quarantine_seconds = 600;  // … for that long; then the next attempt there is the probe
  EarlyStoppingRule early_stopping;
  bool shared = false;              // with other launchers: stages are claimed
  double time_limit_lead_seconds = 60;  // from "stop" to the end of the allocation: time to checkpoint
};

// A history that is in no memory as a whole: calls visit for each event, in order. Called once.
struct HistoryStream {
  using Visit = std::function<void(const JournalEvent& event)>;
  explicit HistoryStream(std::function<void(const Visit& visit)> for_each_) : for_each(std::move(for_each_)) {}
  std::function<void(const Visit& visit)> for_each;
};

struct StageStatus {
  StageState state = StageState::kWaiting;
  Attempt attempt;                  // the latest; value 0 = none yet
  std::vector<SlotId> slots;        // while running
  std::int64_t step = 0, steps = 0;
  double started_at = 0;            // `now` of the start
  int failures = 0;                 // charged against retries
  Attempt elsewhere;                // another launcher runs this attempt; value 0 = no
  std::string cause, message, summary;
};

class Core {
 public:
  // history: the journal's events so far (replay); done: stages whose sealed result was found in the workspace, with their
  // summaries (JSON StageSummary, "" if not known). Attempts that were running in the history are over: their stages are
  // ready again (the launcher before is dead). A stage of `done` that the history does not know as finished is adopted (a
  // Record of the first Handle); one that finished in the history but is not in `done` has lost its result and runs again.
  // Aborts on a plan with a duplicate stage, an unknown parent or a circle.
  Core(std::vector<StageSpec> plan, CorePolicy policy, const std::vector<JournalEvent>& history,
       const std::map<StageId, std::string>& done_summaries);
  Core(std::vector<StageSpec> plan, CorePolicy policy, const HistoryStream& history,
       const std::map<StageId, std::string>& done_summaries);

  // now: monotonic seconds, never decreasing. Commands are in the order in which they must be carried out: records first.
  // Empty once the sweep has ended.
  std::vector<Command> Handle(const Event& event, double now);

  const StageStatus& status(const StageId& stage) const;
  const std::vector<StageSpec>& plan() const { return plan_; }
  struct Counts {
    int waiting = 0, ready = 0, running = 0, finished = 0, diverged = 0, failed = 0, skipped = 0, early_stopped = 0;
    bool operator==(const Counts&) const = default;
  };
  Counts counts() const { return counts_; }
  double finished_flops() const;    // of finished stages plus the done part of running ones
  double total_flops() const { return total_flops_; }  // of all stages that can still be finished, and those that are
  bool ended() const { return ended_; }
  bool paused() const { return paused_; }
  bool stopping() const { return stop_requested_; }  // the next StopRequested kills
  int slots() const { return pool_.usable(); }
  bool short_of_memory() const { return short_of_memory_since_ == pool_.changes(); }  // slots are free, but nothing fits in
  int busy_slots() const;
  double longest_chain_left() const;  // slot time in FLOPs per slot, of the stages that run or are ready
  void CheckInvariants() const;     // aborts on a violation; called by tests after every event

 private:
  // What the live attempt of a stage has been told. kClaiming: there is none yet, but its slots are kept.
  enum class Run { kNone, kClaiming, kRunning, kStopping, kKilling };
  enum class Phase { kOpen, kStopping, kKilling };          // of the sweep

  struct Entry {
    StageStatus status;
    int parent = -1;
    std::vector<int> children;
    double chain = 0;                // see ready_queue.h
    Run run = Run::kNone;
    std::string kill_cause;          // kKilling: what the end counts as
    HangWatch watch;                 // progress of the live attempt
    std::optional<double> alarm;     // filed in alarms_
    std::optional<double> delayed_until;  // ready, but not before; filed in delayed_
    bool queued = false;             // in queue_
    std::int64_t checkpoint_step = 0;
    std::int64_t step_at_start = 0;
    int micro_batch_divisor = 1;
    bool alone = false;              // wants its devices for itself: it has run out of memory in company
    int futile = 0;                  // free retries in a row without a step done
    std::string given_up;            // why it is to be stopped early; "": it is not
    bool under_way = false;          // the live attempt has done a step
    bool spared = false;             // a person wants it done: never stopped early again
    std::optional<StageState> result_elsewhere;  // kFinished or kDiverged, heard while an attempt still ran here
  };

  // core_replay.cc
  struct Past {                      // what the history says about a stage
    std::optional<StageState> result;
    int launch = 0;                  // of the last failure
    int failures = 0;                // charged in that launch
    bool hopeless = false;           // failed for a cause that is never retried
    std::string given_up;            // stopped early, and why
  };
  std::vector<int> LinkPlan();       // returns all stages, parents first
  std::vector<Past> Replay(const HistoryStream& history);
  void Settle(const std::vector<int>& parents_first, const std::vector<Past>& past,
              const std::map<StageId, std::string>& done_summaries);
  // core.cc
  void On(const NodeJoined& event);
  void On(const NoSlots& event);
  void On(const NodeLost& event);
  void On(const AttemptProgressed& event);
  void On(const AttemptCheckpointed& event);
  void On(const AttemptEvaluated& event);
  void On(const AttemptEnded& event);
  void On(const StopRequested& event);
  void On(const TimeLimit& event);
  void On(const PauseRequested& event);
  void On(const RetryRequested& event);
  void Revive(int stage);            // failed or early-stopped -> ready; what was given up behind it -> waiting
  void On(const Tick& event);
  int FindLive(const StageId& stage, Attempt attempt) const;  // position in the plan, or -1
  void Finish(int stage, StageState state, const AttemptEnded& event);
  void Conclude(int stage, StageState state, const std::string& summary);  // it has a result: what follows from that
  void Fail(int stage, const std::string& cause, const AttemptEnded& event);
  void GiveUp(int stage, const std::string& cause, const std::string& message);
  void Drop(int stage, StageState state);  // kSkipped or kEarlyStopped, and all behind it
  void ReleaseSlots(int stage, const std::string& cause, bool praise);  // the live attempt is over
  void Enter(int stage, StageState state);
  void Close(Phase phase, int exit_code, const std::string& reason);  // start nothing more, let end what runs
  void Stop(int stage);
  void Kill(int stage, const std::string& cause, const std::string& reason);
  void SetAlarm(int stage, std::optional<double> time);
  // core_shared.cc
  void On(const ClaimAnswered& event);
  void On(const HeardOf& event);
  void On(const LeftBehind& event);
  void On(const LeaseLost& event);
  void HearValue(int stage, const JournalEvent& event);
  void HearStart(int stage, Attempt attempt);
  void HearEnd(int stage, const JournalEvent& event);
  void HearResult(int stage, StageState state, const std::string& summary);
  void Reopen(int stage, double delay);  // its attempt elsewhere is over: ready, or early-stopped
  void Unclaim(int stage);           // the slots of a claim that came to nothing; the stage is ready, in no queue
  void LoseLease(int stage);
  bool IsLive(int stage) const { return At(stage).run != Run::kNone && At(stage).run != Run::kClaiming; }
  // core_schedule.cc
  void Ring();                       // alarms, delays and quarantines that are due
  void MakeReady(int stage, double delay);
  ReadyQueue::Entry QueueEntry(int stage) const;
  void StartReady();
  void Unqueue(int stage);           // it stays ready
  void Start(const ReadyQueue::Entry& entry);
  void Begin(int stage, Attempt attempt);  // on the slots that the stage has
  void ObeyTimeLimit();
  bool IsTooLateToStart() const;
  std::int64_t MemoryOf(int stage) const;
  double WaitFor(int stage) const;   // slot time until it fits, by estimate
  void TellShortOfMemory(int stage);
  void LearnMemory(const StageSpec& spec, std::int64_t measured);
  static void LearnOutOfMemory(Entry& entry, bool in_company);  // what its next attempt does better
  double RemainingFlops(int stage) const;
  void EndIfDone();

  Entry& At(int stage) { return entries_[static_cast<std::size_t>(stage)]; }
  const Entry& At(int stage) const { return entries_[static_cast<std::size_t>(stage)]; }
  void Emit(Command command) { commands_.push_back(std::move(command)); }
  void RecordEvent(const char* type, int stage, std::map<std::string, std::string> fields);

  std::vector<StageSpec> plan_;
  CorePolicy policy_;
  bool ended_ = false;
  std::vector<Entry> entries_;       // in the order of the plan
  std::unordered_map<StageId, int> index_;
  SlotPool pool_;
  ReadyQueue queue_;
  EarlyStopping early_stopping_;
  std::set<std::pair<double, int>> delayed_;  // (not before, stage)
  std::set<std::pair<double, int>> alarms_;   // (time, stage): hang, end of grace
  std::set<int> running_;
  Counts counts_;
  double total_flops_ = 0, closed_flops_ = 0;  // closed: of finished stages

  double now_ = 0, last_now_ = 0;    // now_ leaves out the time in which nobody looked; see Handle
  bool begun_ = false;
  Phase phase_ = Phase::kOpen;
  bool stop_requested_ = false, paused_ = false;
  int close_code_ = 0;
  std::string close_reason_;
  bool any_finished_ = false, any_node_ = false, any_lost_ = false;
  std::optional<double> nothing_fits_since_;
  std::optional<double> ends_at_;    // of the allocation, on the clock of last_now_
  double start_up_ = 0;              // seconds from the start of an attempt to its first step: a moving average
  int stages_to_start_ = 0;          // ready at the beginning
  int reserved_for_ = -1;            // the stage for which slots are being kept, or -1
  int passed_by_ = 0;                // how many were started meanwhile
  bool told_short_of_memory_ = false;
  std::optional<std::uint64_t> short_of_memory_since_;  // nothing more fits, unless the pool has changed since
  std::map<std::pair<std::string, std::int64_t>, std::int64_t> measured_memory_;  // (kind, estimate) -> the most that one has taken
  std::int64_t memory_underestimate_ = 0;  // the most that a measured one was above its estimate
  std::map<std::string, std::vector<int>> common_failures_;  // signature -> failed stages
  std::map<SlotId, std::set<int>> strikes_;                  // slot -> stages that failed there since the last success
  std::deque<std::pair<double, SlotId>> quarantine_;         // (until, slot), in order of time
  std::vector<Command> pending_;     // records of the constructor
  std::vector<Command> commands_;    // of the call that is being handled
};

}  // namespace headsweep
