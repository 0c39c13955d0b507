#include "launcher/agent.h"

#include <signal.h>
#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdlib>
#include <list>
#include <map>
#include <optional>

#include "cluster/base/errors.h"
#include "cluster/base/log.h"
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

// One attempt of a stage on this node, from "start" to "ended".
struct Running {
  std::string stage;
  int attempt = 0;
  std::vector<int> slots;
  TrialLock lock;
  int directory =
      0;           // number of its attempt-<n>; differs from attempt when another sweep worked on the trial
  pid_t pid = -1;  // -1: it waits for the trial's lock
  std::unique_ptr<ControlChannel> control;
  AttemptFacts facts;
  std::optional<double> terminate_at, kill_at;
  nlohmann::json progress;  // the latest, not yet sent
  double last_progress_sent = -1e9;

  std::string tag() const { return stage + "/" + std::to_string(attempt); }
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
    const std::string type = message::Text(message, message::kType);
    if (type == message::kWelcome) return OnWelcome(message);
    if (type == message::kEnd) return OnEnd(message::Flag(message, "clean"));
    if (type == message::kStart) return OnStart(message);
    if (type != message::kStop && type != message::kKill) return;
    Running* running =
        Find(message::Text(message, "stage"), static_cast<int>(message::Integer(message, "attempt")));
    if (running == nullptr) return;  // over already: its end is on the way
    if (type == message::kStop) {
      Stop(*running);
    } else {
      Kill(*running, message::Text(message, "reason"));
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
    Join("");
  }

  void Join(const std::string& problem) {
    Send({{message::kType, message::kJoin},
          {"host", options.host},
          {"slots", slots.size()},
          {"problem", problem}});
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
    if (!slots.empty()) return Join("");
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
  Running* Find(const std::string& stage, int attempt) {
    for (Running& running : attempts)
      if (running.stage == stage && running.attempt == attempt) return &running;
    return nullptr;
  }

  void OnStart(const nlohmann::json& message) {
    Running& running = attempts.emplace_back();
    running.stage = message::Text(message, "stage");
    running.attempt = static_cast<int>(message::Integer(message, "attempt"));
    for (const auto& slot : message.value("slots", nlohmann::json::array()))
      running.slots.push_back(slot.get<int>());
    if (ending) {
      running.facts.killed_because = kKilledByUser;
      return FinishUnstarted(running);
    }
    TryLaunch(running);
  }

  // Starts the trainer, or waits (to be tried again by Tick) while another launcher of this workspace works
  // on the trial.
  void TryLaunch(Running& running) {
    try {
      if (!running.lock.TryLock(workspace->TrialLock(running.stage))) {
        if (running.last_progress_sent < 0)
          LogInfo("trial {} is being run by another launcher of this workspace; waiting for it",
                  running.stage);
        ReportWaiting(running);
        return;
      }
      if (files.Exists(workspace->TrialResult(running.stage)))
        return Finish(running);  // the other one has finished it
      Launch(running);
    } catch (const Error& error) {
      running.facts.done_message = error.what();
      Finish(running);
    }
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
    running.directory = running.attempt;
    while (files.Exists(workspace->AttemptDirectory(running.stage, running.directory))) ++running.directory;
    files.CreateDirectories(workspace->AttemptDirectory(running.stage, running.directory));

    ProcessSpec spec;
    spec.command = {options.trainer, workspace->TrialConfig(running.stage),
                    "--workspace",   workspace->root(),
                    "--attempt",     std::to_string(running.directory),
                    "--control-fd",  std::to_string(kControlDescriptor),
                    "--threads",     std::to_string(threads)};
    spec.log_path = workspace->AttemptLog(running.stage, running.directory);
    spec.control_channel = true;
    spec.kept_descriptor = running.lock.descriptor();
    bool bound = true;
    for (const int slot : running.slots) {
      const std::vector<int>& cpus = slots.at(static_cast<std::size_t>(slot));
      spec.cpus.insert(spec.cpus.end(), cpus.begin(), cpus.end());
      bound = bound && !cpus.empty();
    }
    spec.environment = {
        {kTagSweep, workspace->SweepDirectory(sweep)},
        {kTagStage, running.tag()},
        {kTagLauncher, ProcessIdentity(::getpid())},
        {"OMP_NUM_THREADS", std::to_string(threads)},
        {"OMP_PROC_BIND", "false"},  // the slot's affinity is enough; binding again would stack threads
        {"OMP_WAIT_POLICY", bound ? "active" : "passive"}};
    std::vector<std::string> gpus;
    for (const int slot : running.slots)
      if (!slot_gpus.empty()) gpus.push_back(slot_gpus.at(static_cast<std::size_t>(slot)));
    if (!gpus.empty())
      spec.environment.emplace_back("CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(gpus, ",")));
    const SpawnedProcess child = Spawn(spec);
    running.pid = child.pid;
    running.lock = TrialLock();  // the trainer holds it now
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
    if (type == control::kHello || type == control::kProgress) {
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
    } else if (type == control::kDone) {
      running.facts.said_done = true;
      running.facts.done_outcome = message::Text(message, "outcome");
      running.facts.done_cause = message::Text(message, "cause");
      running.facts.done_message = message::Text(message, "message");
      running.facts.done_summary = message::Text(message, "summary");
    }
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
    running.control->SendStop();
    // The coordinator kills it before; this is for an agent whose coordinator died.
    running.terminate_at = clock.Monotonic() + options.timing.stop_grace + 2 * options.timing.kill_grace;
  }

  void Kill(Running& running, const std::string& reason) {
    if (!running.facts.killed_because.empty()) return;
    running.facts.killed_because = reason;
    if (running.pid < 0) return;
    AppendToLog(running, "headsweep: killing it: " + reason + "; " + DescribeThreads(running.pid));
    SignalGroup(running.pid, SIGTERM);
    running.kill_at = clock.Monotonic() + options.timing.kill_grace;
  }

  void AppendToLog(const Running& running, const std::string& text) {
    try {
      files.OpenForAppend(workspace->AttemptLog(running.stage, running.directory))->Append(text);
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
    Send({{message::kType, message::kEnded},
          {"stage", running.stage},
          {"attempt", running.attempt},
          {"outcome", verdict.outcome},
          {"cause", verdict.cause},
          {"message", verdict.message},
          {"summary", verdict.summary}});
    attempts.remove_if([&](const Running& other) { return &other == &running; });
    EndIfIdle();
  }

  // Nobody said how it went, but the result is there.
  void LearnFromResult(Running& running) {
    if (!options.read_summary) return;
    const std::string summary = options.read_summary(*workspace, running.stage);
    const nlohmann::json parsed = nlohmann::json::parse(summary, nullptr, /*allow_exceptions=*/false);
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
    for (auto next = attempts.begin(); next != attempts.end();) {
      Running& running = *next++;
      if (running.pid < 0) {
        if (running.facts.asked_to_stop && running.facts.killed_because.empty())
          running.facts.killed_because = kKilledByUser;
        running.facts.killed_because.empty() ? TryLaunch(running) : FinishUnstarted(running);
        continue;
      }
      FlushProgress(running);
      if (running.terminate_at && now >= *running.terminate_at) Kill(running, kKilledLateStop);
      if (running.kill_at && now >= *running.kill_at) SignalGroup(running.pid, SIGKILL);
    }
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
    const double patience = workspace ? options.timing.agent_timeout() : options.timing.welcome_timeout;
    if (ending || now < last_heard + patience) return;
    LogError("nothing heard from the coordinator for {:.0f} s; ending what runs here", now - last_heard);
    ending = true;
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
  std::list<Running> attempts;  // a list: control channels hold references
  double last_heard = 0, last_alive = 0, last_tick = 0;
  bool ending = false, end_clean = true, ended = false;
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

void Agent::OnSignal(const std::string& name) {
  impl_->Send({{message::kType, message::kSignal}, {"name", name}});
  for (Running& running : impl_->attempts) impl_->Stop(running);
}

}  // namespace headsweep
