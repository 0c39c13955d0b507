#include "launcher/trainer_processes.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <list>
#include <optional>
#include <utility>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "cluster/base/log.h"
#include "launcher/attempt_outcome.h"
#include "launcher/control_channel.h"
#include "launcher/hang_report.h"
#include "launcher/messages.h"
#include "launcher/process.h"
#include "launcher/tagged_processes.h"
#include "launcher/trial_lock.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

constexpr double kProgressInterval = 0.2;  // a trainer that talks more is thinned out
constexpr double kWaitingInterval = 5;     // how often to say that a trial waits for another launcher
constexpr double kLeftoverTimeout = 10;
constexpr std::size_t kEndsKept = 1000;  // chosen: far more than attempts that end between two looks for hangs
constexpr double kPeerKillGrace = 1;  // processes whose peer is gone have nothing to save

// One process of an attempt of a stage, from "start" to "ended".
struct Running {
  std::string stage;
  int attempt = 0;
  int rank = 0, world = 1, local_rank = 0;
  int slot = 0;
  std::shared_ptr<TrialLock> lock;  // of the node of rank 0, shared by its ranks
  std::string fence;       // what it seals through, if the sweep is shared
  std::string taken_from;  // the launcher that had the trial before and is gone
  int directory =
      0;           // number of its attempt-<n>; differs from attempt when another sweep worked on the trial
  pid_t pid = -1;  // -1: it waits for the trial's lock
  std::unique_ptr<ControlChannel> control;
  AttemptFacts facts;
  std::optional<double> terminate_at, kill_at;
  nlohmann::json progress;  // the latest, not yet sent
  double last_progress_sent = -1e9;

  std::string tag() const {
    const std::string whole = stage + "/" + std::to_string(attempt);
    return world == 1 ? whole : whole + "/" + std::to_string(rank);
  }
};

}  // namespace

struct TrainerProcesses::Impl {
  Impl(boost::asio::io_context& loop_, FileSystem& files_, const Clock& clock_, const AgentOptions& options_,
       std::function<void(nlohmann::json)> send_, std::function<void()> on_idle_)
      : loop(loop_),
        files(files_),
        clock(clock_),
        options(options_),
        send(std::move(send_)),
        on_idle(std::move(on_idle_)) {}

  void Obey(const nlohmann::json& message) {
    const std::string type = message::Text(message, message::kType);
    const std::vector<Running*> found =
        Find(message::Text(message, "stage"), static_cast<int>(message::Integer(message, "attempt")));
    if (found.empty() && type == message::kKill) SayEndAgain(message);
    for (Running* running : found) {
      if (type == message::kStop) {
        Stop(*running);
      } else if (type == message::kKill) {
        Kill(*running, message::Text(message, "reason"));
      } else if (type == message::kRendezvous) {
        Publish(*running, message);
      }
    }
  }

  // This node's processes of an attempt, by rank.
  std::vector<Running*> Find(const std::string& stage, int attempt) {
    std::vector<Running*> found;
    for (Running& running : attempts)
      if (running.stage == stage && running.attempt == attempt) found.push_back(&running);
    return found;
  }
  std::vector<Running*> GangOf(const Running& running) { return Find(running.stage, running.attempt); }

  void OnStart(const nlohmann::json& message) {
    const std::vector<int> ranks = message.value("ranks", std::vector<int>{0});
    const std::vector<int> on_slots = message.value("slots", std::vector<int>{});
    const auto lock = std::make_shared<TrialLock>();
    std::vector<Running*> gang;
    for (std::size_t i = 0; i < ranks.size() && i < on_slots.size(); ++i) {
      Running& running = attempts.emplace_back();
      running.stage = message::Text(message, "stage");
      running.attempt = static_cast<int>(message::Integer(message, "attempt"));
      running.world = message.value("world", 1);
      running.directory = static_cast<int>(message::Integer(message, "directory"));
      running.fence = message::Text(message, "fence");
      running.taken_from = message::Text(message, "taken_from");
      running.rank = ranks[i];
      running.local_rank = static_cast<int>(i);
      running.slot = on_slots[i];
      running.lock = lock;
      gang.push_back(&running);
    }
    if (gang.empty()) return;
    if (!refused_because) return TryLaunch(*gang.front());
    for (Running* running : gang) {
      running->facts.killed_because = *refused_because;
      FinishUnstarted(*running);
    }
  }

  // Starts this node's processes of the attempt, or waits (to be tried again by Tick) while another launcher
  // of this workspace works on the trial. The node of rank 0 answers for the trial: the others follow it.
  void TryLaunch(Running& first) {
    std::vector<Running*> gang = GangOf(first);
    std::size_t launched = 0;
    try {
      // Of a launcher that is taken for gone, but only stands still: its trainers can seal nothing any more.
      if (!first.taken_from.empty())
        KillStage(place->workspace.root() + "/" + std::exchange(first.taken_from, ""), first.stage, kLeftoverTimeout);
      if (first.rank == 0 && !first.lock->TryLock(place->workspace.TrialLock(first.stage), /*fenced=*/!first.fence.empty())) {
        if (first.last_progress_sent < 0)
          LogInfo("trial {} is being run by another launcher of this workspace; waiting for it", first.stage);
        ReportWaiting(first);
        return;
      }
      if (first.rank == 0 && files.Exists(place->workspace.TrialResult(first.stage))) {
        for (Running* running : gang) Finish(*running);  // the other one has finished it
        return;
      }
      PickDirectory(gang);
      if (first.rank == 0 && first.world > static_cast<int>(gang.size()))
        send({{message::kType, message::kLaunched},
              {"stage", first.stage},
              {"attempt", first.attempt},
              {"directory", first.directory}});
      for (; launched < gang.size(); ++launched) Launch(*gang[launched]);
      for (Running* running : gang) running->lock.reset();  // the trainers hold it now
    } catch (const Error& error) {
      for (; launched < gang.size(); ++launched) {
        gang[launched]->facts.done_message = error.what();
        Finish(*gang[launched]);
      }
    }
  }

  void PickDirectory(const std::vector<Running*>& gang) {
    const std::string& stage = gang.front()->stage;
    int directory = gang.front()->directory;
    if (directory == 0) {
      directory = gang.front()->attempt;
      while (files.Exists(place->workspace.AttemptDirectory(stage, directory))) ++directory;
    }
    // Not synced: after a power cut nothing that counts is in it. What is sealed lies beside it.
    files.MakeDirectory(place->workspace.AttemptDirectory(stage, directory));
    for (Running* running : gang) running->directory = directory;
  }

  // log.txt of rank 0, log-<rank>.txt beside it of the others.
  std::string LogOf(const Running& running) const {
    if (running.rank == 0) return place->workspace.AttemptLog(running.stage, running.directory);
    return JoinPath(place->workspace.AttemptDirectory(running.stage, running.directory),
                    fmt::format("log-{}.txt", running.rank));
  }

  void ReportWaiting(Running& running) {
    const double now = clock.Monotonic();
    if (now < running.last_progress_sent + kWaitingInterval) return;
    running.last_progress_sent = now;
    send({{message::kType, message::kProgress},
          {"stage", running.stage},
          {"attempt", running.attempt},
          {"phase", "waiting"},
          {"step", 0},
          {"steps", 0}});
  }

  void Launch(Running& running) {
    ProcessSpec spec;
    spec.command = {options.trainer, place->workspace.TrialConfig(running.stage),
                    "--workspace",   place->workspace.root(),
                    "--attempt",     std::to_string(running.directory),
                    "--control-fd",  std::to_string(kControlDescriptor),
                    "--threads",     std::to_string(place->threads)};
    spec.log_path = LogOf(running);
    spec.control_channel = true;
    spec.kept_descriptor = running.lock->descriptor();
    spec.cpus = place->slots.at(static_cast<std::size_t>(running.slot));
    spec.environment = {
        {kTagSweep, place->workspace.SweepDirectory(place->sweep)},
        {kTagStage, running.tag()},
        {kTagLauncher, ProcessIdentity(::getpid())},
        {"RANK", std::to_string(running.rank)},
        {"WORLD_SIZE", std::to_string(running.world)},
        {"LOCAL_RANK", std::to_string(running.local_rank)},
        {"OMP_NUM_THREADS", std::to_string(place->threads)},
        {"OMP_PROC_BIND", "false"},  // the slot's affinity is enough; binding again would stack threads
        {"OMP_WAIT_POLICY", spec.cpus.empty() ? "passive" : "active"}};
    if (!place->slot_gpus.empty())
      spec.environment.emplace_back("CUDA_VISIBLE_DEVICES",
                                    place->slot_gpus.at(static_cast<std::size_t>(running.slot)));
    if (!running.fence.empty()) spec.command.insert(spec.command.end(), {"--fence", running.fence});
    const SpawnedProcess child = Spawn(spec);
    running.pid = child.pid;
    running.control = std::make_unique<ControlChannel>(
        loop, child.control,
        [this, &running](const nlohmann::json& message) { OnTrainer(running, message); });
    LogDebug("started {} as process {}", running.tag(), child.pid);
  }

  void OnTrainer(Running& running, const nlohmann::json& message) {
    const std::string type = message::Text(message, control::kType);
    nlohmann::json report = message;
    report["stage"] = running.stage;
    report["attempt"] = running.attempt;
    if (type == control::kDone) {
      running.facts.said_done = true;
      running.facts.done_outcome = message::Text(message, "outcome");
      running.facts.done_cause = message::Text(message, "cause");
      running.facts.done_message = message::Text(message, "message");
      running.facts.done_summary = message::Text(message, "summary");
    } else if (type == control::kRendezvous) {
      OnPublished(running, std::move(report));
    } else if (running.rank != 0) {
      return;  // its peers wait for it in every step: what rank 0 says is true of all
    } else if (type == control::kHello || type == control::kProgress) {
      report[message::kType] = message::kProgress;
      running.progress = std::move(report);
      FlushProgress(running);
    } else if (type == control::kEvaluation) {
      report[message::kType] = message::kEvaluation;
      send(std::move(report));
    } else if (type == control::kCheckpoint) {
      report[message::kType] = message::kCheckpoint;
      report.erase("path");
      send(std::move(report));
    }
  }

  // One process of a trial has set a key of its rendezvous: its peers here and, by way of the coordinator,
  // elsewhere.
  void OnPublished(const Running& from, nlohmann::json report) {
    const std::vector<Running*> gang = GangOf(from);
    for (Running* peer : gang)
      if (peer != &from) Publish(*peer, report);
    if (static_cast<int>(gang.size()) == from.world) return;
    report[message::kType] = message::kRendezvous;
    send(std::move(report));
  }
  static void Publish(Running& to, const nlohmann::json& message) {
    if (!to.control) return;
    to.control->Send({{control::kType, control::kRendezvous},
                      {"key", message::Text(message, "key")},
                      {"value", message::Text(message, "value")}});
  }

  void FlushProgress(Running& running) {
    if (running.progress.is_null() || clock.Monotonic() < running.last_progress_sent + kProgressInterval)
      return;
    running.last_progress_sent = clock.Monotonic();
    send(std::exchange(running.progress, nullptr));
  }

  void Stop(Running& running) {
    if (running.facts.asked_to_stop) return;
    running.facts.asked_to_stop = true;
    if (running.pid < 0) return;  // not started: Tick ends it
    running.control->Send({{control::kType, control::kStop}});
    // The coordinator kills it before; this is for an agent whose coordinator died.
    running.terminate_at = clock.Monotonic() + options.timing.stop_grace + 2 * options.timing.kill_grace;
  }

  void Kill(Running& running, const std::string& reason) {
    if (!running.facts.killed_because.empty()) return;
    running.facts.killed_because = reason;
    if (running.pid < 0) return;
    AppendToLog(running, "headsweep: killing it: " + reason + "; " + DescribeThreads(running.pid));
    SignalGroup(running.pid, SIGTERM);
    // Of such a trial there is nothing left to save.
    const bool is_lost = reason == kKilledPeerFailed || reason == kKilledLeftBehind;
    const double grace = options.timing.kill_grace;
    running.kill_at = clock.Monotonic() + (is_lost ? std::min(grace, kPeerKillGrace) : grace);
  }

  void AppendToLog(const Running& running, const std::string& text) {
    try {
      files.OpenForAppend(LogOf(running))->Append(text);
    } catch (const IoError& error) {
      LogWarning("{}", error.what());  // a report about a process that is lost anyway
    }
  }

  // The process (if there was one) is reaped: judge, report, forget.
  void Finish(Running& running) {
    if (running.control) {
      running.control->DrainAndClose();
      if (running.control->bad_lines() > 0)
        LogWarning("{}: {} lines on its control channel were no messages", running.tag(),
                   running.control->bad_lines());
    }
    running.facts.result_sealed = files.Exists(place->workspace.TrialResult(running.stage));
    if (running.facts.result_sealed && !running.facts.said_done) LearnFromResult(running);
    const AttemptVerdict verdict = JudgeAttempt(running.facts);
    if (verdict.outcome != control::kFinished && running.pid > 0)
      KillAttemptLeftovers(running.tag(), kLeftoverTimeout);
    ends.push_back({{message::kType, message::kEnded},
                    {"stage", running.stage},
                    {"attempt", running.attempt},
                    {"rank", running.rank},
                    {"outcome", verdict.outcome},
                    {"cause", verdict.cause},
                    {"message", verdict.message},
                    {"summary", verdict.summary}});
    send(ends.back());
    if (ends.size() > kEndsKept) ends.pop_front();
    attempts.remove_if([&](const Running& other) { return &other == &running; });
    if (attempts.empty()) on_idle();
  }

  // The coordinator kills what is over: its end has not been heard.
  void SayEndAgain(const nlohmann::json& kill) {
    for (const nlohmann::json& end : ends)
      if (end["stage"] == kill["stage"] && end["attempt"] == kill["attempt"]) send(end);
  }

  // Nobody said how it went, but the result is there.
  void LearnFromResult(Running& running) {
    if (!options.read_summary) return;
    const std::string summary = options.read_summary(place->workspace, running.stage);
    const nlohmann::json parsed = ParseJson(summary);
    if (!parsed.is_object()) return;
    running.facts.said_done = true;
    running.facts.done_outcome = message::Text(parsed, "outcome");
    running.facts.done_summary = summary;
  }

  void ReapChildren() {
    for (auto next = attempts.begin(); next != attempts.end();) {
      Running& running = *next++;  // Finish removes it
      if (running.pid < 0) continue;
      const std::optional<ExitStatus> status = TryReap(running.pid);
      if (!status) continue;
      running.facts.exit = status;
      Finish(running);
    }
  }

  void Tick() {
    ReapChildren();  // a SIGCHLD that was merged with another loses nothing
    const double now = clock.Monotonic();
    std::vector<Running*> waiting;  // first of its gang each; launched below, since that may end all of a gang
    for (auto next = attempts.begin(); next != attempts.end();) {
      Running& running = *next++;
      if (running.pid < 0) {
        if (running.facts.asked_to_stop && running.facts.killed_because.empty())
          running.facts.killed_because = kKilledByUser;
        // The first of a gang speaks for all; a later one that is still here waits for it.
        if (!running.facts.killed_because.empty()) {
          FinishUnstarted(running);
        } else if (GangOf(running).front() == &running) {
          waiting.push_back(&running);
        }
        continue;
      }
      FlushProgress(running);
      if (running.terminate_at && now >= *running.terminate_at) Kill(running, kKilledLateStop);
      if (running.kill_at && now >= *running.kill_at) SignalGroup(running.pid, SIGKILL);
    }
    for (Running* first : waiting) TryLaunch(*first);
  }

  void FinishUnstarted(Running& running) {
    running.facts.exit = ExitStatus{};  // nothing ran: judged by why it was ended
    Finish(running);
  }

  boost::asio::io_context& loop;
  FileSystem& files;
  const Clock& clock;
  const AgentOptions& options;
  std::function<void(nlohmann::json)> send;
  std::function<void()> on_idle;
  std::optional<TrialPlace> place;
  std::optional<std::string> refused_because;  // everything was killed, for that
  std::deque<nlohmann::json> ends;             // the last that were said
  std::list<Running> attempts;                 // a list: control channels hold references
};

TrainerProcesses::TrainerProcesses(boost::asio::io_context& loop, FileSystem& files, const Clock& clock,
                                   const AgentOptions& options, std::function<void(nlohmann::json)> send,
                                   std::function<void()> on_idle)
    : impl_(std::make_unique<Impl>(loop, files, clock, options, std::move(send), std::move(on_idle))) {}

TrainerProcesses::~TrainerProcesses() {
  for (const Running& running : impl_->attempts) {
    if (running.pid < 0) continue;
    SignalGroup(running.pid, SIGKILL);
    if (!WaitFor(running.pid, kLeftoverTimeout))
      LogError("process {} of {} does not die", running.pid, running.tag());
  }
}

void TrainerProcesses::SetPlace(const TrialPlace& place) { impl_->place.emplace(place); }

void TrainerProcesses::Start(const nlohmann::json& message) { impl_->OnStart(message); }
void TrainerProcesses::Obey(const nlohmann::json& message) { impl_->Obey(message); }

void TrainerProcesses::StopAll() {
  for (Running& running : impl_->attempts) impl_->Stop(running);
}

void TrainerProcesses::KillAll(const std::string& reason) {
  impl_->refused_because = reason;
  for (Running& running : impl_->attempts) impl_->Kill(running, reason);
}

void TrainerProcesses::AcceptAgain() { impl_->refused_because.reset(); }
bool TrainerProcesses::empty() const { return impl_->attempts.empty(); }
void TrainerProcesses::Tick() { impl_->Tick(); }
void TrainerProcesses::Reap() { impl_->ReapChildren(); }

}  // namespace headsweep
