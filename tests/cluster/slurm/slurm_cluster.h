// A real Slurm cluster of three nodes for all tests of a program, and sweeps submitted to it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/run_program.h"
#include "cluster/slurm/slurm.h"
#include "launcher/job_record.h"
#include "tests/cluster/environment.h"
#include "tests/crash/disturbed_sweep.h"

namespace headsweep::testing {

// Started by the first test that wants it, ended with the program (by itself, should the program be killed).
class SlurmCluster {
 public:
  static SlurmCluster& Get() {
    static SlurmCluster cluster;
    return cluster;
  }
  // Why there is none here, or "".
  static std::string Missing() {
    if (::geteuid() != 0) return "a Slurm cluster of one's own needs root";
    for (const char* program : {"slurmctld", "slurmd", "munged", "sbatch"})
      if (FindProgram(program).empty()) return std::string(program) + " is not installed: cluster/setup.sh --tests";
    return "";
  }
  const std::string& problem() const { return problem_; }

  // kill-node 1, stop-controller, …
  static void Do(const std::vector<std::string>& words) {
    std::vector<std::string> command = {Script(), Get().directory_};
    command.insert(command.end(), words.begin(), words.end());
    const ProgramResult result = RunProgram(command, 60, /*merge_errors=*/true);
    EXPECT_EQ(result.exit_code, 0) << words.front() << ": " << result.output;
  }
  // All nodes idle and the controller there: what every test may count on.
  void Mend() {
    Do({"start-controller"});
    for (int node = 0; node < kNodes; ++node) Do({"start-node", std::to_string(node)});
    RunProgram({"scontrol", "update", "NodeName=n[0-2]", "State=RESUME"}, 30);
    EXPECT_TRUE(WaitUntil([] {
      const ProgramResult idle = RunProgram({"sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N"}, 30);
      return std::count(idle.output.begin(), idle.output.end(), '\n') == kNodes;
    })) << RunProgram({"sinfo", "-N", "-l"}, 30).output;
  }

  // Until the controller has written its state once more. It does so a few seconds after a change, and may have done so for the
  // last one already: so the job is changed, in a field that nobody reads.
  bool WaitForSavedState(const std::string& job) const {
    const std::filesystem::path saved = directory_ + "/state/job_state";
    const auto begin = std::filesystem::file_time_type::clock::now();
    RunProgram({"scontrol", "update", "JobId=" + job, "AdminComment=to be saved"}, 30);
    return WaitUntil([&] {
      std::error_code error;
      const auto written = std::filesystem::last_write_time(saved, error);
      return !error && written > begin;
    });
  }

  const std::string& directory() const { return directory_; }
  // Of the program with that number.
  static std::string DirectoryOf(pid_t program) {
    return (std::filesystem::temp_directory_path() / ("hs-slurm-" + std::to_string(program))).string();
  }

  static constexpr int kNodes = 3;

 private:
  SlurmCluster() : directory_(DirectoryOf(::getpid())) {
    const ProgramResult start = RunProgram({Script(), directory_, "start", "--nodes", std::to_string(kNodes), "--while",
                                            std::to_string(::getpid())},
                                           60, /*merge_errors=*/true);
    if (start.exit_code != 0) problem_ = start.output;
    ::setenv("SLURM_CONF", (directory_ + "/slurm.conf").c_str(), 1);
  }
  ~SlurmCluster() { RunProgram({Script(), directory_, "stop"}, 60); }
  static std::string Script() { return std::string(HEADSWEEP_SOURCE_DIR) + "/cluster/test_cluster.sh"; }

  std::string directory_, problem_;
};

class SlurmSweepTest : public DisturbedSweepTest {
 protected:
  void SetUp() override {
    const std::string missing = SlurmCluster::Missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
    ASSERT_EQ(SlurmCluster::Get().problem(), "");
    SlurmCluster::Get().Mend();
    // The site of these tests: no configuration of whoever runs them, and short waits, which jobs inherit.
    ::setenv("XDG_CONFIG_HOME", (temp_ / "config").c_str(), 1);
    ::setenv("HEADSWEEP_NODE_TIMEOUT", "9", 1);
    ::setenv("HEADSWEEP_RETURN_TIMEOUT", "1", 1);
    ::setenv("HEADSWEEP_KILL_GRACE", "1", 1);
  }
  void TearDown() override {
    if (HasFailure()) std::printf("%s\n", RunProgram({"squeue", "-t", "all"}, 30, true).output.c_str());
    for (const std::string& job : jobs_) slurm_.Cancel(job);
    if (HasFailure())
      for (const Workspace& workspace : workspaces_) std::printf("%s\n", Logs(workspace).c_str());
  }

  Finished Headsweep(std::vector<std::string> words, const Workspace& workspace) {
    words.insert(words.begin() + 1, {"--workspace", workspace.root()});
    return HeadsweepProgram(words, temp_ / ("log-" + std::to_string(++programs_))).Wait();
  }
  // The job's id. words: options; what follows "--" comes last.
  std::string Submit(const Workspace& workspace, const std::vector<std::string>& words = {}) {
    workspaces_.push_back(workspace);
    std::vector<std::string> command = {"submit",  temp_ / "sweep.toml", "--no-report",
                                        "--slots", "1",                  "--workspace", workspace.root(), "--json"};
    if (std::find(words.begin(), words.end(), "--time") == words.end())
      command.insert(command.end(), {"--time", "10"});
    command.insert(command.end(), words.begin(), words.end());
    const Finished submitted = HeadsweepProgram(command, temp_ / ("log-" + std::to_string(++programs_))).Wait();
    EXPECT_EQ(submitted.code, 0) << submitted.output;
    const std::vector<Submission> known = ReadSubmissions(FileSystem::Real(), workspace, "s");
    const std::string job = known.empty() ? "" : known.back().record.job;
    EXPECT_FALSE(job.empty());
    const json told = json::parse(submitted.output, nullptr, false);
    EXPECT_TRUE(told.is_object() && !told["jobs"].empty() && told["workspace"] == workspace.root()) << submitted.output;
    if (!job.empty()) jobs_.push_back(job);
    return job;
  }

  // "" when Slurm has forgotten it; nothing when it does not answer.
  std::optional<SlurmJob> Look(const std::string& job) {
    const JobsAnswer answer = slurm_.Jobs({job});
    if (!answer.known) return std::nullopt;
    return answer.jobs.empty() ? SlurmJob{} : answer.jobs.front();
  }
  bool WaitForState(const std::string& job, const std::string& state) {
    return WaitUntil([&] {
      const auto now = Look(job);
      return now && now->state == state;
    });
  }
  // Waits for the end and returns Slurm's word for it.
  std::string WaitForEnd(const std::string& job) {
    std::string state;
    WaitUntil([&] {
      const auto now = Look(job);
      if (!now) return false;
      state = now->state;
      return now->phase == JobPhase::kOver;
    });
    return state;
  }
  // Until jobs of the latest submission have begun so often, requeued ones included.
  bool WaitForStarts(const Workspace& workspace, int count) {
    return WaitUntil([&] { return Count(History(workspace), job_event::kStarted) >= count; });
  }
  // Until something new is safe on disk, so that the job that is told to leave then has not run in vain.
  bool WaitForNewCheckpoint(const Workspace& workspace) {
    return WaitForEvent(workspace, journal::kCheckpointed, CountEvents(workspace, journal::kCheckpointed) + 1);
  }
  static void TellToLeave(const std::string& job) { RunProgram({"scancel", "--signal=USR2", job}, 30); }
  bool WaitForEvent(const Workspace& workspace, const char* type, int count = 1) {
    return WaitUntil([&] {
      if (!FileSystem::Real().Exists(workspace.Journal("s"))) return false;
      const std::vector<JournalEvent> events = Events(workspace);
      return std::count_if(events.begin(), events.end(), [&](const auto& event) { return event.type == type; }) >= count;
    });
  }
  static int CountEvents(const Workspace& workspace, const char* type) {
    const std::vector<JournalEvent> events = Events(workspace);
    return static_cast<int>(
        std::count_if(events.begin(), events.end(), [&](const auto& event) { return event.type == type; }));
  }
  static void SignalTrials(const Workspace& workspace, int signal) {
    for (const TaggedProcess& process : FindTaggedProcesses())
      if (process.sweep.starts_with(workspace.root() + "/")) ::kill(process.pid, signal);
  }
  std::string LatestJob(const Workspace& workspace) {
    const std::string job = ReadSubmissions(FileSystem::Real(), workspace, "s").back().record.job;
    jobs_.push_back(job);
    return job;
  }
  // A short job that needs all nodes and preempts those of the partition scavenge.
  SlurmReply SubmitUrgent() {
    std::ofstream(temp_ / "urgent.sh") << "#!/bin/sh\n#SBATCH --partition=main --nodes=3 --exclusive --time=1 --output=/dev/null\n";
    const SlurmReply reply = slurm_.Submit(temp_ / "urgent.sh", temp_.path());
    if (reply.outcome == SlurmOutcome::kDone) jobs_.push_back(reply.text);
    return reply;
  }
  static std::vector<JobEvent> History(const Workspace& workspace) {
    const std::vector<Submission> known = ReadSubmissions(FileSystem::Real(), workspace, "s");
    return known.empty() ? std::vector<JobEvent>{} : known.back().events;
  }
  static int Count(const std::vector<JobEvent>& events, const char* type) {
    return static_cast<int>(
        std::count_if(events.begin(), events.end(), [&](const JobEvent& event) { return event.type == type; }));
  }
  static std::string Field(const JournalEvent& event, const char* name) {
    const auto found = event.fields.find(name);
    return found != event.fields.end() ? found->second : "";
  }
  // No attempt failed for a reason that counts against a trial.
  static void ExpectNoTrialCharged(const Workspace& workspace) {
    for (const JournalEvent& event : Events(workspace)) {
      if (event.type == journal::kAttemptEnded) {
        EXPECT_NE(Field(event, "charged"), "yes") << event.stage << ": " << Field(event, "cause");
      }
    }
  }
  static std::set<std::string> Hosts(const Workspace& workspace) {
    std::set<std::string> hosts;
    for (const JournalEvent& event : Events(workspace))
      if (event.type == journal::kAttemptStarted) hosts.insert(Field(event, "host"));
    return hosts;
  }
  static std::string Logs(const Workspace& workspace) {
    std::string text;
    for (const Submission& submission : ReadSubmissions(FileSystem::Real(), workspace, "s"))
      for (const std::string& name : FileSystem::Real().List(submission.directory))
        if (name.starts_with("slurm-") || name.starts_with("history"))
          text += "== " + name + "\n" + Slurp(JoinPath(submission.directory, name));
    return text;
  }
  // The same sweep on this machine alone; computed once for all tests, as its numbers are always the same.
  const Digests& Local() {
    static std::map<std::string, Digests> known;
    const std::string sweep = Slurp(temp_ / "sweep.toml");
    const auto found = known.find(sweep);
    return found != known.end() ? found->second : known.emplace(sweep, Reference()).first->second;
  }

  // A sweep that lasts some seconds on a quiet machine: long enough to be disturbed after its first checkpoint.
  void MakeItLonger() {
    std::string sweep = Slurp(temp_ / "sweep.toml");
    const auto set = [&](const std::string& from, const std::string& to) {
      ASSERT_NE(sweep.find(from), std::string::npos) << from;
      sweep.replace(sweep.find(from), from.size(), to);
    };
    set("steps = 24", "steps = 3000");
    set("evaluate_every = 8", "evaluate_every = 1500");
    set("checkpoint_every = 4", "checkpoint_every = 100");
    std::ofstream(temp_ / "sweep.toml") << sweep;
  }
  // From now on it goes on like a sweep that was never disturbed.
  void ExpectUndisturbedResults(const Workspace& workspace) {
    EXPECT_EQ(DigestsOf(workspace), Local());
    ExpectNothingRanTwice(workspace);
    ExpectNoTrialCharged(workspace);
  }

  const Slurm slurm_{30};
  std::vector<std::string> jobs_;
  std::vector<Workspace> workspaces_;
};

}  // namespace headsweep::testing
