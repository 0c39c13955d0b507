// Sweeps on a real Slurm cluster of three nodes: submitted, disturbed in every way that Slurm knows, and ending with the
// bits of a run on this machine alone.
#include "cluster/base/errors.h"
#include "results/results_file.h"
#include "results/stage_file.h"
#include "tests/cluster/slurm/slurm_cluster.h"

namespace headsweep {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(SlurmSweepTest, OverThreeNodesItEqualsTheLocalRun) {
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace, {"--nodes", "3"});
  EXPECT_EQ(WaitForEnd(job), "COMPLETED");
  ExpectUndisturbedResults(workspace);
  EXPECT_EQ(Hosts(workspace), (std::set<std::string>{"n0", "n1"})) << "two trials, on two of the nodes";
  // Logs, journal and results name nodes and jobs.
  EXPECT_THAT(Logs(workspace), HasSubstr(fmt::format("job {} on n[0-2]", job)));
  EXPECT_EQ(Field(Events(workspace).front(), "job"), job);
  EXPECT_EQ(Headsweep({"collect", "s"}, workspace).code, 0);
  const ResultsFile results(workspace.Results("s"));
  std::set<std::string> hosts;
  int rows = 0;
  results.ForEachRow<Provenance>(ProvenanceSchema(), [&](const auto&, const auto&, const Provenance& row) {
    EXPECT_EQ(row.job, job);
    EXPECT_EQ(row.job_restart, 0);
    hosts.insert(row.host);
    ++rows;
  });
  EXPECT_EQ(rows, 4);
  EXPECT_EQ(hosts, Hosts(workspace));
  ASSERT_EQ(results.attempts.size(), 4u);
  for (const AttemptRecord& attempt : results.attempts) EXPECT_EQ(attempt.job, job) << attempt.host;
  const Finished status = Headsweep({"status", "s"}, workspace);
  EXPECT_THAT(status.output, HasSubstr(fmt::format("job {}: over (COMPLETED)", job)));
}

TEST_F(SlurmSweepTest, AnArrayOfJobsDrainsOneSweep) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const Finished too_many = Headsweep({"submit", temp_ / "sweep.toml", "--array", "64"}, workspace);
  EXPECT_EQ(too_many.code, 2);
  EXPECT_THAT(too_many.output, HasSubstr("takes 63 at most (MaxArraySize = 64)"));
  const Finished too_large = Headsweep({"submit", temp_ / "sweep.toml", "--nodes", "4"}, workspace);
  EXPECT_EQ(too_large.code, 2);
  EXPECT_THAT(too_large.output, HasSubstr("partition main has 3 nodes, so the job would wait for ever"));
  const std::string job = Submit(workspace, {"--array", "2"});
  for (const char* task : {"_0", "_1"}) EXPECT_EQ(WaitForEnd(job + task), "COMPLETED");
  EXPECT_EQ(DigestsOf(workspace), Local());
}

// The signal ahead of the limit is Slurm's own; two more are sent by hand, since Slurm looks at limits twice a minute.
TEST_F(SlurmSweepTest, LongerThanItsTimeLimitItIsRequeuedUntilItIsDone) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace, {"--time", "1", "--lead", "45"});
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed));
  // A trial that takes long: it stands still until Slurm has spoken.
  SignalTrials(workspace, SIGSTOP);
  ASSERT_TRUE(WaitForEvent(workspace, journal::kStopRequested));
  SignalTrials(workspace, SIGCONT);
  for (int requeues = 1; requeues <= 3; ++requeues) {
    ASSERT_TRUE(WaitForStarts(workspace, requeues + 1)) << requeues;
    EXPECT_EQ(Count(History(workspace), job_event::kRequeued), requeues);
    if (requeues == 3) break;
    ASSERT_TRUE(WaitForNewCheckpoint(workspace));
    TellToLeave(job);
  }
  EXPECT_EQ(WaitForEnd(job), "COMPLETED");
  ExpectUndisturbedResults(workspace);
  // Nothing was computed that was not also saved: every stop is at a checkpoint.
  for (const JournalEvent& event : Events(workspace)) {
    if (event.type == journal::kAttemptEnded) {
      EXPECT_THAT(Field(event, "outcome"), ::testing::AnyOf("finished", "stopped"));
    }
  }
}

TEST_F(SlurmSweepTest, AfterScancelResumeGoesOn) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace);
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed));
  RunProgram({"scancel", job}, 30);
  EXPECT_EQ(WaitForEnd(job), "CANCELLED");
  EXPECT_EQ(Count(History(workspace), job_event::kRequeued), 0) << "who cancels a job wants it to end";
  const Finished status = Headsweep({"status", "s"}, workspace);
  EXPECT_THAT(status.output, HasSubstr("job " + job + ": over (CANCELLED)"));
  EXPECT_THAT(status.output, HasSubstr("headsweep resume s"));
  const Finished resumed = Headsweep({"resume", "s"}, workspace);
  EXPECT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("submitted again"));
  EXPECT_EQ(WaitForEnd(LatestJob(workspace)), "COMPLETED");
  ExpectUndisturbedResults(workspace);
}

TEST_F(SlurmSweepTest, RequeuedByTheAdministratorItGoesOn) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace);
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed));
  RunProgram({"scontrol", "requeue", job}, 30);
  EXPECT_EQ(WaitForEnd(job), "COMPLETED");
  ExpectUndisturbedResults(workspace);
  EXPECT_EQ(Count(History(workspace), job_event::kStarted), 2);
  std::set<int> restarts;  // of the job, which stays the same
  for (const std::string& stage : FinishedIn(Events(workspace))) {
    const StageFile result = ReadStageFile(workspace.TrialResult(stage));
    EXPECT_EQ(result.provenance.job, job);
    restarts.insert(result.provenance.job_restart);
  }
  EXPECT_THAT(restarts, ::testing::Contains(1));
}

TEST_F(SlurmSweepTest, PreemptedItIsRequeuedAndGoesOn) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace, {"--partition", "scavenge"});
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed));
  const SlurmReply urgent = SubmitUrgent();
  ASSERT_EQ(urgent.outcome, SlurmOutcome::kDone) << urgent.text;
  EXPECT_EQ(WaitForEnd(urgent.text), "COMPLETED");
  EXPECT_EQ(WaitForEnd(job), "COMPLETED");
  ExpectUndisturbedResults(workspace);
  EXPECT_EQ(Count(History(workspace), job_event::kStarted), 2);
}

TEST_F(SlurmSweepTest, SubmittedTwiceItRunsOnce) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace);
  const Finished refused = Headsweep({"submit", temp_ / "sweep.toml"}, workspace);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("submitted already: job " + job));
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed));
  const std::string second = Submit(workspace, {"--also"});
  EXPECT_EQ(WaitForEnd(second), "FAILED") << "the first has the sweep";
  EXPECT_EQ(WaitForEnd(job), "COMPLETED");
  ExpectUndisturbedResults(workspace);
}

TEST_F(SlurmSweepTest, CancelledItCheckpointsAndDoesNotComeBack) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace);
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed));
  EXPECT_EQ(Headsweep({"cancel", "s"}, workspace).code, 0);
  EXPECT_EQ(WaitForEnd(job), "FAILED") << "exit code 75";
  EXPECT_THAT(Logs(workspace), HasSubstr("cancelled by"));
  EXPECT_EQ(Count(History(workspace), job_event::kRequeued), 0);
  // One that still waits is gone at once.
  const Finished held = Headsweep({"submit", temp_ / "sweep.toml", "--", "--hold"}, workspace);
  ASSERT_EQ(held.code, 0) << held.output;
  const std::string waiting = LatestJob(workspace);
  EXPECT_THAT(Headsweep({"status", "s"}, workspace).output, HasSubstr("pending (JobHeldUser)"));
  EXPECT_EQ(Headsweep({"cancel", "s"}, workspace).code, 0);
  EXPECT_EQ(WaitForEnd(waiting), "CANCELLED");
}

// A job that fails again and again is given up, with the reason.
TEST_F(SlurmSweepTest, AgentsThatDieAtOnceAreNotStartedForEver) {
  const Workspace workspace(temp_ / "ws");
  FileSystem::Real().CreateDirectories(temp_ / "config/headsweep");
  std::ofstream(temp_ / "config/headsweep/cluster.toml") << "mpi = \"no_such_plugin\"\n";
  const std::string job = Submit(workspace);
  EXPECT_EQ(WaitForEnd(job), "FAILED");
  EXPECT_EQ(Count(History(workspace), job_event::kStarted), 3);
  const Finished status = Headsweep({"status", "s"}, workspace);
  EXPECT_THAT(status.output, HasSubstr("3 runs in a row ended without a new checkpoint or result"));
}

TEST_F(SlurmSweepTest, TheDoctorLooksFromTheNodes) {
  const Workspace workspace(temp_ / "ws");
  const Finished doctor = Headsweep({"doctor", "--cluster", "--nodes", "2", "--json"}, workspace);
  EXPECT_EQ(doctor.code, 0) << doctor.output;
  EXPECT_THAT(doctor.output, HasSubstr("main (default): 3 nodes (3 idle) with 4 CPUs and gpu:fake:2, limit infinite"));
  EXPECT_THAT(doctor.output, HasSubstr("what one node writes and renames, the others read"));
  EXPECT_THAT(doctor.output, HasSubstr("srun --mpi=pmix is there"));
  EXPECT_THAT(doctor.output, HasSubstr("under srun --mpi=pmix a message went round 2 nodes (Open MPI"));
  EXPECT_TRUE(FileSystem::Real().List(workspace.root()).empty()) << "it leaves nothing behind";
  // A plugin that this MPI does not understand.
  FileSystem::Real().CreateDirectories(temp_ / "config/headsweep");
  std::ofstream(temp_ / "config/headsweep/cluster.toml") << "mpi = \"none\"\n";
  const Finished mismatch = Headsweep({"doctor", "--cluster", "--nodes", "2"}, workspace);
  EXPECT_EQ(mismatch.code, 1) << mismatch.output;
  EXPECT_THAT(mismatch.output, HasSubstr("under srun --mpi=none 0 of 2 nodes could exchange messages"));
  EXPECT_THAT(mismatch.output, HasSubstr("`mpi` in cluster.toml"));
}

TEST_F(SlurmSweepTest, HostileNamesReachNoShell) {
  const std::string hostile = "$(touch canary) `touch canary` 'x' \"y\" ;touch canary; \\ * %j ünï 大";
  const std::string folder = temp_ / "-rf\nin " + hostile;
  FileSystem::Real().CreateDirectories(folder);
  const std::string sweep = folder + "/-n " + hostile + "\n.toml";
  std::string text = Slurp(temp_ / "sweep.toml");
  text.replace(text.find("\"s\""), 3, "'''sweep $(touch canary) \"`touch canary`\" ;é'''");
  std::ofstream(sweep) << text;
  std::filesystem::copy_file(temp_ / "text.txt", folder + "/text.txt");
  const Workspace workspace(folder + "/ws");
  workspaces_.push_back(workspace);
  const Finished submitted =
      Headsweep({"submit", sweep, "--no-report", "--slots", "1", "--nodes", "2", "--time", "10", "--", "--mail-user=" + hostile},
                workspace);
  ASSERT_EQ(submitted.code, 0) << submitted.output;
  const std::string name = workspace.Sweeps(FileSystem::Real()).at(0);
  const Submission submission = ReadSubmissions(FileSystem::Real(), workspace, name).at(0);
  jobs_.push_back(submission.record.job);
  EXPECT_EQ(WaitForEnd(submission.record.job), "COMPLETED");
  EXPECT_EQ(DigestsOf(workspace, name), Local());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(temp_.path()))
    EXPECT_NE(entry.path().filename(), "canary") << entry.path();
  EXPECT_FALSE(std::filesystem::exists("canary"));
  EXPECT_THAT(Headsweep({"logs", name}, workspace).output, HasSubstr("everything is done"));
}

// A squeue that fails or hangs says nothing about the job.
TEST_F(SlurmSweepTest, WithoutAnAnswerNothingIsSubmittedAgain) {
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace, {"--", "--hold"});
  FileSystem::Real().CreateDirectories(temp_ / "bin");
  const ScopedVariable path("PATH", (temp_ / "bin" + ":" + std::getenv("PATH")).c_str());
  const ScopedVariable timeout("HEADSWEEP_SLURM_TIMEOUT", "1");
  for (const char* body : {"echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "exec sleep 100",
                           "echo; exit 1"}) {
    std::ofstream(temp_ / "bin/squeue") << "#!/bin/sh\n" << body << "\n";
    std::filesystem::permissions(temp_ / "bin/squeue", std::filesystem::perms::all);
    EXPECT_THAT(Headsweep({"status", "s"}, workspace).output, HasSubstr("job " + job + ": unknown")) << body;
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"submit", temp_ / "sweep.toml"}, std::vector<std::string>{"resume", "s"}}) {
      const Finished refused = Headsweep(command, workspace);
      EXPECT_NE(refused.code, 0) << body;
      EXPECT_THAT(refused.output, HasSubstr("nothing is submitted")) << body;
    }
  }
  EXPECT_EQ(ReadSubmissions(FileSystem::Real(), workspace, "s").size(), 1u);
}

// A killed controller forgets its last seconds: it may start a running job a second time. The last test, as the numbers
// of jobs that it has forgotten come again.
TEST_F(SlurmSweepTest, AKilledControllerCostsNothing) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace);
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed));
  // Frozen, so that it does not end meanwhile; and not before the controller has written down the job's number, which
  // another job would get otherwise.
  SignalTrials(workspace, SIGSTOP);
  ASSERT_TRUE(SlurmCluster::Get().WaitForSavedState(job));
  SlurmCluster::Do({"kill-controller"});
  const Finished blind = [&] {
    const ScopedVariable timeout("HEADSWEEP_SLURM_TIMEOUT", "2");
    return Headsweep({"status", "s"}, workspace);
  }();
  EXPECT_THAT(blind.output, HasSubstr("job " + job + ": unknown"));
  SlurmCluster::Do({"start-controller"});
  SignalTrials(workspace, SIGCONT);
  WaitForEnd(job);
  const Finished status = Headsweep({"status", "s", "--json"}, workspace);
  if (json::parse(status.output)["state"] != "done") {  // Slurm has ended one of the two starts, or both
    ASSERT_EQ(Headsweep({"resume", "s"}, workspace).code, 0);
    EXPECT_EQ(WaitForEnd(LatestJob(workspace)), "COMPLETED");
  }
  ExpectUndisturbedResults(workspace);
}

}  // namespace
}  // namespace headsweep
