// Sites and nodes that make it hard: no requeue, jobs killed at their limit without a word, nodes that are lost, or come back.
#include "cluster/base/errors.h"
#include "launcher/submission_state.h"
#include "results/stage_file.h"
#include "tests/cluster/slurm/slurm_cluster.h"

namespace headsweep {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SlurmTroubleTest : public SlurmSweepTest {
 protected:
  // The job that goes on, when so many have been chained; "" after the deadline.
  std::string WaitForLink(const Workspace& workspace, int links) {
    const bool there = WaitUntil([&] { return Count(History(workspace), job_event::kChained) >= links; });
    if (there) jobs_.push_back(ReadSubmissions(FileSystem::Real(), workspace, "s").back().Ids().back());
    return there ? jobs_.back() : "";
  }
  void InSweepFile(const std::string& from, const std::string& to) {
    std::string sweep = Slurp(temp_ / "sweep.toml");
    ASSERT_NE(sweep.find(from), std::string::npos) << from;
    sweep.replace(sweep.find(from), from.size(), to);
    std::ofstream(temp_ / "sweep.toml") << sweep;
  }
};

// Stands still until the end of the scope.
class FrozenNode {
 public:
  explicit FrozenNode(int node) : node_(std::to_string(node)) { SlurmCluster::Do({"freeze-node", node_}); }
  ~FrozenNode() { Thaw(); }
  void Thaw() {
    if (!std::exchange(thawed_, true)) SlurmCluster::Do({"thaw-node", node_});
  }

 private:
  std::string node_;
  bool thawed_ = false;
};

TEST_F(SlurmTroubleTest, WhereRequeueIsRefusedJobsGoOnForEachOther) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  std::string job = Submit(workspace, {"--max-requeues", "2", "--", "--no-requeue"});
  std::vector<std::string> jobs = {job};
  for (int links = 1; links <= 2; ++links) {
    ASSERT_TRUE(WaitForNewCheckpoint(workspace));
    TellToLeave(job);
    job = WaitForLink(workspace, links);
    ASSERT_NE(job, "");
    EXPECT_EQ(WaitForEnd(jobs.back()), "FAILED") << "exit code 75";
    jobs.push_back(job);
    ASSERT_TRUE(WaitForStarts(workspace, links + 1));
  }
  // The cap counts over all of them.
  ASSERT_TRUE(WaitForNewCheckpoint(workspace));
  TellToLeave(job);
  EXPECT_EQ(WaitForEnd(job), "FAILED");
  const Finished status = Headsweep({"status", "s"}, workspace);
  EXPECT_THAT(status.output, HasSubstr("job " + job + ": over (FAILED): "));
  EXPECT_THAT(status.output, HasSubstr("already requeued 2 times, the most that --max-requeues allows"));
  // Only the first was a person's doing, and so is this one.
  ASSERT_EQ(Headsweep({"resume", "s"}, workspace).code, 0);
  jobs.push_back(LatestJob(workspace));
  EXPECT_EQ(WaitForEnd(jobs.back()), "COMPLETED");
  std::vector<std::string> begun, automatic;
  for (const JournalEvent& event : Events(workspace)) {
    if (event.type != journal::kSweepStarted) continue;
    begun.push_back(Field(event, "job"));
    automatic.push_back(Field(event, "automatic"));
  }
  EXPECT_EQ(begun, jobs);
  EXPECT_THAT(automatic, ElementsAre("no", "yes", "yes", "no"));
  ExpectUndisturbedResults(workspace);
}

// One retry for each trial, whichever of the jobs it fails in.
TEST_F(SlurmTroubleTest, RetriesCountOverAllJobsOfAChain) {
  MakeItLonger();
  InSweepFile("[grid]\n\"model.heads\" = [2, 3]", "[run]\nretries = 1\n[grid]\n\"model.heads\" = [2]");
  const Workspace workspace(temp_ / "ws");
  const std::string first = Submit(workspace, {"--", "--no-requeue"});
  ASSERT_TRUE(WaitForNewCheckpoint(workspace));
  KillTrials(workspace);
  ASSERT_TRUE(WaitForEvent(workspace, journal::kAttemptStarted, 2));
  ASSERT_TRUE(WaitForNewCheckpoint(workspace));
  TellToLeave(first);
  const std::string second = WaitForLink(workspace, 1);
  ASSERT_TRUE(WaitForEvent(workspace, journal::kAttemptStarted, 3));
  ASSERT_TRUE(WaitForNewCheckpoint(workspace));
  KillTrials(workspace);
  EXPECT_EQ(WaitForEnd(second), "FAILED");
  EXPECT_EQ(CountEvents(workspace, journal::kAttemptStarted), 3) << "its one retry was used up in the first job";
  EXPECT_THAT(Headsweep({"status", "s"}, workspace).output, HasSubstr("some trials failed"));
}

TEST_F(SlurmTroubleTest, KilledAtItsTimeLimitItIsResumedFromItsLastCheckpoints) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace);
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed, 2));
  // Trials that take too long to checkpoint. Slurm looks at limits twice a minute.
  SignalTrials(workspace, SIGSTOP);
  const ProgramResult shorter = RunProgram({"scontrol", "update", "JobId=" + job, "EndTime=now+1"}, 30, /*merge_errors=*/true);
  ASSERT_EQ(shorter.exit_code, 0) << shorter.output;
  std::string state;
  ASSERT_TRUE(WaitUntil([&] {
    SignalTrials(workspace, SIGSTOP);  // again, as Slurm wakes them for their end
    const auto now = Look(job);
    state = now ? now->state : "";
    return now && now->phase == JobPhase::kOver;
  }));
  EXPECT_EQ(state, "TIMEOUT");
  EXPECT_TRUE(WaitUntil([&] { return CountTrialProcesses(workspace.root()) == 0; })) << "orphans";
  const Finished status = Headsweep({"status", "s"}, workspace);
  EXPECT_THAT(status.output, HasSubstr("job " + job + ": over (TIMEOUT)"));
  EXPECT_THAT(status.output, HasSubstr("headsweep resume s"));
  const Finished resumed = Headsweep({"resume", "s"}, workspace);
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_EQ(WaitForEnd(LatestJob(workspace)), "COMPLETED");
  ExpectUndisturbedResults(workspace);
}

TEST_F(SlurmTroubleTest, SurvivesTheLossOfANode) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace, {"--nodes", "3"});
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed, 2));
  ASSERT_TRUE(Hosts(workspace).contains("n1"));
  SlurmCluster::Do({"kill-node", "1"});
  EXPECT_EQ(WaitForEnd(job), "COMPLETED");
  ExpectUndisturbedResults(workspace);
  EXPECT_EQ(Count(History(workspace), job_event::kStarted), 1) << "the survivors went on";
}

TEST_F(SlurmTroubleTest, ItsCoordinatorsNodeIsLostAndItIsRequeued) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace, {"--nodes", "2"});
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed));
  SlurmCluster::Do({"kill-node", "0"});
  // As a site's health checks do, long before Slurm's own time-outs.
  RunProgram({"scontrol", "update", "NodeName=n0", "State=DOWN", "Reason=dead"}, 30);
  EXPECT_EQ(WaitForEnd(job), "COMPLETED");
  ExpectUndisturbedResults(workspace);
  EXPECT_EQ(Count(History(workspace), job_event::kStarted), 2);
  EXPECT_THAT(Logs(workspace), HasSubstr("on n[1-2]"));
}

// The batch script is gone with the node, so an agent that is left makes the job that goes on; two are left, one makes it.
TEST_F(SlurmTroubleTest, ItsCoordinatorsNodeIsLostWhereRequeueIsRefused) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace, {"--nodes", "3", "--", "--no-requeue"});
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed));
  SlurmCluster::Do({"kill-node", "0"});
  RunProgram({"scontrol", "update", "NodeName=n0", "State=DOWN", "Reason=dead"}, 30);
  const std::string next = WaitForLink(workspace, 1);
  ASSERT_NE(next, "");
  EXPECT_EQ(WaitForEnd(job), "CANCELLED");
  SlurmCluster::Do({"start-node", "0"});  // it wants three nodes again
  RunProgram({"scontrol", "update", "NodeName=n0", "State=RESUME"}, 30);
  EXPECT_EQ(WaitForEnd(next), "COMPLETED");
  ExpectUndisturbedResults(workspace);
  EXPECT_EQ(Count(History(workspace), job_event::kChained), 1);
  EXPECT_EQ(Count(History(workspace), job_event::kStarted), 2);
}

// Its trials go on elsewhere; when the node comes back, what it still has of the job is of the past.
TEST_F(SlurmTroubleTest, ANodeThatIsCutOffAndComesBackChangesNothing) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace, {"--nodes", "3"});
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed, 2));
  ASSERT_TRUE(Hosts(workspace).contains("n1"));
  FrozenNode cut(1);
  ASSERT_TRUE(WaitUntil([&] {
    const std::vector<JournalEvent> events = Events(workspace);
    return std::any_of(events.begin(), events.end(), [](const JournalEvent& event) { return event.attempt == 2; });
  })) << "the trial of n1, elsewhere";
  cut.Thaw();
  EXPECT_EQ(WaitForEnd(job), "COMPLETED");
  EXPECT_TRUE(WaitUntil([&] { return CountTrialProcesses(workspace.root()) == 0; })) << "orphans";
  ExpectUndisturbedResults(workspace);
  EXPECT_EQ(Count(History(workspace), job_event::kStarted), 1) << "the others went on";
}

// It comes back when the job is on its way to another start: neither it nor its batch script makes one more of it.
TEST_F(SlurmTroubleTest, ACoordinatorThatIsCutOffAndComesBackLeavesTheJobAlone) {
  MakeItLonger();
  const Workspace workspace(temp_ / "ws");
  const std::string job = Submit(workspace, {"--nodes", "2"});
  ASSERT_TRUE(WaitForEvent(workspace, journal::kCheckpointed));
  FrozenNode cut(0);
  // As a site's health checks do: nothing new there, and it is taken for dead.
  for (const char* state : {"State=DRAIN", "State=DOWN"})
    RunProgram({"scontrol", "update", "NodeName=n0", state, "Reason=silent"}, 30);
  ASSERT_TRUE(WaitUntil([&] { return Count(History(workspace), job_event::kRequeued) > 0; })) << "by the other agent";
  cut.Thaw();
  EXPECT_EQ(WaitForEnd(job), "COMPLETED");
  EXPECT_TRUE(WaitUntil([&] { return CountTrialProcesses(workspace.root()) == 0; })) << "orphans";
  ExpectUndisturbedResults(workspace);
  EXPECT_EQ(Count(History(workspace), job_event::kStarted), 2) << "one start for one requeue";
  EXPECT_EQ(Count(History(workspace), job_event::kChained), 0);
}

TEST_F(SlurmTroubleTest, WhatWasStoppedEarlyIsFinishedByAnotherJob) {
  MakeItLonger();
  InSweepFile("[grid]\n", "[early_stopping]\nrule = \"successive-halving\"\nmin_steps = 1000\n[grid]\n");
  InSweepFile("evaluate_every = 1500", "evaluate_every = 500");
  const Workspace workspace(temp_ / "ws");
  EXPECT_EQ(WaitForEnd(Submit(workspace)), "COMPLETED");
  ASSERT_EQ(CountEvents(workspace, journal::kEarlyStopped), 1);
  const Finished resumed = Headsweep({"resume", "s", "--finish-early-stopped"}, workspace);
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_EQ(WaitForEnd(LatestJob(workspace)), "COMPLETED");
  EXPECT_EQ(CountEvents(workspace, journal::kRetried), 1);
  EXPECT_EQ(FinishedIn(Events(workspace)).size(), 4u);
}

// Whoever kills a test program leaves no cluster behind, with or without jobs on it.
TEST(SlurmCluster, IsGoneWithTheProgramThatItWasFor) {
  if (const std::string missing = SlurmCluster::Missing(); !missing.empty()) GTEST_SKIP() << missing;
  const TempDir temp;
  HeadsweepProgram program({}, temp / "log", {}, {ProgramPath(), "--gtest_also_run_disabled_tests", "--gtest_filter=*WaitsForItsEnd"});
  const std::string directory = SlurmCluster::DirectoryOf(program.pid());
  const auto processes = [&] {  // of that cluster: daemons, and what they started
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc"))
      count += Slurp(entry.path() / "environ").find("SLURM_CONF=" + directory + "/") != std::string::npos;
    return count;
  };
  ASSERT_TRUE(WaitUntil([&] { return program.output().find("its job runs") != std::string::npos; })) << program.output();
  EXPECT_GE(processes(), 6) << "munged, a controller, three nodes, a job";
  program.Signal(SIGKILL);
  EXPECT_EQ(program.Wait().code, 128 + SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return !std::filesystem::exists(directory); }));
  EXPECT_TRUE(WaitUntil([&] { return processes() == 0; })) << processes();
}

// What that test runs and kills.
TEST(SlurmCluster, DISABLED_WaitsForItsEnd) {
  ASSERT_EQ(SlurmCluster::Get().problem(), "");
  const TempDir temp;
  std::ofstream(temp / "job.sh") << "#!/bin/sh\n#SBATCH --nodes=3 --output=/dev/null\nsrun sleep 1000\n";
  const SlurmReply job = Slurm(30).Submit(temp / "job.sh", temp.path());
  ASSERT_EQ(job.outcome, SlurmOutcome::kDone) << job.text;
  ASSERT_TRUE(WaitUntil([&] {
    const JobsAnswer now = Slurm(30).Jobs({job.text});
    return now.known && !now.jobs.empty() && now.jobs.front().state == "RUNNING";
  }));
  std::printf("its job runs\n");
  std::fflush(stdout);
  ::pause();
}

}  // namespace
}  // namespace headsweep
