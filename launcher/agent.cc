#include "launcher/agent.h"

#include <signal.h>
#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <optional>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "cluster/base/log.h"
#include "cluster/base/memory.h"
#include "cluster/gpus.h"
#include "launcher/attempt_outcome.h"
#include "launcher/control_channel.h"
#include "launcher/gpu_probe.h"
#include "launcher/hang_report.h"
#include "launcher/messages.h"
#include "launcher/process.h"
#include "launcher/slots.h"
#include "launcher/tagged_processes.h"
#include "launcher/trial_lock.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

constexpr std::chrono::milliseconds kTick(50);
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

struct Agent::Impl : std::enable_shared_from_this<Agent::Impl> {
  Impl(boost::asio::io_context& loop_, Link& link_, FileSystem& files_, const Clock& clock_,
       AgentOptions options_)
      : loop(loop_),
        link(link_),
        files(files_),
        clock(clock_),
        options(std::move(options_)),
        timer(loop_),
        child_signal(loop_, SIGCHLD) {}

  // --- Messages
  // -----------------------------------------------------------------------------------------------------------
  void Send(nlohmann::json message) { link.Send(options.coordinator, message); }

  void OnMessage(const nlohmann::json& message) {
    last_heard = clock.Monotonic();
    reachable = true;
    const std::string type = message::Text(message, message::kType);
    if (type == message::kWelcome) return OnWelcome(message);
    if (type == message::kLost) {
      if (message::Integer(message, "epoch") == epoch) CutOff("the coordinator has taken this node for lost");
      return;
    }
    if (type == message::kEnd) return OnEnd(message::Flag(message, "clean"));
    if (type == message::kStart) return OnStart(message);
    if (type != message::kStop && type != message::kKill && type != message::kRendezvous) return;
    const std::vector<Running*> found =
        Find(message::Text(message, "stage"), static_cast<int>(message::Integer(message, "attempt")));
    if (found.empty() && type == message::kKill) SayEndAgain(message);
    for (Running* running : found) {
      if (type == message::kStop) {
        Stop(*running);
      } else if (type == message::kKill) {
        Kill(*running, message::Text(message, "reason"));
      } else {
        Publish(*running, message);
      }
    }
  }

  void OnWelcome(const nlohmann::json& message) {
    if (workspace) return;
    workspace.emplace(message::Text(message, "workspace"));
    sweep = message::Text(message, "sweep");
    threads = static_cast<int>(message::Integer(message, "threads"));
    // Before anything starts: what a dead launcher left on this host would train the same trials.
    const int killed = KillLeftovers(workspace->root(), kLeftoverTimeout);
    if (killed > 0) LogWarning("killed {} processes that a dead launcher left on {}", killed, options.host);
    if (message::Text(message, "device") == "cuda") return LookForGpus();
    slots = PlanSlots({.cpus = options.cpus,
                       .threads = threads,
                       .slots = options.slots,
                       .rank_on_host = options.rank_on_host,
                       .ranks_on_host = options.ranks_on_host});
    Join("", {AvailableMemoryBytes() / std::max(1, options.ranks_on_host)});
  }

  void Join(const std::string& problem, const std::vector<std::int64_t>& device_bytes = {}) {
    join = {{message::kType, message::kJoin},
            {"host", options.host},
            {"slots", slots.size()},
            {"device_bytes", device_bytes},
            {"problem", problem},
            {"epoch", ++epoch}};
    Send(join);
  }

  // Nothing was heard for too long, or the coordinator says so: it starts what runs here elsewhere, or has done so.
  void CutOff(const std::string& why) {
    if (ending || cut_off || join.is_null()) return;
    LogWarning("{}; ending what runs here", why);
    cut_off = clock.Monotonic();
    for (Running& running : attempts) Kill(running, kKilledNoCoordinator);
  }

  void ReturnIfPossible() {
    if (!cut_off || !reachable || !attempts.empty()) return;
    LogWarning("the coordinator is heard again; joining it anew");
    cut_off.reset();
    join["epoch"] = ++epoch;
    Send(join);
  }

  // Joins later, when the probe has answered (Tick).
  void LookForGpus() {
    try {
      visible_gpus = FindVisibleGpus([](const char* name) { return std::getenv(name); });
      gpu_probe.emplace(options.trainer, visible_gpus, options.timing.probe_timeout, clock.Monotonic());
    } catch (const Error& error) {
      Join(error.what());
    }
  }

  void OnGpus(const GpuReport& report) {
    const std::string problem =
        report.problem ? fmt::format("{}; {}", report.problem->message, report.problem->remedy) : "";
    if (!visible_gpus.warning.empty())
      LogWarning("{}: {}={}: {}", options.host, visible_gpus.variable, visible_gpus.value,
                 visible_gpus.warning);
    if (!problem.empty() && !report.devices.empty()) LogWarning("{}: {}", options.host, problem);
    const char* on_node = std::getenv("SLURM_GPUS_ON_NODE");
    const std::vector<std::string> share =
        ShareOfAgent(GpuEntries(visible_gpus, report), options.rank_on_host, options.ranks_on_host,
                     on_node == nullptr ? 0 : std::atoi(on_node));
    slot_gpus = PlanGpuSlots(share, options.slots);
    slots.assign(slot_gpus.size(), {});
    LogInfo("{}: {}", options.host, DescribeGpus(report));
    if (!slots.empty()) return Join("", GpuSlotBytes(share, GpuEntries(visible_gpus, report), report, slots.size()));
    Join(report.devices.empty()
             ? problem
             : fmt::format("{} agents share the {} GPUs of this host, and none is left for this one",
                           options.ranks_on_host, report.devices.size()));
  }

  void OnEnd(bool clean) {
    if (ending) return;
    ending = true;
    end_clean = clean;
    for (Running& attempt : attempts) Kill(attempt, kKilledByUser);
    EndIfIdle();
  }

  // --- Attempts
  // -----------------------------------------------------------------------------------------------------------
  // This node's processes of an attempt, by rank.
  std::vector<Running*> Find(const std::string& stage, int attempt) {
    std::vector<Running*> found;
    for (Running& running : attempts)
      if (running.stage == stage && running.attempt == attempt) found.push_back(&running);
    return found;
  }
  std::vector<Running*> GangOf(const Running& running) { return Find(running.stage, running.attempt); }

  void OnStart(const nlohmann::json& message) {
    if (cut_off || message.value("epoch", epoch) != epoch) return;
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
    if (!ending) return TryLaunch(*gang.front());
    for (Running* running : gang) {
      running->facts.killed_because = kKilledByUser;
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
        KillStage(workspace->root() + "/" + std::exchange(first.taken_from, ""), first.stage, kLeftoverTimeout);
      if (first.rank == 0 && !first.lock->TryLock(workspace->TrialLock(first.stage), /*fenced=*/!first.fence.empty())) {
        if (first.last_progress_sent < 0)
          LogInfo("trial {} is being run by another launcher of this workspace; waiting for it", first.stage);
        ReportWaiting(first);
        return;
      }
      if (first.rank == 0 && files.Exists(workspace->TrialResult(first.stage))) {
        for (Running* running : gang) Finish(*running);  // the other one has finished it
        return;
      }
      PickDirectory(gang);
      if (first.rank == 0 && first.world > static_cast<int>(gang.size()))
        Send({{message::kType, message::kLaunched},
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
      while (files.Exists(workspace->AttemptDirectory(stage, directory))) ++directory;
    }
    files.CreateDirectories(workspace->AttemptDirectory(stage, directory));
    for (Running* running : gang) running->directory = directory;
  }

  // log.txt of rank 0, log-<rank>.txt beside it of the others.
  std::string LogOf(const Running& running) const {
    if (running.rank == 0) return workspace->AttemptLog(running.stage, running.directory);
    return JoinPath(workspace->AttemptDirectory(running.stage, running.directory),
                    fmt::format("log-{}.txt", running.rank));
  }

  void ReportWaiting(Running& running) {
    const double now = clock.Monotonic();
    if (now < running.last_progress_sent + kWaitingInterval) return;
    running.last_progress_sent = now;
    Send({{message::kType, message::kProgress},
          {"stage", running.stage},
          {"attempt", running.attempt},
          {"phase", "waiting"},
          {"step", 0},
          {"steps", 0}});
  }

  void Launch(Running& running) {
    ProcessSpec spec;
    spec.command = {options.trainer, workspace->TrialConfig(running.stage),
                    "--workspace",   workspace->root(),
                    "--attempt",     std::to_string(running.directory),
                    "--control-fd",  std::to_string(kControlDescriptor),
                    "--threads",     std::to_string(threads)};
    spec.log_path = LogOf(running);
    spec.control_channel = true;
    spec.kept_descriptor = running.lock->descriptor();
    spec.cpus = slots.at(static_cast<std::size_t>(running.slot));
    spec.environment = {
        {kTagSweep, workspace->SweepDirectory(sweep)},
        {kTagStage, running.tag()},
        {kTagLauncher, ProcessIdentity(::getpid())},
        {"RANK", std::to_string(running.rank)},
        {"WORLD_SIZE", std::to_string(running.world)},
        {"LOCAL_RANK", std::to_string(running.local_rank)},
        {"OMP_NUM_THREADS", std::to_string(threads)},
        {"OMP_PROC_BIND", "false"},  // the slot's affinity is enough; binding again would stack threads
        {"OMP_WAIT_POLICY", spec.cpus.empty() ? "passive" : "active"}};
    if (!slot_gpus.empty())
      spec.environment.emplace_back("CUDA_VISIBLE_DEVICES",
                                    slot_gpus.at(static_cast<std::size_t>(running.slot)));
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
      Send(std::move(report));
    } else if (type == control::kCheckpoint) {
      report[message::kType] = message::kCheckpoint;
      report.erase("path");
      Send(std::move(report));
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
    Send(std::move(report));
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
    Send(std::exchange(running.progress, nullptr));
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
    running.facts.result_sealed = files.Exists(workspace->TrialResult(running.stage));
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
    Send(ends.back());
    if (ends.size() > kEndsKept) ends.pop_front();
    attempts.remove_if([&](const Running& other) { return &other == &running; });
    EndIfIdle();
  }

  // The coordinator kills what is over: its end has not been heard.
  void SayEndAgain(const nlohmann::json& kill) {
    for (const nlohmann::json& end : ends)
      if (end["stage"] == kill["stage"] && end["attempt"] == kill["attempt"]) Send(end);
  }

  // Nobody said how it went, but the result is there.
  void LearnFromResult(Running& running) {
    if (!options.read_summary) return;
    const std::string summary = options.read_summary(*workspace, running.stage);
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

  // --- Time
  // ---------------------------------------------------------------------------------------------------------------
  void Schedule() {
    timer.expires_after(kTick);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->ended) return;
      self->Tick();
      self->Schedule();
    });
  }

  void WatchChildren() {
    child_signal.async_wait([self = shared_from_this()](const boost::system::error_code& error, int) {
      if (error || self->ended) return;
      self->ReapChildren();
      self->WatchChildren();
    });
  }

  void Tick() {
    const double now = clock.Monotonic();
    // This process itself stood still (suspended, swapped out): what others said meanwhile is only now being
    // read.
    if (now - last_tick > options.timing.heartbeat)
      last_heard = std::max(last_heard, last_heard + now - last_tick);
    last_tick = now;
    if (gpu_probe && !ending) {
      if (const std::optional<GpuReport> report = gpu_probe->Poll(now)) {
        gpu_probe.reset();
        OnGpus(*report);
      }
    }
    ReapChildren();  // a SIGCHLD that was merged with another loses nothing
    std::vector<Running*>
        waiting;  // first of its gang each; launched below, since that may end all of a gang
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
    if (workspace && now >= last_alive + options.timing.heartbeat) {
      last_alive = now;
      Send({{message::kType, message::kAlive}});
    }
    CheckCoordinator(now);
  }

  void FinishUnstarted(Running& running) {
    running.facts.exit = ExitStatus{};  // nothing ran: judged by why it was ended
    Finish(running);
  }

  void CheckCoordinator(double now) {
    ReturnIfPossible();
    const double patience = workspace ? options.timing.agent_timeout() : options.timing.welcome_timeout;
    if (ending || now < last_heard + patience) return;
    if (!cut_off) {
      reachable = false;
      CutOff(fmt::format("nothing heard from the coordinator for {:.0f} s", now - last_heard));
    }
    if (cut_off && now < *cut_off + options.timing.return_timeout) return;
    LogError("nothing heard from the coordinator for {:.0f} s; leaving", now - last_heard);
    ending = lost_coordinator = true;
    end_clean = false;
    for (Running& running : attempts) Kill(running, kKilledNoCoordinator);
    EndIfIdle();
  }

  void EndIfIdle() {
    if (!ending || ended || !attempts.empty()) return;
    ended = true;
    timer.cancel();
    child_signal.cancel();
    KillAttemptLeftovers("", kLeftoverTimeout);
    if (on_end) on_end(end_clean);
  }

  boost::asio::io_context& loop;
  Link& link;
  FileSystem& files;
  const Clock& clock;
  AgentOptions options;
  boost::asio::steady_timer timer;
  boost::asio::signal_set child_signal;
  std::function<void(bool)> on_end;

  std::optional<Workspace> workspace;  // known from "welcome" on
  std::string sweep;
  int threads = 1;
  std::vector<std::vector<int>> slots;
  VisibleGpus visible_gpus;
  std::optional<GpuProbe> gpu_probe;
  std::vector<std::string>
      slot_gpus;                // of each slot, if trials run on GPUs: CUDA_VISIBLE_DEVICES of its trainer
  std::deque<nlohmann::json> ends;  // the last that were said
  std::list<Running> attempts;  // a list: control channels hold references
  nlohmann::json join;  // the latest
  int epoch = 0;        // of it
  std::optional<double> cut_off;  // since then nothing is started here, until it has joined again
  bool reachable = true;          // something was heard since the silence that has cut it off
  double last_heard = 0, last_alive = 0, last_tick = 0;
  bool ending = false, end_clean = true, ended = false, lost_coordinator = false;
};

Agent::Agent(boost::asio::io_context& loop, Link& link, FileSystem& files, const Clock& clock,
             AgentOptions options)
    : impl_(std::make_shared<Impl>(loop, link, files, clock, std::move(options))) {}

Agent::~Agent() {
  impl_->ended = true;
  impl_->timer.cancel();
  impl_->child_signal.cancel();
  for (const Running& running : impl_->attempts) {
    if (running.pid < 0) continue;
    SignalGroup(running.pid, SIGKILL);
    if (!WaitFor(running.pid, kLeftoverTimeout))
      LogError("process {} of {} does not die", running.pid, running.tag());
  }
}

void Agent::Start(std::function<void(bool)> on_end) {
  impl_->on_end = std::move(on_end);
  impl_->last_heard = impl_->last_tick = impl_->clock.Monotonic();
  impl_->link.Start(
      [impl = impl_.get()](NodeId, const nlohmann::json& message) { impl->OnMessage(message); });
  impl_->WatchChildren();
  impl_->Schedule();
}

bool Agent::lost_coordinator() const { return impl_->lost_coordinator; }

void Agent::OnSignal(const std::string& name) {
  impl_->Send({{message::kType, message::kSignal}, {"name", name}});
  for (Running& running : impl_->attempts) impl_->Stop(running);
}

}  // namespace headsweep
