#include "launcher/batch.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/log.h"
#include "cluster/base/run_program.h"
#include "cluster/slurm/decision.h"
#include "cluster/slurm/slurm.h"
#include "cluster/slurm/this_job.h"
#include "launcher/job_record.h"
#include "launcher/joining.h"
#include "launcher/journal.h"
#include "launcher/lost_coordinator.h"
#include "launcher/process.h"
#include "launcher/session.h"
#include "launcher/submission.h"
#include "launcher/workspace.h"

extern char** environ;

namespace headsweep {
namespace {

constexpr double kLookSeconds = 1;         // how long a signal may wait at most
constexpr int kAskAgain = 5;               // times that Slurm is asked when it does not answer …
constexpr double kAskPause = 10;           // … with so many seconds between
constexpr double kEndOfJobSeconds = 60;    // from an accepted requeue until Slurm ends this process
constexpr double kLimitSlackSeconds = 45;  // Slurm looks at limits about every 30 s

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// The signals that Slurm or a person may send to the batch script. They are blocked, and taken when there is time.
class BatchSignals {
 public:
  BatchSignals() {
    ::sigemptyset(&set_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) ::sigaddset(&set_, signal);
    ::sigprocmask(SIG_BLOCK, &set_, nullptr);
  }
  // The next one, or 0 after `seconds`.
  int Wait(double seconds) const {
    const timespec limit{static_cast<time_t>(seconds), static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
    const int signal = ::sigtimedwait(&set_, nullptr, &limit);
    return signal > 0 ? signal : 0;
  }

 private:
  sigset_t set_;
};

class Batch {
 public:
  explicit Batch(const BatchOptions& options)
      : options_(options),
        submission_(ReadSubmission(files_, options.submission)),
        journal_(JoinPath(ParentPath(ParentPath(options.submission)), "journal.jsonl")),
        job_(ThisJob()),
        restart_(ThisJobsRestarts()),
        task_(Environment("SLURM_ARRAY_TASK_ID")) {}

  int Run() {
    Say(fmt::format("sweep {}, submission {}: job {}{} on {}", submission_.record.sweep, submission_.number,
                    job_.empty() ? "(none)" : job_, restart_ > 0 ? fmt::format(", restart {}", restart_) : "",
                    Nodes()));
    if (Cancelled()) return EndCancelled();
    const std::int64_t before = Progress();
    JobEvent started = Event(job_event::kStarted);
    started.nodes = Nodes();
    started.progress = before;
    Write(started);
    FindTimeLimit();

    RunEnd end = RunAgents();
    end.progress_before = before;
    end.progress_after = Progress();
    end.most_requeues = options_.most_requeues;
    CountPastRuns(end);
    if (Cancelled()) end.cancelled_by = ReadSubmission(files_, options_.submission).cancelled_by;
    if (MightGoOn(end)) LookAtJob(end);

    const RunDecision decision = DecideAfterRun(end);
    JobEvent ended = Event(job_event::kEnded);
    ended.progress = end.progress_after;
    ended.exit_code = decision.exit_code;
    ended.again = decision.again;
    ended.futile = decision.futile;
    ended.reason = decision.reason;
    Write(ended);
    Say(decision.reason);
    if (decision.again) GoOn();
    return decision.exit_code;
  }

 private:
  static std::string Nodes() {
    const std::string nodes = Environment("SLURM_JOB_NODELIST");
    return nodes.empty() ? "this machine" : nodes;
  }
  static void Say(const std::string& line) {
    std::printf("headsweep batch: %s\n", line.c_str());
    std::fflush(stdout);
  }
  bool Cancelled() const { return files_.Exists(JoinPath(options_.submission, job_file::kCancelled)); }
  int EndCancelled() {
    JobEvent ended = Event(job_event::kEnded);
    ended.exit_code = kExitResumable;
    ended.reason = "cancelled before it began";
    Write(ended);
    Say(ended.reason);
    return kExitResumable;
  }

  JobEvent Event(const char* type) const {
    JobEvent event;
    event.type = type;
    event.time = clock_.Wall();
    event.job = job_;
    event.restart = restart_;
    return event;
  }
  std::string History() const { return HistoryPath(options_.submission, task_); }
  // One write a line: also two starts of one script do not cut into each other's lines.
  void Write(const JobEvent& event) {
    const auto file = files_.OpenForAppend(History());
    file->Append(FormatJobEvent(event));
    file->Sync();
  }

  // Of the sweep, whichever of its launchers has made it.
  std::int64_t Progress() const {
    std::int64_t progress = ProgressIn(journal_);
    const std::string launchers = JoinPath(ParentPath(journal_), "launchers");
    for (const std::string& launcher : files_.List(launchers))
      progress += ProgressIn(JoinPath(launchers, launcher) + "/journal.jsonl");
    return progress;
  }
  std::int64_t ProgressIn(const std::string& journal) const {
    return files_.Exists(journal) ? ProgressOf(ReadJournal(files_, journal).events) : 0;
  }

  void CountPastRuns(RunEnd& end) const {
    if (!files_.Exists(History())) return;
    for (const JobEvent& event : ParseJobEvents(files_.ReadFile(History()))) {
      if (event.type != job_event::kEnded) continue;
      end.futile_before = event.futile ? end.futile_before + 1 : 0;
      end.requeues += event.again;
    }
  }

  void FindTimeLimit() {
    if (job_.empty()) return;
    const JobsAnswer answer = slurm_.Jobs({job_});
    if (answer.known && answer.jobs.size() == 1 && answer.jobs.front().seconds_left)
      limit_at_ = clock_.Monotonic() + *answer.jobs.front().seconds_left;
  }

  // From their start to their end.
  RunEnd RunAgents() {
    RunEnd end;
    const std::string word = JoinPath(
        options_.submission, fmt::format("{}{}-{}", job_file::kExitPrefix, job_.empty() ? "0" : job_, restart_));
    files_.Remove(word);
    ProcessSpec spec;
    spec.command = options_.agents;
    spec.command.front() = FindProgram(spec.command.front());
    // Spawn keeps MPI's variables from children; here they are the site's own settings for the agents.
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      const std::string_view name = text.substr(0, text.find('='));
      if (IsMpiVariable(name) && name.size() < text.size())
        spec.environment.emplace_back(name, text.substr(name.size() + 1));
    }
    spec.environment.emplace_back(kExitCodeVariable, word);
    spec.environment.emplace_back(kBatchHostVariable, Environment("SLURMD_NODENAME"));
    spec.environment.emplace_back(kSubmissionVariable, options_.submission);
    spec.environment.emplace_back(kLaunchVariable, submission_.record.comment);
    if (limit_at_ > 0)
      spec.environment.emplace_back(kSecondsLeftVariable, fmt::format("{:.0f}", limit_at_ - clock_.Monotonic()));
    ShowLife();
    const pid_t agents = Spawn(spec).pid;
    std::optional<ExitStatus> status;
    while (!(status = TryReap(agents))) {
      OnSignal(signals_.Wait(kLookSeconds), agents, end);
      ShowLife();
    }
    files_.Remove(sign_);
    // What arrived in the same moment still counts.
    while (const int signal = signals_.Wait(0)) OnSignal(signal, -1, end);
    end.srun = status->signal != 0 ? 128 + status->signal : status->code;
    if (files_.Exists(word)) {
      end.coordinator = std::atoi(files_.ReadFile(word).c_str());
      files_.Remove(word);
    }
    return end;
  }

  // For agents that hear nothing of their coordinator (lost_coordinator.h). Nothing depends on a single one.
  void ShowLife() {
    const double now = clock_.Monotonic();
    if (job_.empty() || now < last_sign_ + kSignOfLifeSeconds) return;
    last_sign_ = now;
    try {
      files_.WriteFile(sign_, fmt::format("{}\n", ++signs_));
    } catch (const IoError& error) {
      LogWarning("{}", error.what());
    }
  }

  void OnSignal(int signal, pid_t agents, RunEnd& end) {
    if (signal == 0 || signal == SIGCHLD) return;
    Say(fmt::format("received SIG{}", ::sigabbrev_np(signal)));
    if (signal == SIGTERM) {
      // Slurm has sent it to every agent as well; a second one would take their time to checkpoint.
      end.slurm_ends_job = !job_.empty();
      end.at_time_limit = limit_at_ > 0 && clock_.Monotonic() + kLimitSlackSeconds >= limit_at_;
      if (!job_.empty()) return;
    }
    if (agents > 0) ::kill(agents, SIGUSR2);  // srun hands it on to every agent
  }

  static bool MightGoOn(const RunEnd& end) {
    return !end.coordinator || *end.coordinator == kExitResumable;
  }

  // An agent may hear of the end of its job before this process does. And a node that was cut off for a while may come back
  // when its job has long been begun again elsewhere: what is to become of the job is not for this run of it to say.
  void LookAtJob(RunEnd& end) {
    if (job_.empty()) return;
    if (slurm_.Restarts(job_).value_or(restart_) > restart_) {
      end.slurm_ends_job = true;
      end.at_time_limit = false;
    }
    if (end.slurm_ends_job) return;
    const JobsAnswer answer = slurm_.Jobs({job_});
    if (!answer.known) return;  // then the requeue finds out
    for (const SlurmJob& job : answer.jobs)
      end.slurm_ends_job |= job.phase == JobPhase::kEnding || job.phase == JobPhase::kOver;
  }

  // The sweep is not done: this job once more, or another one.
  void GoOn() {
    if (job_.empty()) return Strand("not within Slurm, so nobody starts it again");
    for (int attempt = 1; attempt <= kAskAgain; ++attempt) {
      const SlurmReply reply = slurm_.Requeue(job_);
      if (reply.outcome == SlurmOutcome::kDone) {
        JobEvent event = Event(job_event::kRequeued);
        Write(event);
        Say("requeued");
        AwaitEnd(kEndOfJobSeconds);
        return;
      }
      Say(reply.text);
      if (reply.outcome == SlurmOutcome::kRefused) return Chain(reply.text);
      if (AwaitEnd(kAskPause)) return;  // it was accepted after all
    }
    // Perhaps it is requeued, perhaps not: a second job now might be one too many.
    Strand("Slurm does not answer");
  }

  void Chain(const std::string& why) {
    const SlurmReply reply = SubmitNext(slurm_, options_.submission, job_);
    if (reply.outcome != SlurmOutcome::kDone) return Strand(reply.text);
    JobEvent event = Event(job_event::kChained);
    event.next = reply.text;
    event.reason = why;
    Write(event);
    Say(fmt::format("job {} goes on when this one has ended", event.next));
  }

  void Strand(const std::string& why) {
    JobEvent event = Event(job_event::kStranded);
    event.reason = why;
    Write(event);
    Say(fmt::format("{}; go on with: headsweep resume {}", why, submission_.record.sweep));
  }

  // True when Slurm has told this process to end.
  bool AwaitEnd(double seconds) {
    const double until = clock_.Monotonic() + seconds;
    while (clock_.Monotonic() < until)
      if (signals_.Wait(std::min(kLookSeconds, std::max(0.0, until - clock_.Monotonic()))) == SIGTERM) return true;
    return false;
  }

  const BatchOptions& options_;
  FileSystem& files_ = FileSystem::Real();
  const SystemClock clock_;
  const Slurm slurm_;
  const BatchSignals signals_;
  const Submission submission_;
  const std::string journal_;
  const std::string job_;
  const int restart_;
  const std::string task_;
  const std::string sign_ = SignOfLifePath(options_.submission, job_, restart_);
  int signs_ = 0;
  double last_sign_ = -1e9;
  double limit_at_ = 0;  // monotonic; 0 = not known
};

}  // namespace

int RunBatch(const BatchOptions& options) {
  const std::string& program = options.agents.front();
  if (FindProgram(program).empty())
    throw ConfigError(fmt::format("{} is not there, or not on PATH in the job; does `setup` in cluster.toml load what "
                                  "it needs?",
                                  program));
  return Batch(options).Run();
}

std::int64_t ProgressOf(const std::vector<JournalEvent>& events) {
  std::map<std::string, std::int64_t> steps;
  constexpr std::int64_t kFinished = 1'000'000'000'000;  // more than any number of steps
  std::int64_t progress = 0;
  for (const JournalEvent& event : events) {
    const auto field = [&](const char* name) {
      const auto found = event.fields.find(name);
      return found != event.fields.end() ? found->second : std::string();
    };
    const std::string outcome = field("outcome");
    if (event.type == journal::kCheckpointed) {
      std::int64_t& furthest = steps[event.stage];
      furthest = std::max(furthest, static_cast<std::int64_t>(std::atoll(field("step").c_str())));
    } else if (event.type == journal::kStageAdopted || outcome == "finished" || outcome == "diverged") {
      progress += kFinished;
    }
  }
  for (const auto& [stage, furthest] : steps) progress += furthest;
  return progress;
}

}  // namespace headsweep
