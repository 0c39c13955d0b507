#include "launcher/coordinator.h"

#include <unistd.h>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "cluster/base/log.h"
#include "launcher/failure_policy.h"
#include "launcher/gang.h"
#include "launcher/live_view.h"
#include "launcher/messages.h"
#include "launcher/progress_model.h"
#include "launcher/requests.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

constexpr std::chrono::milliseconds kTick(200);
constexpr double kLookSeconds = 1;  // between looks for requests, and between live views
// Once a process of a trial has ended well, the others do within moments: all have left the last common
// barrier.
constexpr double kLingerSeconds = 0.5;

struct Node {
  Link* link = nullptr;
  std::string host;
  bool remote = false;  // the coordinator's own agent lives and dies with it, and is never silent
  bool lost = false;
  bool declined = false;  // joined without slots
  int epoch = 0;          // of its join; see messages.h
  double last_heard = 0;
};

// The processes of a stage's latest attempt.
struct Live {
  explicit Live(Gang members) : gang(std::move(members)) {}
  Gang gang;
  nlohmann::json published = nlohmann::json::object();  // their rendezvous
  int directory = 0;                                    // number of the attempt's folder, once it is known
  bool is_ending = false;                               // asked to stop or killed: nothing more is started
  std::optional<double> linger_until;
  std::string taken_from;  // the launcher that had the trial and is gone
};

// One line, however long the message was; the whole of it is in the journal and in the trial's log.
std::string FirstLine(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.size() <= 200 ? line : line.substr(0, 197) + "...";
}

}  // namespace

struct Coordinator::Impl : std::enable_shared_from_this<Coordinator::Impl> {
  Impl(boost::asio::io_context& loop, std::vector<Link*> links_, FileSystem& files_, const Clock& clock_,
       const Workspace& workspace_, Journal& journal_, Core core_, Display& display_,
       CoordinatorOptions options_)
      : links(std::move(links_)),
        files(files_),
        clock(clock_),
        workspace(workspace_),
        journal(journal_),
        core(std::move(core_)),
        display(display_),
        options(std::move(options_)),
        timer(loop) {
    if (options.directory.empty()) options.directory = workspace.SweepDirectory(options.sweep);
  }

  // --- The core's commands
  // ------------------------------------------------------------------------------------------------
  void Handle(const Event& event) {
    if (core.ended()) return;
    const std::vector<Command> commands = core.Handle(event, clock.Monotonic());
    std::vector<JournalEvent> records;
    for (const Command& command : commands) {
      if (const auto* record = std::get_if<Record>(&command)) {
        records.push_back(record->event);
        continue;
      }
      Append(std::exchange(records, {}));  // on disk before it is acted on
      std::visit([this](const auto& what) { Do(what); }, command);
    }
    Append(std::exchange(records, {}));
    AnswerClaims();
  }

  void Append(const std::vector<JournalEvent>& records) {
    if (records.empty()) return;
    InsistOnOwnership();
    journal.Append(records);
  }

  void InsistOnOwnership() const {
    if (options.is_ours && !options.is_ours())
      throw ConfigError(fmt::format("another launcher has taken over the sweep {}: this one was taken for dead, and ends",
                                    options.sweep));
  }

  void Do(const Record&) {}

  // --- A shared sweep (joined_sweep.h)
  void Do(const ClaimStage& claim) { claims.push_back(claim); }

  // One after the other: what comes of an answer may be the next claim. Not before all that was heard is handled: the
  // claim may be for what is finished by then.
  void AnswerClaims() {
    if (std::exchange(claims_wait, true)) return;
    while (!claims.empty()) {
      const ClaimStage claim = claims.front();
      claims.pop_front();
      JoinedSweep::Answer answer{{}, {claim.stage, std::nullopt}, ""};
      try {
        answer = options.joined->ClaimStage(claim.stage, claim.least);
      } catch (const IoError& error) {
        display.Always(error.what());
        RequestStop("no trial can be claimed");
      }
      for (const Event& event : answer.heard) Handle(event);
      taken_from = answer.taken_from;
      Handle(answer.claim);
      taken_from.clear();
    }
    claims_wait = false;
  }

  void Hear(const std::vector<Event>& events) {
    claims_wait = true;
    for (const Event& event : events) {
      if (const auto* lost = std::get_if<LeaseLost>(&event))
        display.Always(fmt::format("{} is run by another launcher now: this one was silent for too long",
                                   lost->stage.value()));
      Handle(event);
    }
    claims_wait = false;
    AnswerClaims();
  }

  void Do(const ReleaseStage& release) { options.joined->ReleaseStage(release.stage, release.attempt); }

  void LookAtOthers() {
    if (options.joined != nullptr) Hear(options.joined->Look());
  }

  void Do(const StartAttempt& start) {
    files.CreateDirectories(workspace.Trial(start.stage.value()));
    // Whole or not there, but not synced: after a power cut every attempt's start writes it anew.
    const std::string config = workspace.TrialConfig(start.stage.value()), temporary = fmt::format("{}.tmp-{}-{}", config, start.attempt.value(), ::getpid());
    files.WriteFile(temporary, options.config_toml(start.stage, start.micro_batch_divisor));
    files.Rename(temporary, config);
    const auto [at, is_new] = live.insert_or_assign(start.stage, Live(Gang(start.attempt, start.slots)));
    at->second.taken_from = taken_from;
    // The node of rank 0 first: it gets the trial's lock, which may take long, and picks the folder.
    StartOn(start.stage, at->second, start.slots.front().node);
  }

  void StartOn(const StageId& stage, Live& attempt, NodeId node) {
    const std::vector<int> ranks = attempt.gang.RanksOn(node);
    std::vector<int> slots;
    for (const int rank : ranks) slots.push_back(attempt.gang.SlotOf(rank));
    attempt.gang.OnStarted(node);
    const std::string fence =
        options.joined == nullptr ? "" : options.joined->FenceOf(stage, attempt.gang.attempt());
    Send(node, {{message::kType, message::kStart},
                {"fence", fence},
                {"taken_from", attempt.taken_from},
                {"stage", stage.value()},
                {"attempt", attempt.gang.attempt().value()},
                {"epoch", nodes.at(node).epoch},
                {"ranks", ranks},
                {"slots", slots},
                {"world", attempt.gang.size()},
                {"directory", attempt.directory}});
    for (const auto& [key, value] : attempt.published.items())
      Send(node, Rendezvous(stage, attempt.gang.attempt(), key, value));
  }

  static nlohmann::json Rendezvous(const StageId& stage, Attempt attempt, const std::string& key,
                                   const nlohmann::json& value) {
    return {{message::kType, message::kRendezvous},
            {"stage", stage.value()},
            {"attempt", attempt.value()},
            {"key", key},
            {"value", value}};
  }

  void Do(const StopAttempt& stop) { SendToAttempt(stop.stage, stop.attempt, message::kStop, ""); }
  void Do(const KillAttempt& kill) { SendToAttempt(kill.stage, kill.attempt, message::kKill, kill.reason); }
  void Do(const Notice& notice) { display.Line(notice.text); }

  void Do(const EndSweep& end) {
    timer.cancel();
    files.Remove(LivePath());
    bool clean = true;
    for (const auto& [id, node] : nodes) clean = clean && !node.lost;
    for (const auto& [id, node] : nodes) Send(id, {{message::kType, message::kEnd}, {"clean", clean}});
    // Later, so that the line of the stage that ended last comes before.
    boost::asio::post(timer.get_executor(), [self = shared_from_this(), end, clean] {
      self->display.EndProgress();
      if (!end.reason.empty()) self->display.Line(end.reason);
      if (self->on_end) std::exchange(self->on_end, nullptr)(end.exit_code, clean);
    });
  }

  void Send(NodeId to, const nlohmann::json& message) {
    const Node& node = nodes.at(to);
    if (!node.lost) node.link->Send(to, message);
  }

  void SendToAttempt(const StageId& stage, Attempt attempt, const char* type, const std::string& reason) {
    Live* attempt_live = Find(stage, attempt);
    if (attempt_live == nullptr) return;
    attempt_live->is_ending = true;
    for (const NodeId node : attempt_live->gang.nodes()) {
      if (!attempt_live->gang.IsStarted(node)) continue;
      Send(node, {{message::kType, type},
                  {"stage", stage.value()},
                  {"attempt", attempt.value()},
                  {"reason", reason}});
    }
  }

  Live* Find(const StageId& stage, Attempt attempt) {
    const auto found = live.find(stage);
    return found != live.end() && found->second.gang.attempt() == attempt ? &found->second : nullptr;
  }

  // --- Gangs
  // --------------------------------------------------------------------------------------------------------------
  // Rank 0 runs: now the other nodes start theirs.
  void OnLaunched(const StageId& stage, Attempt attempt, int directory) {
    Live* started = Find(stage, attempt);
    if (started == nullptr || started->is_ending) return;
    started->directory = directory;
    for (const NodeId node : started->gang.nodes())
      if (!started->gang.IsStarted(node)) StartOn(stage, *started, node);
  }

  void OnRendezvous(NodeId from, const StageId& stage, Attempt attempt, const std::string& key,
                    const std::string& value) {
    Live* meeting = Find(stage, attempt);
    if (meeting == nullptr) return;
    meeting->published[key] = value;
    for (const NodeId node : meeting->gang.nodes())
      if (node != from && meeting->gang.IsStarted(node)) Send(node, Rendezvous(stage, attempt, key, value));
  }

  void OnRankEnded(const StageId& stage, Attempt attempt, int rank, const AttemptVerdict& verdict) {
    Live* ended = Find(stage, attempt);
    if (ended == nullptr) return;
    ended->gang.OnEnded(rank, verdict);
    if (ended->gang.over()) return EndIfOver(stage, attempt);
    if (ended->gang.any_failed()) {
      SendToAttempt(stage, attempt, message::kKill, kKilledPeerFailed);
    } else if (!ended->linger_until) {
      ended->linger_until = clock.Monotonic() + kLingerSeconds;
    }
  }

  void EndIfOver(const StageId& stage, Attempt attempt) {
    const Live* ended = Find(stage, attempt);
    if (ended == nullptr || !ended->gang.over()) return;
    const AttemptVerdict verdict = ended->gang.Verdict();
    live.erase(stage);
    if (options.joined != nullptr && !options.joined->Holds(stage, attempt)) {
      // What it says is of no use: another attempt counts. If it has sealed its result before, the other one has found it.
      Handle(LeaseLost{stage, attempt});
      return OnEnded({stage, attempt, control::kFailed, cause::kLostLease, verdict.message, ""});
    }
    OnEnded({stage, attempt, verdict.outcome, verdict.cause, verdict.message, verdict.summary,
             MeasuredMemory(verdict.summary)});
  }

  void EndLingering(double now) {
    std::vector<std::pair<StageId, Attempt>> late;
    for (auto& [stage, attempt] : live) {
      if (!attempt.linger_until || now < *attempt.linger_until) continue;
      attempt.linger_until.reset();
      late.push_back({stage, attempt.gang.attempt()});
    }
    for (const auto& [stage, attempt] : late)
      SendToAttempt(stage, attempt, message::kKill, kKilledLeftBehind);
  }

  // --- The agents' messages
  // -----------------------------------------------------------------------------------------------
  void OnMessage(NodeId from, const nlohmann::json& message) {
    const auto found = nodes.find(from);
    if (found == nodes.end()) return;
    Node& node = found->second;
    node.last_heard = clock.Monotonic();
    const std::string type = message::Text(message, message::kType);
    if (node.lost && type != message::kJoin) {  // of before it was lost, and not obeyed; but it is still there
      if (type == message::kAlive) node.link->Send(from, {{message::kType, message::kLost}, {"epoch", node.epoch}});
      return;
    }
    const StageId stage(message::Text(message, "stage"));
    const Attempt attempt(static_cast<int>(message::Integer(message, "attempt")));
    if (type == message::kAlive) {
      Send(from, {{message::kType, message::kAlive}});
    } else if (type == message::kJoin) {
      if (!IsWelcome(from, node, static_cast<int>(message::Integer(message, "epoch")))) return;
      node.host = message::Text(message, "host");
      const int slots = static_cast<int>(message::Integer(message, "slots"));
      slots > 0 ? Handle(NodeJoined{from, node.host, slots, message::Integers(message, "device_bytes")})
                : OnDeclined(from, node, message::Text(message, "problem"));
    } else if (type == message::kProgress) {
      last_progress[stage] = {stage.value(),
                              attempt.value(),
                              message::Text(message, "phase"),
                              message::Integer(message, "step"),
                              message::Integer(message, "steps"),
                              message::Number(message, "loss"),
                              message::Number(message, "tokens_per_second")};
      Handle(AttemptProgressed{stage, attempt, message::Integer(message, "step"),
                               message::Integer(message, "steps")});
    } else if (type == message::kEvaluation) {
      if (message::Text(message, "split") == "valid")
        Handle(AttemptEvaluated{stage, attempt, message::Integer(message, "step"),
                                message::Number(message, options.metric.c_str())});
    } else if (type == message::kCheckpoint) {
      Handle(AttemptCheckpointed{stage, attempt, message::Integer(message, "step")});
    } else if (type == message::kEnded) {
      OnRankEnded(stage, attempt, static_cast<int>(message::Integer(message, "rank")),
                  {.outcome = message::Text(message, "outcome"),
                   .cause = message::Text(message, "cause"),
                   .message = message::Text(message, "message"),
                   .summary = message::Text(message, "summary")});
    } else if (type == message::kLaunched) {
      OnLaunched(stage, attempt, static_cast<int>(message::Integer(message, "directory")));
    } else if (type == message::kRendezvous) {
      OnRendezvous(from, stage, attempt, message::Text(message, "key"), message::Text(message, "value"));
    } else if (type == message::kSignal) {
      // Every rank may get the signal; only a second one to the coordinator itself means "at once".
      if (!core.stopping()) RequestStop(message::Text(message, "name") + " on " + node.host);
    }
    if (type != message::kProgress && type != message::kAlive) Refresh();  // those are many: every tick looks at them
  }

  // A node that joins again has ended what ran there.
  bool IsWelcome(NodeId id, Node& node, int epoch) {
    if (epoch <= node.epoch) return false;  // said twice, or overtaken
    const bool was_here = std::exchange(node.epoch, epoch) > 0;
    if (was_here && !node.lost) LoseNode(id, "it had heard nothing from here for too long");
    if (was_here || node.lost) display.Always(fmt::format("node {} ({}) is back", id.value(), node.host));
    node.lost = node.declined = false;
    return true;
  }

  void OnDeclined(NodeId id, Node& node, const std::string& problem) {
    if (std::exchange(node.declined, true)) return;
    display.Always(fmt::format("node {} ({}) takes no trials: {}", id.value(), node.host, problem));
    for (const auto& [other, state] : nodes)
      if (!state.lost && !state.declined) return;
    Handle(NoSlots{fmt::format("no node can take trials with run.device = \"{}\"; on {}: {}", options.device,
                               node.host, problem)});
  }

  void OnEnded(const AttemptEnded& end) {
    const StageState before = core.status(end.stage).state;
    Handle(end);
    if (before != StageState::kRunning) return;
    const StageStatus& status = core.status(end.stage);
    const std::string name = end.stage.value() + " " + options.describe(end.stage);
    switch (status.state) {
      case StageState::kFinished:
      case StageState::kDiverged:
        display.Line(fmt::format("{} {}{}", ToString(status.state), name, Summary(end.summary)));
        break;
      case StageState::kEarlyStopped:
        display.Line(fmt::format("stopped early {}: {}", name, status.message));
        break;
      case StageState::kFailed:
        display.Always(fmt::format("failed {} after {} attempts: {}: {}", name, status.attempt.value(),
                                   status.cause, FirstLine(status.message)));
        display.Always(fmt::format("  its log: headsweep logs {} {}", options.sweep, end.stage.value()));
        break;
      default:
        if (status.cause != cause::kStopped)
          display.Line(fmt::format("retry {}: attempt {}: {}: {}", name, end.attempt.value(), status.cause,
                                   FirstLine(status.message)));
    }
  }

  static std::int64_t MeasuredMemory(const std::string& summary) {
    const nlohmann::json parsed = ParseJson(summary);
    return parsed.is_object() ? message::Integer(parsed, "peak_memory_bytes") : 0;
  }

  static std::string Summary(const std::string& summary) {
    const nlohmann::json parsed = ParseJson(summary);
    const std::string line = parsed.is_object() ? message::Text(parsed, "summary_line") : "";
    return line.empty() ? "" : ": " + line;
  }

  // --- Time
  // ---------------------------------------------------------------------------------------------------------------
  void Schedule() {
    timer.expires_after(kTick);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->core.ended()) return;
      self->Tick();
      if (!self->core.ended()) self->Schedule();
    });
  }

  void Tick() {
    LookAtOthers();  // first: this process may have stood still
    const double now = clock.Monotonic();
    const double gap = now - std::exchange(last_tick, now);
    for (auto& [id, node] : nodes) {
      // This process stood still: what the nodes said meanwhile is not read yet, so it is no silence of
      // theirs.
      if (gap > options.timing.heartbeat) node.last_heard += gap;
      if (!node.remote || node.lost || now < node.last_heard + options.timing.node_timeout) continue;
      node.lost = true;
      node.link->Abandon(id);
      const std::string reason = fmt::format("nothing heard for {:.0f} s", now - node.last_heard);
      display.Always(fmt::format("node {} ({}) is lost: {}", id.value(), node.host, reason));
      LoseNode(id, reason);
    }
    EndLingering(now);
    Handle(headsweep::Tick{});
    Refresh();
    if (now < next_look) return;
    next_look = now + kLookSeconds;
    InsistOnOwnership();
    ObeyRequests();
    if (!core.ended()) WriteLive();
  }

  // A workspace that cannot be read or written for a moment must not end the sweep for a wish or a view.
  void ObeyRequests() {
    try {
      for (const auto& [path, asked] : ReadRequests(files, options.directory + "/requests", options.launcher)) {
        Obey(asked);
        files.Remove(path);
        if (core.ended()) return;
      }
    } catch (const IoError& error) {
      LogWarning("requests cannot be read: {}", error.what());
    }
  }

  void Obey(const Request& asked) {
    if (asked.type == request::kCancel || asked.type == request::kKill) {
      const bool was_stopping = core.stopping();
      RequestStop("asked by " + asked.by);
      if (asked.type == request::kKill && !was_stopping) RequestStop("asked by " + asked.by);
    } else if (asked.type == request::kPause || asked.type == request::kContinue) {
      Handle(PauseRequested{asked.type == request::kPause, asked.by});
    } else if (asked.type == request::kRetry) {
      RetryRequested retry{{}, asked.by};
      for (const std::string& stage : asked.stages) retry.stages.push_back(StageId(stage));
      Handle(retry);
    } else {
      LogWarning("a request \"{}\" of {} is unknown to this version", asked.type, asked.by);
    }
  }

  std::string LivePath() const { return options.directory + "/live.json"; }

  void WriteLive() {
    LiveView view;
    view.fraction = Fraction();
    view.line = progress.Line();
    view.seconds_left = progress.SecondsLeft();
    view.slots = core.slots();
    view.busy_slots = core.busy_slots();
    view.paused = core.paused();
    view.stopping = core.stopping();
    view.short_of_memory = core.short_of_memory();
    for (const auto& [stage, last] : last_progress) {
      const StageStatus& status = core.status(stage);
      if (status.state != StageState::kRunning || last.attempt != status.attempt.value()) continue;
      view.running.push_back(last);
    }
    try {
      WriteLiveView(files, LivePath(), view);
    } catch (const IoError& error) {
      LogWarning("the live view cannot be written: {}", error.what());
    }
  }

  double Fraction() const {
    const ProgressSnapshot snapshot = Snapshot(core);
    return snapshot.total_flops > 0 ? snapshot.finished_flops / snapshot.total_flops : 0;
  }

  void LoseNode(NodeId node, const std::string& reason) {
    std::vector<std::pair<StageId, Attempt>> hit;
    for (auto& [stage, attempt] : live) {
      if (attempt.gang.RanksOn(node).empty()) continue;
      attempt.gang.OnNodeLost(node);
      hit.push_back({stage, attempt.gang.attempt()});
    }
    Handle(NodeLost{node, reason});  // the core has the rest of a gang killed
    for (const auto& [stage, attempt] : hit) EndIfOver(stage, attempt);
  }

  void Refresh() {
    if (core.ended()) return;
    const ProgressSnapshot snapshot = Snapshot(core);
    progress.Observe(snapshot, clock.Monotonic());
    display.Progress(Fraction(), progress.Line(), clock.Monotonic());
  }

  void RequestStop(const std::string& reason) {
    if (core.ended()) return;
    const int running = core.counts().running;
    if (!core.stopping()) {
      display.Always(fmt::format("stopping ({}): checkpointing {} trial{} (Ctrl-C again to kill {})", reason,
                                 running, running == 1 ? "" : "s", running == 1 ? "it" : "them"));
    } else {
      display.Always(fmt::format("killing {} trial{} ({})", running, running == 1 ? "" : "s", reason));
    }
    Handle(StopRequested{reason});
  }

  std::vector<Link*> links;
  FileSystem& files;
  const Clock& clock;
  const Workspace& workspace;
  Journal& journal;
  Core core;
  Display& display;
  CoordinatorOptions options;
  boost::asio::steady_timer timer;
  std::function<void(int, bool)> on_end;
  ProgressModel progress;
  std::map<NodeId, Node> nodes;
  std::map<StageId, Live> live;
  std::map<StageId, LiveTrial> last_progress;
  double last_tick = 0, next_look = 0;
  std::deque<ClaimStage> claims;  // not answered yet
  bool claims_wait = false;
  std::string taken_from;         // of the claim that is being answered
};

Coordinator::Coordinator(boost::asio::io_context& loop, std::vector<Link*> links, FileSystem& files,
                         const Clock& clock, const Workspace& workspace, Journal& journal, Core core,
                         Display& display, CoordinatorOptions options)
    : impl_(std::make_shared<Impl>(loop, std::move(links), files, clock, workspace, journal, std::move(core),
                                   display, std::move(options))) {}

Coordinator::~Coordinator() { impl_->timer.cancel(); }

void Coordinator::Start(std::function<void(int, bool)> on_end) {
  Impl& impl = *impl_;
  impl.on_end = std::move(on_end);
  impl.last_tick = impl.clock.Monotonic();
  bool remote = false;
  for (Link* link : impl.links) {
    for (const NodeId peer : link->peers())
      impl.nodes[peer] = {
          .link = link, .host = "", .remote = remote, .lost = false, .last_heard = impl.last_tick};
    link->Start(
        [raw = impl_.get()](NodeId from, const nlohmann::json& message) { raw->OnMessage(from, message); });
    remote = true;  // the first link is the one within this process
  }
  if (impl.options.joined != nullptr) impl.Hear(impl.options.joined->StateElsewhere());
  for (const auto& [id, node] : impl.nodes)
    impl.Send(id, {{message::kType, message::kWelcome},
                   {"workspace", impl.workspace.root()},
                   {"sweep", impl.options.sweep},
                   {"threads", impl.options.threads},
                   {"device", impl.options.device}});
  if (impl.options.seconds_left > 0) impl.Handle(TimeLimit{impl.options.seconds_left});
  impl.Schedule();
}

void Coordinator::RequestStop(const std::string& reason) { impl_->RequestStop(reason); }

const Core& Coordinator::core() const { return impl_->core; }

}  // namespace headsweep
