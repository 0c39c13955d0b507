// A world for the scheduler core to live in: nodes that come and go, trainers that finish, fail, hang and
// die, messages that are late, lost or arrive twice, and a coordinator that is killed at any moment and starts
// again from its journal. All of it is decided by a Schedule. The world knows the truth and checks every
// command against it; a broken promise is a Violation.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "launcher/core.h"
#include "launcher/failure_policy.h"
#include "tests/launcher/event_text.h"
#include "tests/launcher/schedule.h"
#include "trainer/control_protocol.h"

namespace headsweep::testing {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class SimulatedWorld {
 public:
  // trace: every event, record and command is printed.
  SimulatedWorld(const Schedule& schedule, Mutant mutant, bool trace = false)
      : schedule_(schedule), chance_(schedule.world), mutant_(mutant), trace_(trace) {
    MakePlan();
    const bool memory_is_known = OneIn(2);
    for (int i = 0; i < kNodes; ++i) {
      node_slots_.push_back(1 + Below(3));
      node_devices_.emplace_back();
      for (int device = Below(2); memory_is_known && device >= 0; --device) node_devices_.back().push_back(3 + Below(8));
    }
    node_slots_[0] = 3;  // the widest gang fits
    Launch();
  }

  void Run() {
    for (const std::uint64_t step : schedule_.steps) {
      chance_ = Chance(step);
      HostileStep();
    }
    chance_ = Chance(schedule_.world + 1);
    BeFair();
  }

  int starts() const { return static_cast<int>(all_starts_.size()); }
  int launches() const { return launches_; }

 private:
  static constexpr int kNodes = 3;
  struct Trainer {
    StageId stage;
    Attempt attempt;
    std::vector<SlotId> slots;  // of the processes that live
    bool maimed = false;        // a process was lost with its node
    bool stopping = false, killed = false, said_end = false;
    std::int64_t step = 0;
  };

  // --- chance
  // -------------------------------------------------------------------------------------------------------------
  int Below(int n) { return static_cast<int>(chance_.Next() % static_cast<std::uint64_t>(n)); }
  std::size_t Index(std::size_t size) { return static_cast<std::size_t>(Below(static_cast<int>(size))); }
  bool OneIn(int n) { return Below(n) == 0; }

  void MakePlan() {
    const int stages = 1 + Below(20);
    for (int i = 0; i < stages; ++i) {
      StageSpec spec;
      spec.id = StageId(fmt::format("s{}", i));
      spec.slots = OneIn(3) ? 2 + Below(2) : 1;
      spec.retries = Below(3);
      spec.flops = Below(50);
      spec.memory = OneIn(4) ? 0 : 1 + Below(6);
      if (i > 0 && !OneIn(3)) spec.parent = StageId(fmt::format("s{}", Below(i)));
      if (!spec.parent && !OneIn(4)) spec.group = "g";
      plan_.push_back(spec);
    }
    using Kind = EarlyStoppingRule::Kind;
    early_stopping_ = {.kind = OneIn(2) ? Kind::kNone : (OneIn(2) ? Kind::kMedian : Kind::kSuccessiveHalving),
                       .min_steps = 1 + Below(3),
                       .min_trials = 1 + Below(2),
                       .reduction_factor = 2};
  }

  // --- the coordinator
  // ------------------------------------------------------------------------------------------------------
  void Launch() {
    ++launches_;
    Trace("launch {}: {} events in the journal, {} results", launches_, journal_.size(), sealed_.size());
    external_in_a_row_.clear();
    CorePolicy policy;
    policy.hang_floor_seconds = 30;
    policy.stop_grace_seconds = 5;
    policy.slot_failure_limit = 2;
    policy.quarantine_seconds = 20;
    policy.automatic_restart = OneIn(4);
    policy.early_stopping = early_stopping_;
    for (const StageId& stage : known_finished_) {
      Check(sealed_.contains(stage), "the journal says that {} finished, but it has no result",
            stage.value());
    }
    const bool forget = mutant_ == Mutant::kForgetJournal;
    static const std::vector<JournalEvent> kNothing;
    core_ = std::make_unique<Core>(plan_, policy, forget ? kNothing : journal_, sealed_);
    core_->CheckInvariants();
    CheckFinishedStays();
    ended_.reset();
    stop_requested_ = paused_ = false;
    node_up_.assign(kNodes, false);
    Join(0);
  }

  // The launcher is killed, and its trainers with it (they notice at once). What they had sealed stays.
  void Crash() {
    trainers_.clear();
    unsealed_.clear();
    Launch();
  }

  void Tell(const Event& event) {
    if (ended_) return;
    if (trace_) Trace("at {:.2f}: {}", now_, std::visit([](const auto& e) { return DescribeEvent(e); }, event));
    const std::vector<Command> commands = core_->Handle(event, now_);
    core_->CheckInvariants();
    if (mutant_ == Mutant::kActBeforeSync && !CarryOut(commands)) return Crash();
    if (chaos_ && OneIn(150)) return Crash();  // before anything is written
    std::vector<JournalEvent> records;
    for (const Command& command : commands) {
      if (const auto* record = std::get_if<Record>(&command)) records.push_back(record->event);
    }
    if (chaos_ && !records.empty() && OneIn(80)) {  // while it is written: any part of it may survive
      records.resize(static_cast<std::size_t>(Below(static_cast<int>(records.size()) + 1)));
      Write(records);
      return Crash();
    }
    Write(records);
    if (mutant_ != Mutant::kActBeforeSync && !CarryOut(commands)) return Crash();
    CheckFinishedStays();
  }

  void Write(const std::vector<JournalEvent>& records) {
    for (const JournalEvent& event : records) {
      journal_.push_back(event);
      Trace("    journal: {} {} attempt {}{}", event.type, event.stage, event.attempt,
            event.fields.contains("cause") ? " " + event.fields.at("cause") : "");
      CheckRecord(event);
      const auto outcome = event.fields.find("outcome");
      const bool result =
          event.type == journal::kStageAdopted ||
          (outcome != event.fields.end() && (outcome->second == "finished" || outcome->second == "diverged"));
      if (result) known_finished_.insert(StageId(event.stage));
      if (event.type == journal::kEarlyStopped) given_up_.insert(StageId(event.stage));
      if (event.type == journal::kRetried || result) given_up_.erase(StageId(event.stage));
    }
  }

  bool CarryOut(const std::vector<Command>& commands) {  // false: killed in between
    for (const Command& command : commands) {
      if (chaos_ && OneIn(300)) return false;
      std::visit([this](const auto& c) { On(c); }, command);
    }
    return true;
  }

  // A checkpoint never goes back, and only a stage's own failures are charged to it.
  void CheckRecord(const JournalEvent& event) {
    const StageId stage(event.stage);
    if (event.type == journal::kCheckpointed) {
      const std::int64_t step = std::strtoll(event.fields.at("step").c_str(), nullptr, 10);
      std::int64_t& last = checkpoints_[{stage, Attempt(event.attempt)}];
      Check(step > last, "{} attempt {} goes back from its checkpoint at step {} to {}", event.stage,
            event.attempt, last, step);
      last = step;
    }
    if (event.type == journal::kAttemptEnded && event.fields.contains("charged")) {
      const std::pair<StageId, Attempt> id(stage, event.attempt);
      if (event.fields.contains("in_company")) wants_to_be_alone_.insert(stage);
      const bool external = external_.contains(id) && !silent_.contains(id);
      int& in_a_row = external_in_a_row_[stage];
      in_a_row = external ? in_a_row + 1 : 0;
      // Ten endings in a row for no fault of its own: then it is charged, so that it cannot go on for ever.
      Check(!external || in_a_row > 10 || event.fields.at("charged") == "no",
            "{} attempt {} pays for what was not its fault", event.stage, event.attempt);
    }
  }

  void On(const Record&) {}
  void On(const Notice&) {}
  void On(const ClaimStage& c) { Check(false, "{} is claimed, but nobody shares this sweep", c.stage.value()); }
  void On(const ReleaseStage& c) { Check(false, "{} is released, but nobody shares this sweep", c.stage.value()); }
  void On(const StartAttempt& c) {
    const StageSpec& spec = Spec(c.stage);
    const std::string name = fmt::format("{} attempt {}", c.stage.value(), c.attempt.value());
    Trace("    start {} on {} slots", name, c.slots.size());
    Check(all_starts_.insert({c.stage, c.attempt}).second, "{} is started twice", name);
    Check(!known_finished_.contains(c.stage), "{} repeats finished work", name);
    Check(!spec.parent || sealed_.contains(*spec.parent), "{} starts before its parent has a result", name);
    Check(static_cast<int>(c.slots.size()) == spec.slots, "{} gets {} slots of {}", name, c.slots.size(),
          spec.slots);
    Check(!IsGivenUp(spec), "{} starts although it was stopped early", name);
    Check(!stop_requested_, "{} starts although the sweep is to stop", name);
    Check(!paused_, "{} starts although the sweep is paused", name);
    std::set<SlotId> own;
    for (const SlotId& slot : c.slots) {
      Check(own.insert(slot).second, "{} gets a slot twice", name);
      const auto node = static_cast<std::size_t>(slot.node.value());
      Check(node_up_[node] && slot.index < node_slots_[node], "{} starts on a slot that is not there", name);
      for (const Trainer& other : trainers_) {
        Check(std::find(other.slots.begin(), other.slots.end(), slot) == other.slots.end(),
              "{} shares a slot with {} attempt {}", name, other.stage.value(), other.attempt.value());
      }
    }
    for (const Trainer& other : trainers_) {
      Check(other.stage != c.stage, "{} starts while attempt {} lives", name, other.attempt.value());
    }
    trainers_.push_back({c.stage, c.attempt, c.slots});
    CheckMemory(trainers_.back());
  }

  // What shares a device fits into its memory, by what each needs at least; and who has run out of it shares no more.
  void CheckMemory(const Trainer& started) {
    for (const SlotId& slot : started.slots) {
      const std::vector<std::int64_t>& devices = node_devices_[static_cast<std::size_t>(slot.node.value())];
      if (devices.empty()) continue;
      const std::size_t device = static_cast<std::size_t>(slot.index) % devices.size();
      std::int64_t needed = 0;
      std::set<StageId> here;
      for (const Trainer& t : trainers_) {
        for (const SlotId& s : t.slots) {
          if (s.node != slot.node || static_cast<std::size_t>(s.index) % devices.size() != device) continue;
          needed += Spec(t.stage).memory;
          here.insert(t.stage);
        }
      }
      if (here.size() == 1) continue;
      Check(needed <= devices[device], "{} makes a device of {} bytes hold {}", started.stage.value(), devices[device], needed);
      for (const StageId& stage : here)
        Check(!wants_to_be_alone_.contains(stage), "{} shares a device again", stage.value());
    }
  }
  void On(const StopAttempt& c) {
    Trace("    stop {} attempt {}", c.stage.value(), c.attempt.value());
    if (Trainer* t = Find(c.stage, c.attempt)) t->stopping = true;
  }
  void On(const KillAttempt& c) {
    Trace("    kill {} attempt {}: {}", c.stage.value(), c.attempt.value(), c.reason);
    if (c.reason.find("no sign of life") != std::string::npos) silent_.insert({c.stage, c.attempt});
    if (Trainer* t = Find(c.stage, c.attempt)) {
      t->killed = true;
    } else if (const auto end = ends_.find({c.stage, c.attempt}); end != ends_.end() && mutant_ != Mutant::kEndSaidOnce) {
      mail_.push_back(end->second);  // it is over, which was said already: perhaps nobody heard it
    }
  }
  void On(const EndSweep& c) {
    Trace("    end with {}: {}", c.exit_code, c.reason);
    Check(trainers_.empty(), "the sweep ends while {} trainers run", trainers_.size());
    for (const StageSpec& spec : plan_) {
      Check(c.exit_code != 0 || sealed_.contains(spec.id) || IsGivenUp(spec), "exit code 0, but {} has no result",
            spec.id.value());
    }
    ended_ = c.exit_code;
  }

  bool IsGivenUp(const StageSpec& spec) const {
    return given_up_.contains(spec.id) || (spec.parent && IsGivenUp(Spec(*spec.parent)));
  }

  void CheckFinishedStays() {
    for (const StageId& stage : known_finished_) {
      const StageState state = core_->status(stage).state;
      Check(state == StageState::kFinished || state == StageState::kDiverged, "{} was finished and is now {}",
            stage.value(), ToString(state));
    }
  }

  // --- the nodes
  // ------------------------------------------------------------------------------------------------------------
  void Join(int node) {
    const auto i = static_cast<std::size_t>(node);
    if (node_up_[i]) return;
    node_up_[i] = true;
    Tell(NodeJoined{NodeId(node), fmt::format("host{}", node), node_slots_[i], node_devices_[i]});
  }

  void Lose(int node) {
    const auto i = static_cast<std::size_t>(node);
    if (!node_up_[i]) return;
    node_up_[i] = false;
    for (const Trainer& t : trainers_) {
      const bool there = std::any_of(t.slots.begin(), t.slots.end(),
                                     [&](const SlotId& s) { return s.node.value() == node; });
      if (there && !t.killed) external_.insert({t.stage, t.attempt});
    }
    if (mutant_ != Mutant::kLostIsNotDead) {
      for (Trainer& t : trainers_) {
        t.maimed |= std::erase_if(t.slots, [&](const SlotId& s) { return s.node.value() == node; }) > 0;
      }
      std::erase_if(trainers_, [](const Trainer& t) { return t.slots.empty(); });
    }
    Tell(NodeLost{NodeId(node), "silent"});
  }

  // --- the trainers
  // ---------------------------------------------------------------------------------------------------------
  Trainer* Find(const StageId& stage, Attempt attempt) {
    for (Trainer& t : trainers_) {
      if (t.stage == stage && t.attempt == attempt) return &t;
    }
    return nullptr;
  }

  void Send(Event event) {
    mail_.push_back(static_cast<int>(sent_.size()));
    sent_.push_back(std::move(event));
  }

  void Seal(const Trainer& t, const std::string& outcome) {
    const std::string summary = fmt::format(R"({{"outcome": "{}"}})", outcome);
    if (mutant_ == Mutant::kReportBeforeSeal) {
      unsealed_.insert({t.stage, summary});
    } else {
      sealed_.insert({t.stage, summary});
    }
  }

  void End(std::size_t index, const std::string& outcome, const std::string& cause) {
    Trainer t = trainers_[index];
    if (outcome == "finished" || outcome == "diverged") Seal(t, outcome);
    const auto seal = sealed_.find(t.stage);
    const bool diverged = seal != sealed_.end() && seal->second.find("diverged") != std::string::npos;
    const std::string end = seal == sealed_.end() ? outcome : (diverged ? "diverged" : "finished");
    if (end == "stopped" || (t.stopping && cause == cause::kSignal)) external_.insert({t.stage, t.attempt});
    Trace("  {} attempt {} is gone: {} {}", t.stage.value(), t.attempt.value(), end, cause);
    if (mutant_ == Mutant::kGangEndsWithOne && t.slots.size() > 1 && end == "failed") {
      trainers_[index].slots.pop_back();
      trainers_[index].maimed = true;
    } else {
      trainers_.erase(trainers_.begin() + static_cast<std::ptrdiff_t>(index));
    }
    ends_[{t.stage, t.attempt}] = static_cast<int>(sent_.size());
    Send(AttemptEnded{t.stage, t.attempt, end, end == "failed" ? cause : "", "message",
                      seal == sealed_.end() ? "" : seal->second, Spec(t.stage).memory + t.step % 3});
  }

  void LiveOn(std::size_t index, bool fair) {
    Trainer& t = trainers_[index];
    if (!unsealed_.empty()) {
      sealed_.insert(*unsealed_.begin());
      unsealed_.erase(unsealed_.begin());
    }
    if (t.killed) {
      if (!fair && OneIn(20) && !t.maimed) return End(index, "finished", "");  // sealed in the last moment
      return End(index, "failed", cause::kSignal);
    }
    if (t.maimed) {  // its peers are gone: it hangs until it is killed, or gives up
      if (!fair && OneIn(4)) End(index, "failed", control::kCauseError);
      return;
    }
    if (t.stopping && (fair || OneIn(3))) return End(index, "stopped", "");
    const int what = fair ? 25 + Below(40) : Below(100);
    if (what < 3) return;  // hangs for a while
    if (what < 14) return End(index, "failed", OneIn(2) ? control::kCauseError : cause::kSignal);
    if (what < 16) return End(index, "failed", control::kCauseOutOfMemory);
    if (what < 17) return End(index, "failed", control::kCauseConfiguration);
    if (what < 18) return End(index, "failed", control::kCauseInputOutput);
    if (what < 20) return End(index, "failed", control::kCauseDevice);
    if (what < 22) return End(index, "stopped", "");  // pre-empted
    if (what < 24) return End(index, "diverged", "");
    if (what < 40) return End(index, "finished", "");
    if (what < 55) return Send(AttemptCheckpointed{t.stage, t.attempt, t.step});
    if (what < 60) return Send(AttemptEvaluated{t.stage, t.attempt, t.step, static_cast<double>(Below(6))});
    Send(AttemptProgressed{t.stage, t.attempt, ++t.step, 20});
  }

  // --- time
  // -----------------------------------------------------------------------------------------------------------------
  void Deliver() {  // any message
    if (mail_.empty()) return;
    std::swap(mail_[static_cast<std::size_t>(Below(static_cast<int>(mail_.size())))], mail_.back());
    Event event = sent_[static_cast<std::size_t>(mail_.back())];
    mail_.pop_back();
    if (mutant_ == Mutant::kNoFencing) {
      if (auto* end = std::get_if<AttemptEnded>(&event)) end->attempt = core_->status(end->stage).attempt;
    }
    Tell(event);
  }

  // Any message on its way is lost.
  void Forget() {
    if (mail_.empty()) return;
    std::swap(mail_[static_cast<std::size_t>(Below(static_cast<int>(mail_.size())))], mail_.back());
    Trace("a message is lost: number {}", mail_.back());
    mail_.pop_back();
  }

  void HostileStep() {
    chaos_ = true;
    now_ += 0.01 * Below(100);
    if (ended_) {
      if (*ended_ != 0 || OneIn(20)) Resume();  // of a sweep that is done: now and then
      return;
    }
    const int what = Below(1000);
    if (what < 400) {
      Deliver();
    } else if (what < 820) {
      if (!trainers_.empty())
        LiveOn(static_cast<std::size_t>(Below(static_cast<int>(trainers_.size()))), false);
    } else if (what < 900) {
      now_ += Below(8);
      Tell(Tick{});
    } else if (what < 930) {
      Join(Below(kNodes));
    } else if (what < 950) {
      Lose(Below(kNodes));
    } else if (what < 958) {
      Forget();
    } else if (what < 985) {
      if (!sent_.empty()) mail_.push_back(Below(static_cast<int>(sent_.size())));
    } else if (what < 991) {
      Crash();
    } else if (what < 995) {
      stop_requested_ = true;
      Tell(StopRequested{"asked to"});
    } else if (what < 997) {
      Pause(OneIn(2));
    } else if (what < 998) {
      Tell(RetryRequested{OneIn(2) ? std::vector<StageId>{} : std::vector<StageId>{plan_[Index(plan_.size())].id}, "somebody"});
    } else if (what == 998 && OneIn(2)) {
      Tell(TimeLimit{0.5 * Below(200)});
    } else if (what < 999) {
      now_ += 100;  // nobody looked for a while
      Tell(Tick{});
    } else if (!sealed_.empty()) {
      Lose(0);
      Join(0);
    }
  }

  void Pause(bool paused) {
    paused_ = paused;
    Tell(PauseRequested{paused, "somebody"});
  }

  void Resume() {
    trainers_.clear();
    Launch();
  }

  // From here on nothing goes wrong, and time passes: whatever the past was, the sweep must come to its end.
  void BeFair() {
    chaos_ = false;
    if (!ended_) Pause(false);
    for (int step = 0; step < 20000; ++step) {
      now_ += 1;
      for (int node = 0; node < kNodes; ++node) Join(node);
      while (!mail_.empty()) Deliver();
      for (std::size_t i = trainers_.size(); i-- > 0;) {
        if (i < trainers_.size()) LiveOn(i, true);
      }
      if (!ended_) Tell(Tick{});
      if (!ended_) continue;
      if (*ended_ == 0 || (*ended_ == 1 && OnlyDivergenceIsLeft())) return;
      Resume();
    }
    throw Violation("the sweep does not end although nothing goes wrong any more");
  }

  bool OnlyDivergenceIsLeft() const {
    const Core::Counts counts = core_->counts();
    return counts.failed == 0 && counts.diverged > 0 && counts.waiting + counts.ready + counts.running == 0;
  }

  const StageSpec& Spec(const StageId& id) const {
    return *std::find_if(plan_.begin(), plan_.end(), [&](const StageSpec& s) { return s.id == id; });
  }

  template <class... Args>
  void Trace(fmt::format_string<Args...> format, Args&&... args) const {
    if (trace_) std::printf("  %s\n", fmt::format(format, std::forward<Args>(args)...).c_str());
  }

  template <class... Args>
  void Check(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (!holds) throw Violation(fmt::format(format, std::forward<Args>(args)...));
  }

  Schedule schedule_;
  Chance chance_;
  Mutant mutant_;
  bool trace_;
  std::vector<StageSpec> plan_;
  EarlyStoppingRule early_stopping_;
  std::unique_ptr<Core> core_;
  double now_ = 0;
  int launches_ = 0;
  bool chaos_ = false, stop_requested_ = false, paused_ = false;
  std::optional<int> ended_;
  std::vector<JournalEvent> journal_;        // what is on the disk
  std::map<StageId, std::string> sealed_;    // results on the disk
  std::map<StageId, std::string> unsealed_;  // results that would not survive a crash
  std::set<StageId> known_finished_;         // according to the journal
  std::set<StageId> given_up_;               // stopped early, according to the journal
  std::set<std::pair<StageId, Attempt>> all_starts_;
  std::set<std::pair<StageId, Attempt>> external_;  // attempts that end for no fault of their own
  std::set<std::pair<StageId, Attempt>>
      silent_;                                // attempts that were killed because nothing was heard of them
  std::map<StageId, int> external_in_a_row_;  // in this launch, without an ending of its own in between
  std::map<std::pair<StageId, Attempt>, std::int64_t> checkpoints_;
  std::vector<int> node_slots_;
  std::vector<std::vector<std::int64_t>> node_devices_;  // their bytes; none: not known
  std::set<StageId> wants_to_be_alone_;      // it has run out of memory in company, according to the journal
  std::vector<bool> node_up_;
  std::vector<Trainer> trainers_;
  std::vector<Event> sent_;  // every message there ever was
  std::vector<int> mail_;    // those on their way, as positions in sent_
  std::map<std::pair<StageId, Attempt>, int> ends_;  // where in sent_ the end of an attempt is
};

}  // namespace headsweep::testing
