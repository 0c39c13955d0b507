#include "launcher/agent.h"

#include <signal.h>

#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "cluster/base/errors.h"
#include "cluster/base/log.h"
#include "cluster/base/memory.h"
#include "cluster/gpus.h"
#include "launcher/attempt_outcome.h"
#include "launcher/gpu_probe.h"
#include "launcher/messages.h"
#include "launcher/slots.h"
#include "launcher/tagged_processes.h"
#include "launcher/trainer_processes.h"

namespace headsweep {
namespace {

constexpr std::chrono::milliseconds kTick(50);
constexpr double kLeftoverTimeout = 10;

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
        child_signal(loop_, SIGCHLD),
        trainers(loop_, files_, clock_, options, [this](nlohmann::json message) { Send(std::move(message)); },
                 [this] { EndIfIdle(); }) {}

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
    if (type == message::kStop || type == message::kKill || type == message::kRendezvous) trainers.Obey(message);
  }

  void OnStart(const nlohmann::json& message) {
    if (!cut_off && message.value("epoch", epoch) == epoch) trainers.Start(message);
  }

  void OnWelcome(const nlohmann::json& message) {
    if (place) return;
    place.emplace(TrialPlace{.workspace = Workspace(message::Text(message, "workspace")),
                             .sweep = message::Text(message, "sweep"),
                             .threads = static_cast<int>(message::Integer(message, "threads")),
                             .slots = {},
                             .slot_gpus = {}});
    // Before anything starts: what a dead launcher left on this host would train the same trials.
    const int killed = KillLeftovers(place->workspace.root(), kLeftoverTimeout);
    if (killed > 0) LogWarning("killed {} processes that a dead launcher left on {}", killed, options.host);
    if (message::Text(message, "device") == "cuda") return LookForGpus();
    place->slots = PlanSlots({.cpus = options.cpus,
                             .threads = place->threads,
                             .slots = options.slots,
                             .rank_on_host = options.rank_on_host,
                             .ranks_on_host = options.ranks_on_host});
    Join("", {AvailableMemoryBytes() / std::max(1, options.ranks_on_host)});
  }

  void Join(const std::string& problem, const std::vector<std::int64_t>& device_bytes = {}) {
    trainers.SetPlace(*place);
    join = {{message::kType, message::kJoin},
            {"host", options.host},
            {"slots", place->slots.size()},
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
    trainers.KillAll(kKilledNoCoordinator);
  }

  void ReturnIfPossible() {
    if (!cut_off || !reachable || !trainers.empty()) return;
    LogWarning("the coordinator is heard again; joining it anew");
    cut_off.reset();
    trainers.AcceptAgain();
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
    place->slot_gpus = PlanGpuSlots(share, options.slots);
    place->slots.assign(place->slot_gpus.size(), {});
    LogInfo("{}: {}", options.host, DescribeGpus(report));
    if (!place->slots.empty())
      return Join("", GpuSlotBytes(share, GpuEntries(visible_gpus, report), report, place->slots.size()));
    Join(report.devices.empty()
             ? problem
             : fmt::format("{} agents share the {} GPUs of this host, and none is left for this one",
                           options.ranks_on_host, report.devices.size()));
  }

  void OnEnd(bool clean) {
    if (ending) return;
    ending = true;
    end_clean = clean;
    trainers.KillAll(kKilledByUser);
    EndIfIdle();
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
      self->trainers.Reap();
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
    trainers.Tick();
    if (place && now >= last_alive + options.timing.heartbeat) {
      last_alive = now;
      Send({{message::kType, message::kAlive}});
    }
    CheckCoordinator(now);
  }

  void CheckCoordinator(double now) {
    ReturnIfPossible();
    const double patience = place ? options.timing.agent_timeout() : options.timing.welcome_timeout;
    if (ending || now < last_heard + patience) return;
    if (!cut_off) {
      reachable = false;
      CutOff(fmt::format("nothing heard from the coordinator for {:.0f} s", now - last_heard));
    }
    if (cut_off && now < *cut_off + options.timing.return_timeout) return;
    LogError("nothing heard from the coordinator for {:.0f} s; leaving", now - last_heard);
    ending = lost_coordinator = true;
    end_clean = false;
    trainers.KillAll(kKilledNoCoordinator);
    EndIfIdle();
  }

  void EndIfIdle() {
    if (!ending || ended || !trainers.empty()) return;
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

  std::optional<TrialPlace> place;  // known from "welcome" on
  TrainerProcesses trainers;
  VisibleGpus visible_gpus;
  std::optional<GpuProbe> gpu_probe;
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
  impl_->trainers.StopAll();
}

}  // namespace headsweep
