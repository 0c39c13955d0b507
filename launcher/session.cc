#include "launcher/session.h"

#include <signal.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "cluster/base/batch_job.h"
#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "cluster/base/log.h"
#include "data/corpus.h"
#include "launcher/agent.h"
#include "launcher/coordinator.h"
#include "launcher/history.h"
#include "launcher/joined_sweep.h"
#include "launcher/joining.h"
#include "launcher/job_record.h"
#include "launcher/lost_coordinator.h"
#include "launcher/messages.h"
#include "launcher/mpi_link.h"
#include "launcher/past.h"
#include "launcher/planned_sweep.h"
#include "launcher/process.h"
#include "launcher/result_check.h"
#include "launcher/slots.h"
#include "launcher/sweep_lock.h"

namespace headsweep {
namespace {

constexpr double kFlushTimeout = 5;      // for the last messages to other ranks
constexpr const char* kCtrlC = "Ctrl-C";
constexpr double kReportTimeout = 3600;  // collect and report of a very large sweep

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string FindTrainer() {
  const std::string path = TrainerPath();
  if (::access(path.c_str(), X_OK) != 0)
    throw ConfigError(
        fmt::format("the trainer {} is not there, or not executable; build the target headsweep-trainer, or "
                    "let HEADSWEEP_TRAINER name it",
                    path));
  return path;
}

AgentOptions MakeAgentOptions(const SessionOptions& options, const Timing& timing, const MpiWorld* world) {
  AgentOptions agent;
  agent.host = HostName();
  agent.trainer = FindTrainer();
  agent.cpus = UsableCpus();
  agent.slots = options.slots;
  if (world != nullptr) {
    agent.rank_on_host = world->rank_on_host();
    agent.ranks_on_host = world->ranks_on_host();
  }
  agent.timing = timing;
  agent.read_summary = [](const Workspace& workspace, const std::string& stage) {
    return CheckResults(workspace, FileSystem::Real(), {stage}).done[stage];
  };
  return agent;
}

// Requests to stop, as long as the object lives: SIGINT, SIGTERM, SIGUSR2 (batch systems), SIGHUP (a closed
// terminal).
class StopSignals {
 public:
  StopSignals(boost::asio::io_context& loop, std::function<void(const std::string&)> on_signal)
      : signals_(loop, SIGTERM, SIGUSR2), on_signal_(std::move(on_signal)) {
    // What was ignored from the start stays ignored: `nohup headsweep run …` outlives its terminal.
    for (const int signal : {SIGINT, SIGHUP})
      if (!IsIgnored(signal)) signals_.add(signal);
    Wait();
  }

 private:
  static bool IsIgnored(int signal) {
    struct sigaction now = {};
    return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  }
  void Wait() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (error) return;
      on_signal_(signal == SIGINT ? kCtrlC : fmt::format("SIG{}", ::sigabbrev_np(signal)));
      Wait();
    });
  }
  boost::asio::signal_set signals_;
  std::function<void(const std::string&)> on_signal_;
};

int RunAgentRank(const SessionOptions& options, const Timing& timing, MpiWorld& world) {
  StartLog(fmt::format("agent {}", world.rank()), LogLevel::kWarning);
  SystemClock clock;
  boost::asio::io_context loop;
  MpiLink link(loop, world);
  std::optional<bool> clean;
  {
    Agent agent(loop, link, FileSystem::Real(), clock, MakeAgentOptions(options, timing, &world));
    StopSignals signals(loop, [&](const std::string& name) { agent.OnSignal(name); });
    agent.Start([&](bool is_clean) {
      clean = is_clean;
      loop.stop();
    });
    loop.run();
    if (agent.lost_coordinator()) SeeToLostCoordinator();
  }
  link.Flush(kFlushTimeout);
  world.Finish(clean.value_or(false));
  if (!clean.value_or(false))
    std::_Exit(kExitResumable);  // MPI's exit handlers would wait for the lost ranks
  return kExitDone;
}

// The coordinator's side of a session, in the order in which things happen.
class Session {
 public:
  Session(const SessionOptions& options, const Timing& timing, MpiWorld* world, boost::asio::io_context& loop,
          MpiLink* ranks)
      : options_(options),
        timing_(timing),
        world_(world),
        loop_(loop),
        ranks_(ranks),
        workspace_(options.workspace),
        display_(stdout, options.quiet, /*bar=*/world == nullptr) {}

  bool looping() const { return looping_; }

  int Run(const std::function<Sweep(const Workspace&, const FileSystem&)>& load) {
    const AgentOptions agent = MakeAgentOptions(options_, timing_, world_);
    Sweep sweep = load(workspace_, files_);
    for (const Diagnostic& warning : sweep.warnings()) display_.Line("warning: " + ToString(warning));
    // What cannot run is refused before anything is written. (A large grid's points are checked one by one
    // further down.)
    if (sweep.point_count() <= Sweep::kCheckedWhole) PlanSweep(sweep, nullptr);
    planned_.emplace(PlanSweep(std::move(sweep), [this](const TaskConfig& task) { return Prepare(task); }));
    for (const Diagnostic& warning : planned_->plan.warnings) display_.Line("warning: " + ToString(warning));
    const std::string& name = planned_->plan.name;
    files_.CreateDirectories(workspace_.SweepDirectory(name));
    if (options_.join) {
      membership_ = JoinSweep(files_, workspace_, name, planned_->sweep.text(), HowToJoin());
      launcher_ = membership_->card().process;
    } else {
      lock_.emplace(workspace_.Lock(name), options_.take_over);
      if (lock_->predecessor())
        display_.Line(fmt::format(
            "the launcher before (process {} on {}) ended without a word; going on from its journal",
            lock_->predecessor()->pid, lock_->predecessor()->host));
      RefuseBesideOthers(files_, workspace_, name, HowToJoin());
      KeepSweepFile();
      launcher_ = lock_->owner();
    }
    auto [exit_code, clean] = Supervise(agent);
    if (world_ != nullptr) {
      if (ranks_ != nullptr) ranks_->Flush(kFlushTimeout);
      world_->Finish(clean);
    }
    const bool joined = membership_ != nullptr;
    membership_.reset();  // nothing more is claimed: the others need not wait for this one
    exit_code = joined ? ConcludeOnce(exit_code) : Conclude(exit_code);
    if (world_ != nullptr && !clean) {  // MPI's exit handlers would wait for the lost ranks
      lock_.reset();
      std::fflush(nullptr);
      LeaveExitCode(exit_code);
      std::_Exit(exit_code);
    }
    lock_.reset();
    return exit_code;
  }

 private:
  std::string Prepare(const TaskConfig& task) {
    const PreparedCorpus corpus =
        PrepareCorpus({.corpus = task.corpus, .vocabulary = task.vocabulary}, workspace_.DataRoot(), files_,
                      [&](const std::string& phase) { display_.Line("data: " + phase); });
    return corpus.fingerprint;
  }

  JoinOptions HowToJoin() {
    return {.lease_seconds = timing_.lease,
            .take_over = options_.take_over,
            .say = [this](const std::string& why) { display_.Line(why); }};
  }

  // The workspace's own copy: what `resume`, `status` and `collect` read.
  void KeepSweepFile() {
    const std::string path = workspace_.SweepToml(planned_->plan.name);
    const std::string& text = planned_->sweep.text();
    if (files_.Exists(path) && files_.ReadFile(path) == text) return;
    WriteFileDurably(files_, path, text);
  }

  std::map<StageId, std::string> FindDone(const std::map<std::string, std::string>& recorded) {
    std::vector<std::string> ids;
    ids.reserve(planned_->size());
    for (const std::uint32_t position : planned_->by_id) ids.push_back(planned_->IdAt(position));
    const ResultCheck check = CheckResults(workspace_, files_, ids, recorded);
    for (const auto& [id, why] : check.damaged)
      display_.Always(fmt::format("result of {} is damaged ({}); moved to {}, it runs again", id, why,
                                  SetAsideDamaged(workspace_, files_, id)));
    std::map<StageId, std::string> done;
    for (const auto& [id, summary] : check.done) done.emplace(StageId(id), summary);
    return done;
  }

  // Of all journals of the sweep but this launcher's.
  void LookAtOthers(Past& past) {
    const std::string& name = planned_->plan.name;
    std::vector<std::string> others;
    if (membership_) others.push_back(workspace_.Journal(name));
    for (const LauncherCard& card : ReadRoster(files_, workspace_, name)) others.push_back(JournalOf(card.directory));
    for (const std::string& journal : others)
      ScanJournal(files_, journal, [&](const JournalEvent& event) { past.LookForResult(event); });
  }

  JournalEvent SweepStarted(bool automatic) const {
    const BatchJob job = ThisBatchJob();
    JournalEvent event;
    event.type = journal::kSweepStarted;
    event.fields = {{"sweep", planned_->plan.name},
                    {"file", planned_->sweep.file()},
                    {"toml_hash", HashHex(planned_->sweep.text())},
                    {"stages", std::to_string(planned_->size())},
                    {"pid", std::to_string(::getpid())},
                    {"host", HostName()},
                    {"job", job.id},
                    {"restart", std::to_string(job.restart)},
                    {"version", HEADSWEEP_VERSION},
                    {"automatic", automatic ? "yes" : "no"}};
    const std::string launch = membership_ ? membership_->card().launch : GivenLaunch();
    if (!launch.empty()) event.fields["launch"] = launch;
    return event;
  }

  struct End {
    int exit_code = kExitFailed;
    bool clean = true;
  };

  // The event loop, from the first agent to the last trainer.
  End Supervise(const AgentOptions& agent_options) {
    const std::string& name = planned_->plan.name;
    const std::string path = membership_ ? JournalOf(membership_->card().directory) : workspace_.Journal(name);
    Past past;
    Journal journal(files_, path, clock_, [&](const JournalEvent& event) { past.Look(event); });
    if (journal.history().torn)
      display_.Line("the journal's last line was cut off by a crash; nothing that was acted on is missing");
    LookAtOthers(past);
    std::map<StageId, std::string> done = FindDone(std::exchange(past.recorded, {}));
    CorePolicy policy;
    policy.hang_floor_seconds = timing_.hang_floor;
    policy.stop_grace_seconds = timing_.stop_grace;
    policy.time_limit_lead_seconds = std::min(policy.time_limit_lead_seconds, options_.time_limit / 4);
    policy.early_stopping = planned_->early_stopping();
    policy.automatic_restart = ThisBatchJob().restart > 0 || past.launches.contains(GivenLaunch());
    std::optional<JoinedSweep> joined;
    std::optional<std::vector<JournalEvent>> merged = Merged(path, policy, joined, done);
    if (merged) past.LookAgain(*merged);
    std::vector<JournalEvent> begin = {SweepStarted(policy.automatic_restart)};
    if (options_.finish_early_stopped && !policy.automatic_restart) past.RetryEarlyStopped(begin);
    Core core(planned_->Specs(), policy, HistoryStream([&](const HistoryStream::Visit& visit) {
      const auto take = [&](JournalEvent& event) {
        if (event.type == journal::kAttemptEnded) event.fields.erase("summary");  // most of it, and nobody reads it here
        visit(event);
      };
      if (!merged) ScanJournal(files_, path, take);
      if (merged) std::for_each(merged->begin(), merged->end(), take);
      std::for_each(begin.begin() + 1, begin.end(), visit);
    }), done);
    merged.reset();
    past = {};
    journal.Append(begin);
    display_.Line(fmt::format("sweep {}: {} stages, {} done; workspace {}", planned_->plan.name,
                              planned_->size(), done.size(), workspace_.root()));

    CoordinatorOptions coordinating;
    coordinating.sweep = planned_->plan.name;
    coordinating.threads = options_.threads > 0 ? options_.threads : planned_->threads;
    coordinating.device = planned_->device;
    coordinating.metric = planned_->early_stopping().metric;
    if (options_.time_limit > 0)  // what is left of it: preparing a text takes its time
      coordinating.seconds_left = std::max(1e-3, options_.time_limit - (clock_.Monotonic() - began_));
    coordinating.timing = timing_;
    coordinating.launcher = launcher_;
    if (joined) coordinating.joined = &*joined;
    if (membership_) coordinating.directory = membership_->card().directory;
    if (lock_) coordinating.is_ours = [this] { return lock_->Holds(); };
    coordinating.config_toml = [this](const StageId& stage, int divisor) {
      return planned_->ConfigToml(stage.value(), divisor);
    };
    coordinating.describe = [this](const StageId& stage) { return planned_->Describe(stage.value()); };

    auto [to_agent, to_coordinator] = MakeLoopback(loop_, NodeId(0), NodeId(0));
    std::vector<Link*> links = {to_agent.get()};
    if (ranks_ != nullptr) links.push_back(ranks_);
    Agent agent(loop_, *to_coordinator, files_, clock_, agent_options);
    Coordinator coordinator(loop_, links, files_, clock_, workspace_, journal, std::move(core), display_,
                            coordinating);
    StopSignals signals(loop_, [&](const std::string& signal) {
      // Batch systems repeat themselves on the way to SIGKILL; a person who presses Ctrl-C again means it.
      if (signal == kCtrlC || !coordinator.core().stopping()) coordinator.RequestStop(signal);
    });

    std::optional<End> end;
    bool agent_ended = false;
    const auto stop_when_done = [&] {
      if (end && agent_ended) loop_.stop();
    };
    looping_ = true;
    agent.Start([&](bool) {
      agent_ended = true;
      stop_when_done();
    });
    coordinator.Start([&](int exit_code, bool clean) {
      end = {exit_code, clean};
      stop_when_done();
    });
    loop_.run();
    looping_ = false;
    HEADSWEEP_CHECK(end.has_value(), "the event loop ended before the sweep");
    for (const StageSpec& stage : coordinator.core().plan())
      ended_as_ += fmt::format("{} {}\n", stage.id.value(), ToString(coordinator.core().status(stage.id).state));
    return *end;
  }

  // What all journals of the sweep say, as one; nullopt: there is but the one at path.
  std::optional<std::vector<JournalEvent>> Merged(const std::string& path, CorePolicy& policy, std::optional<JoinedSweep>& joined,
                                                  std::map<StageId, std::string>& done) {
    const std::string& name = planned_->plan.name;
    if (!membership_) {
      std::vector<LauncherJournal> shared;
      for (const LauncherCard& card : ReadRoster(files_, workspace_, name))
        shared.push_back({card, ReadJournal(files_, JournalOf(card.directory)).events});
      for (const LauncherJournal& other : shared) FenceOff(workspace_, other);
      if (shared.empty()) return std::nullopt;
      return MergeJournals(ReadJournal(files_, path).events, shared, "");
    }
    policy.shared = true;
    joined.emplace(files_, clock_, workspace_, name, *membership_, timing_.lease);
    const std::vector<LauncherJournal> others = joined->ReadJournals();
    for (const LauncherJournal& other : others)
      policy.automatic_restart |= other.launcher.launch == membership_->card().launch;  // the same launch, going on
    // What is sealed, but not recorded yet by a launcher that lives, is that launcher's to record.
    for (const Event& event : joined->StateElsewhere())
      if (const auto* runs = std::get_if<HeardOf>(&event)) done.erase(StageId(runs->event.stage));
    return MergeJournals(ReadJournal(files_, workspace_.Journal(name)).events, others, membership_->card().launch);
  }

  // Of several launchers that come to the end of their sweep, one makes results and report.
  int ConcludeOnce(int exit_code) {
    if (exit_code == kExitResumable || !options_.report) return Conclude(exit_code);
    const std::string& name = planned_->plan.name;
    const std::string made_of = workspace_.SweepDirectory(name) + "/.collected";
    try {
      const SweepLock lock(workspace_.SweepDirectory(name) + "/collect.lock");
      if (!files_.Exists(workspace_.Report(name)) || !files_.Exists(made_of) || files_.ReadFile(made_of) != ended_as_) {
        const int code = Conclude(exit_code);
        if (code == exit_code) files_.WriteFile(made_of, ended_as_);
        return code;
      }
    } catch (const ConfigError&) {
      display_.Always(fmt::format("another launcher makes {} and {}", workspace_.Results(name), workspace_.Report(name)));
      return exit_code;
    }
    display_.Always(fmt::format("results {}\nreport  {}", workspace_.Results(name), workspace_.Report(name)));
    return exit_code;
  }

  // What is left to do when no trial runs any more: results, report, and what to type next.
  int Conclude(int exit_code) {
    const std::string& name = planned_->plan.name;
    const std::string elsewhere =
        workspace_.root() == Workspace("./headsweep-runs").root() ? "" : " --workspace " + workspace_.root();
    if (exit_code == kExitResumable) {
      display_.Always(
          fmt::format("stopped; everything is saved. Go on with: headsweep resume {}{}", name, elsewhere));
      return exit_code;
    }
    if (!options_.report) return exit_code;
    const bool collected = RunChild({"collect", name});  // false also when a file had to be left out
    const bool made =
        files_.Exists(workspace_.Results(name)) && RunChild({"report", name, "--summary"}) && collected;
    if (made) {
      display_.Always("results " + workspace_.Results(name));
      display_.Always("report  " + workspace_.Report(name));
    } else {
      display_.Always(fmt::format(
          "the trials' results are safe, but results.h5 or report.html is not complete; try again "
          "with: headsweep collect {}{}",
          name, elsewhere));
    }
    if (exit_code == kExitFailed)
      display_.Always(fmt::format("some trials failed: headsweep status {}{}", name, elsewhere));
    return made ? exit_code : std::max<int>(exit_code, kExitFailed);
  }

  // A sub-command in a process of its own, since it uses HDF5; in this process group, so that Ctrl-C ends
  // both.
  bool RunChild(std::vector<std::string> arguments) {
    ProcessSpec spec;
    spec.command = {ProgramPath()};
    spec.command.insert(spec.command.end(), arguments.begin(), arguments.end());
    spec.command.insert(spec.command.end(), {"--workspace", workspace_.root(), "--quiet"});
    spec.own_group = false;
    std::fflush(stdout);
    const pid_t pid = Spawn(spec).pid;
    const auto status = WaitFor(pid, kReportTimeout, /*own_group=*/false);
    if (!status) ::kill(pid, SIGKILL), WaitFor(pid, 30, false);
    return status == ExitStatus{};
  }

  const SessionOptions& options_;
  const Timing timing_;
  MpiWorld* world_;
  boost::asio::io_context& loop_;
  MpiLink* ranks_;
  const Workspace workspace_;
  FileSystem& files_ = FileSystem::Real();
  const SystemClock clock_;
  const double began_ = clock_.Monotonic();
  Display display_;
  std::optional<PlannedSweep> planned_;
  std::optional<SweepLock> lock_;
  LockOwner launcher_;
  std::unique_ptr<Membership> membership_;  // of a shared sweep
  std::string ended_as_;                    // the state of each stage, when all was over
  bool looping_ = false;
};

}  // namespace

int RunSession(const SessionOptions& options,
               const std::function<Sweep(const Workspace&, const FileSystem&)>& load) {
  ::signal(SIGPIPE, SIG_IGN);  // `headsweep run | head` must not end the sweep
  const Timing timing = Timing::FromEnvironment();
  const MpiEnvironment mpi = DetectMpi();
  std::unique_ptr<MpiWorld> world;
  if (mpi.launched) {
    world = std::make_unique<MpiWorld>(mpi.expected_size);
    UndoMpirunBinding();
  }
  if (world && world->rank() != 0) return RunAgentRank(options, timing, *world);

  boost::asio::io_context loop;
  std::unique_ptr<MpiLink> ranks;
  if (world && world->size() > 1) ranks = std::make_unique<MpiLink>(loop, *world);
  Session session(options, timing, world.get(), loop, ranks.get());
  try {
    return session.Run(load);
  } catch (...) {
    // The other ranks wait for a welcome, or look after trials: let them go in order if nothing has begun
    // yet.
    if (world && !world->finished() && !session.looping()) {
      if (ranks) {
        for (const NodeId rank : ranks->peers())
          ranks->Send(rank, {{message::kType, message::kEnd}, {"clean", true}});
        ranks->Flush(kFlushTimeout);
      }
      world->Finish(true);
    }
    throw;
  }
}

}  // namespace headsweep
