// Whole sweeps through the real `headsweep`, with fake trainers that go wrong in every way we know.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "cluster/base/run_program.h"
#include "launcher/journal.h"
#include "tests/launcher/launcher_fixture.h"
#include "tests/support/headsweep_program.h"

namespace headsweep {
namespace {

using namespace testing;
using nlohmann::json;
using Environment = std::vector<std::pair<std::string, std::string>>;

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() : workspace_(temp_ / "runs") {
    WriteSmallCorpus(temp_ / "text.txt", 300);
    WriteSweep(2);
    environment_ = {
        {"HEADSWEEP_TRAINER", FakeTrainerPath()}, {"FAKE_EVENTS", Events()}, {"HEADSWEEP_KILL_GRACE", "0.3"}};
  }

  // `seeds` training stages, each with one pruning stage.
  void WriteSweep(int seeds, const std::string& name = "s", const std::string& more = "") {
    std::ofstream(temp_ / "sweep.toml") << "name = \"" << name << "\"\n"
                                        << "[task]\ncorpus = \"./text.txt\"\nvocabulary = 100\nlength = 16\n"
                                        << "[model]\nlayers = 1\nembed = 16\nheads = 2\n"
                                        << "[train]\nsteps = 6\nbatch = 4\n"
                                        << "[grid]\nseed = { count = " << seeds << " }\n"
                                        << "[prune]\norder = [\"importance\"]\n"
                                        << more;
  }

  std::string Events() const { return temp_ / "events"; }
  void Set(const std::string& name, const std::string& value) { environment_.emplace_back(name, value); }
  void Unset(const std::string& name) {
    std::erase_if(environment_, [&](const auto& entry) { return entry.first == name; });
  }

  std::unique_ptr<HeadsweepProgram> Start(std::vector<std::string> arguments,
                                          const std::vector<std::string>& under = {}) {
    arguments.insert(arguments.end(), {"--workspace", workspace_.root()});
    return std::make_unique<HeadsweepProgram>(arguments, temp_ / ("log-" + std::to_string(++programs_)),
                                              environment_, under);
  }
  std::unique_ptr<HeadsweepProgram> StartRun() {
    return Start({"run", temp_ / "sweep.toml", "--no-report", "--slots", "2"});
  }
  Finished Run() { return StartRun()->Wait(); }
  Finished Resume() { return Start({"resume", "--no-report", "--slots", "2"})->Wait(); }
  json Status() {
    const Finished status = Start({"status", "--json"})->Wait();
    EXPECT_EQ(status.code, 0) << status.output;
    return json::parse(status.output);
  }

  Finished Command(std::vector<std::string> arguments) { return Start(std::move(arguments))->Wait(); }
  std::string StageInState(const std::string& state) {
    const json status = Status();
    for (const json& stage : status["stages"])
      if (stage["state"] == state) return stage["id"];
    ADD_FAILURE() << "no stage is " << state << ": " << status.dump(1);
    return "";
  }

  bool WaitForEvent(const std::string& what, int count) {
    return WaitUntil([&] { return CountFakeEvents(Events(), what) >= count; });
  }
  std::set<std::string> FinishedStages() const {
    std::set<std::string> stages;
    for (const FakeEvent& event : ReadFakeEvents(Events()))
      if (event.what == "finish") stages.insert(event.stage);
    return stages;
  }

  TempDir temp_;
  Workspace workspace_;
  Environment environment_;
  int programs_ = 0;
};

TEST_F(SessionTest, EveryStageRunsOnceAndRunningAgainRunsNothing) {
  const Finished first = Start({"run", temp_ / "sweep.toml"})->Wait();
  EXPECT_EQ(first.code, 0) << first.output;
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 4);
  EXPECT_EQ(FinishedStages().size(), 4u);
  EXPECT_TRUE(FileSystem::Real().Exists(workspace_.Results("s")));
  EXPECT_TRUE(FileSystem::Real().Exists(workspace_.Report("s")));
  EXPECT_NE(first.output.find(workspace_.Report("s")), std::string::npos);
  const Finished again = Run();
  EXPECT_EQ(again.code, 0) << again.output;
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 4);
  EXPECT_EQ(Status()["state"], "done");
}

// Programs depend on these names: none goes away.
TEST_F(SessionTest, JsonOutputsAreOneObjectWithTheMembersThatTheHelpPromises) {
  ASSERT_EQ(Start({"run", temp_ / "sweep.toml"})->Wait().code, 0);
  const std::string stage = *FinishedStages().begin();
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> outputs = {
      {{"status"}, {"sweep", "state", "counts", "stages", "launcher", "launchers", "results", "report"}},
      {{"watch"}, {"sweep", "state", "counts", "stages"}},
      {{"explain", stage}, {"sweep", "id", "description", "state", "why", "attempts"}},
      {{"gc"}, {"bytes", "deleted", "items"}},
      {{"collect"}, {"sweep", "results", "stages", "stages_read", "problems"}},
      {{"data", "list"}, {"known", "prepared"}},
  };
  for (const auto& [arguments, members] : outputs) {
    std::vector<std::string> command = arguments;
    command.push_back("--json");
    const Finished end = Command(command);
    EXPECT_EQ(end.code, 0) << end.output;
    const json parsed = json::parse(end.output, nullptr, false);
    ASSERT_TRUE(parsed.is_object()) << arguments[0] << ": " << end.output;
    for (const std::string& member : members) EXPECT_TRUE(parsed.contains(member)) << arguments[0] << " has no " << member;
    EXPECT_EQ(std::count(end.output.begin(), end.output.end(), '\n'), 1) << "one line, for `while read`";
  }
  const json known = json::parse(Command({"data", "list", "--json"}).output);
  EXPECT_EQ(known["prepared"].size(), 1u);
  EXPECT_EQ(json::parse(Command({"collect", "--json"}).output)["stages_read"], 4);
}

TEST_F(SessionTest, TrialsRunOneAfterAnotherWhereMemoryHoldsNoTwo) {
  Set("HEADSWEEP_MEMORY_LIMIT", "1000");
  Set("FAKE_GATE", temp_ / "gate");
  const auto program = StartRun();
  ASSERT_TRUE(WaitForEvent("step-1", 1));
  const std::string ready = StageInState("ready");
  EXPECT_TRUE(WaitUntil([&] { return Command({"explain", ready}).output.find("waits for memory: 1 of 2") != std::string::npos; }));
  std::ofstream(temp_ / "gate").close();
  const Finished run = program->Wait();
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_NE(run.output.find("memory, not slots, limits how many trials run at once: 1 of 2 slots"), std::string::npos)
      << run.output;
  int running = 0;
  for (const FakeEvent& event : ReadFakeEvents(Events())) {
    running += event.what == "start" ? 1 : (event.what == "finish" ? -1 : 0);
    EXPECT_LE(running, 1);
  }
  EXPECT_EQ(FinishedStages().size(), 4u);
}

TEST_F(SessionTest, ASweepThatGrowsRunsOnlyWhatIsNewAndASecondSweepSharesTrials) {
  EXPECT_EQ(Run().code, 0);
  WriteSweep(3);
  EXPECT_EQ(Run().code, 0);
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 6);
  WriteSweep(3, "other");
  EXPECT_EQ(Run().code, 0);
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 6);
}

TEST_F(SessionTest, ASweepForGpusRunsOnThemOrSaysWhyItCannot) {
  WriteSweep(1, "s", "[run]\ndevice = \"cuda\"\n");
  Set("CUDA_VISIBLE_DEVICES", "6,7");
  const Finished without = Start({"run", temp_ / "sweep.toml", "--no-report"})->Wait();
  EXPECT_EQ(without.code, 2) << without.output;
  EXPECT_NE(without.output.find("the fake driver sees no GPU; fake more of them"), std::string::npos)
      << without.output;
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 0);
  Set("FAKE_GPUS", "8");
  const Finished with = Start({"run", temp_ / "sweep.toml", "--no-report"})->Wait();
  EXPECT_EQ(with.code, 0) << with.output;
  EXPECT_EQ(CountFakeEvents(Events(), "gpus-6"), 2) << "training, then pruning, on the first slot";
}

TEST_F(SessionTest, ACrashIsRetriedFromTheCheckpoint) {
  Set("FAKE_DIE_AT", "2");
  Set("FAKE_ATTEMPT", "1");
  WriteSweep(1);
  const Finished run = Run();
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 4);
  EXPECT_EQ(CountFakeEvents(Events(), "step-1"), 2) << "the second attempt goes on at step 3";
  EXPECT_NE(run.output.find("retry"), std::string::npos);
}

TEST_F(SessionTest, AHangIsKilledAndRetried) {
  Set("FAKE_HANG_AT", "1");
  Set("FAKE_ONCE", temp_ / "once");
  Set("HEADSWEEP_HANG_FLOOR", "1");
  WriteSweep(1);
  const Finished run = Run();
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 3);
  EXPECT_NE(run.output.find("hang"), std::string::npos) << run.output;
}

TEST_F(SessionTest, AConfigurationFailureIsNotRetriedAndSkipsWhatDependsOnIt) {
  Set("FAKE_FAIL_AT", "0:configuration");
  Set("FAKE_ONCE", temp_ / "once");
  const Finished run = Run();
  EXPECT_EQ(run.code, 1) << run.output;
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 3);
  const json status = Status();
  EXPECT_EQ(status["state"], "failed") << status;
  EXPECT_EQ(status["counts"]["finished"], 2);
  EXPECT_EQ(status["counts"]["failed"], 1);
  Unset("FAKE_FAIL_AT");
  const Finished resumed = Resume();
  EXPECT_EQ(resumed.code, 0) << resumed.output << "a person's resume tries again what failed";
  EXPECT_EQ(FinishedStages().size(), 4u);
}

TEST_F(SessionTest, ExitZeroWithoutAWordAndAClaimWithoutAResultAreFailures) {
  WriteSweep(1);
  Set("FAKE_ATTEMPT", "1");
  Set("FAKE_EXIT_AT", "3:0");
  EXPECT_EQ(Run().code, 0);
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 4);
  Unset("FAKE_EXIT_AT");
  Set("FAKE_CLAIM", "1");
  WriteSweep(1, "claims", "[[include]]\nseed = 77\n");
  const Finished run = Run();
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 8);
}

TEST_F(SessionTest, CtrlCCheckpointsAndResumeFinishesWithoutRunningAnythingTwice) {
  Set("FAKE_GATE", temp_ / "gate");
  Set("FAKE_GATE_AT", "3");
  auto run = StartRun();
  ASSERT_TRUE(WaitForEvent("step-3", 2));
  run->Signal(SIGINT);
  const Finished stopped = run->Wait();
  EXPECT_EQ(stopped.code, 75) << stopped.output;
  EXPECT_NE(stopped.output.find("checkpointing 2 trials (Ctrl-C again to kill them)"), std::string::npos)
      << stopped.output;
  EXPECT_NE(stopped.output.find("headsweep resume s"), std::string::npos) << stopped.output;
  EXPECT_EQ(CountTrialProcesses(workspace_.root()), 0);
  EXPECT_EQ(Status()["state"], "stopped");
  Unset("FAKE_GATE");
  const Finished resumed = Resume();
  EXPECT_EQ(resumed.code, 0) << resumed.output;
  for (const std::string& stage : FinishedStages()) {
    EXPECT_EQ(CountFakeEvents(Events(), "finish", stage), 1);
    EXPECT_EQ(CountFakeEvents(Events(), "step-1", stage), 1);
  }
  EXPECT_EQ(FinishedStages().size(), 4u);
}

TEST_F(SessionTest, AheadOfTheTimeLimitItCheckpointsAndLeavesResumable) {
  Set("FAKE_GATE", temp_ / "gate");
  const Finished limited = Start({"run", temp_ / "sweep.toml", "--no-report", "--time-limit", "0:04"})->Wait();
  EXPECT_EQ(limited.code, 75) << limited.output;
  EXPECT_NE(limited.output.find("the allocation's time limit"), std::string::npos) << limited.output;
  EXPECT_EQ(CountFakeEvents(Events(), "finish"), 0);
  EXPECT_EQ(Start({"run", temp_ / "sweep.toml", "--time-limit", "soon"})->Wait().code, 2);
  std::ofstream(temp_ / "gate") << "open";
  EXPECT_EQ(Resume().code, 0);
  EXPECT_EQ(CountFakeEvents(Events(), "step-1"), 4) << "the first step is not repeated";
}

TEST_F(SessionTest, CancelledFromElsewhereItCheckpointsAndResumes) {
  Set("FAKE_GATE", temp_ / "gate");
  Set("FAKE_GATE_AT", "3");
  auto run = StartRun();
  ASSERT_TRUE(WaitForEvent("step-3", 2));
  const Finished cancel = Command({"cancel", "s"});
  EXPECT_EQ(cancel.code, 0) << cancel.output;
  const Finished stopped = run->Wait();
  EXPECT_EQ(stopped.code, 75) << stopped.output;
  EXPECT_NE(stopped.output.find("asked by "), std::string::npos) << stopped.output;
  EXPECT_EQ(Status()["state"], "stopped");
  const Finished again = Command({"cancel", "s"});
  EXPECT_EQ(again.code, 2) << "nobody is there to be asked: " << again.output;
  Unset("FAKE_GATE");
  EXPECT_EQ(Resume().code, 0) << "the old request does not stop the new launcher";
  EXPECT_EQ(FinishedStages().size(), 4u);
}

TEST_F(SessionTest, APausedSweepStartsNothingUntilItIsContinued) {
  Set("FAKE_GATE", temp_ / "gate");
  Set("FAKE_GATE_AT", "3");
  auto run = StartRun();
  ASSERT_TRUE(WaitForEvent("step-3", 2));
  EXPECT_EQ(Command({"pause", "s"}).code, 0);
  std::ofstream(temp_ / "gate") << "open";
  ASSERT_TRUE(WaitForEvent("finish", 2));
  ASSERT_TRUE(
      WaitUntil([&] { return Status()["counts"]["finished"] == 2 && Status()["counts"]["running"] == 0; }));
  EXPECT_EQ(Status()["live"]["paused"], true);
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 2);
  const std::string ready = StageInState("ready");
  const Finished why = Command({"explain", ready});
  EXPECT_NE(why.output.find("headsweep continue s"), std::string::npos) << why.output;
  EXPECT_EQ(Command({"continue", "s"}).code, 0);
  const Finished finished = run->Wait();
  EXPECT_EQ(finished.code, 0) << finished.output;
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 4);
}

TEST_F(SessionTest, AFailedStageIsRetriedOnRequestWhileTheRestRuns) {
  Set("FAKE_FAIL_AT", "0:configuration");
  Set("FAKE_ONCE", temp_ / "once");
  Set("FAKE_GATE", temp_ / "gate");
  Set("FAKE_GATE_AT", "3");
  auto run = StartRun();
  ASSERT_TRUE(WaitForEvent("start", 1));
  ASSERT_TRUE(WaitUntil([&] { return Status()["counts"]["failed"] == 1; }));
  ASSERT_TRUE(WaitForEvent("step-3", 1));
  const std::string failed = StageInState("failed");
  const Finished why = Command({"explain", failed});
  EXPECT_NE(why.output.find("never retried by itself"), std::string::npos) << why.output;
  EXPECT_EQ(Command({"retry", "s", failed}).code, 0);
  ASSERT_TRUE(WaitForEvent("step-3", 2));
  const Finished watch = [&] {
    auto watching = Start({"watch", "s"});
    std::ofstream(temp_ / "gate") << "open";
    return watching->Wait();
  }();
  EXPECT_EQ(watch.code, 0) << watch.output;
  EXPECT_NE(watch.output.find("slots "), std::string::npos) << watch.output;
  EXPECT_EQ(run->Wait().code, 0);
  EXPECT_EQ(FinishedStages().size(), 4u);
}

TEST_F(SessionTest, TrialsThatDoWorseAreStoppedEarlyForGoodUntilAPersonWantsThem) {
  const std::string rule = "[early_stopping]\nrule = \"successive-halving\"\nmin_steps = 2\n";
  Set("FAKE_EVALUATE", "1");
  WriteSweep(1, "s", rule);
  ASSERT_EQ(Run().code, 0);
  Set("FAKE_GATE", temp_ / "never");  // after three steps a trial waits, and hears that it is to stop
  Set("FAKE_GATE_AT", "3");
  WriteSweep(3, "s", rule);
  const Finished run = Run();
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_NE(run.output.find("every stage is done; 4 were stopped early"), std::string::npos) << run.output;
  EXPECT_EQ(Status()["state"], "done");
  EXPECT_EQ(Status()["counts"]["early-stopped"], 4) << "two trials and what was to be pruned";
  EXPECT_EQ(FinishedStages().size(), 2u);
  EXPECT_EQ(Resume().code, 0);
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 4) << "the verdict is kept";
  Unset("FAKE_GATE");
  const Finished finished = Start({"resume", "--no-report", "--finish-early-stopped"})->Wait();
  EXPECT_EQ(finished.code, 0) << finished.output;
  EXPECT_EQ(FinishedStages().size(), 6u) << finished.output;
}

TEST_F(SessionTest, UnderNohupAClosedTerminalStopsNothing) {
  Set("FAKE_GATE", temp_ / "gate");
  auto run = Start({"run", temp_ / "sweep.toml", "--no-report"}, {FindProgram("nohup")});
  ASSERT_TRUE(WaitForEvent("step-1", 1));
  run->Signal(SIGHUP);
  std::ofstream(temp_ / "gate") << "open";
  const Finished end = run->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
}

TEST_F(SessionTest, ASecondCtrlCKillsWhatDoesNotListen) {
  Set("FAKE_GATE", temp_ / "gate");
  Set("FAKE_IGNORE_TERM", "1");
  Set("FAKE_SPAWN", "1");
  auto run = StartRun();
  ASSERT_TRUE(WaitForEvent("step-1", 2));
  run->Signal(SIGTERM);
  ASSERT_TRUE(WaitUntil([&] { return run->output().find("again to kill") != std::string::npos; }));
  run->Signal(SIGINT);
  const Finished killed = run->Wait();
  EXPECT_EQ(killed.code, 75) << killed.output;
  EXPECT_EQ(CountTrialProcesses(workspace_.root()), 0);
}

// Batch systems repeat SIGTERM on their way to SIGKILL: it is no more than one request to checkpoint and leave.
TEST_F(SessionTest, ASecondSigtermKillsNobody) {
  Set("FAKE_GATE", temp_ / "gate");
  Set("FAKE_IGNORE_TERM", "1");
  WriteSweep(1);
  auto run = StartRun();
  ASSERT_TRUE(WaitForEvent("step-1", 1));
  run->Signal(SIGTERM);
  ASSERT_TRUE(WaitUntil([&] { return run->output().find("again to kill") != std::string::npos; }));
  run->Signal(SIGTERM);
  const std::string status = "/proc/" + std::to_string(run->pid()) + "/status";
  ASSERT_TRUE(WaitUntil([&] {  // until the process has taken it
    const std::string text = Slurp(status);
    const std::size_t pending = text.find("ShdPnd:\t");
    return pending != std::string::npos && text.compare(pending + 8, 16, "0000000000000000") == 0;
  }));
  std::ofstream(temp_ / "gate") << "open";
  const Finished end = run->Wait();
  EXPECT_EQ(end.code, 75) << end.output;
  EXPECT_EQ(CountFakeEvents(Events(), "finish"), 1) << "it took its time, and was given it";
  int requests = 0;
  for (const JournalEvent& event : ReadJournal(FileSystem::Real(), workspace_.Journal("s")).events)
    requests += event.type == journal::kStopRequested;
  EXPECT_EQ(requests, 1);
}

TEST_F(SessionTest, KilledAtAnyJournalEventItResumesAndLeavesNoOrphan) {
  WriteSweep(1);
  // The run is killed as soon as the journal has that many events: after the start of the sweep, of a trial,
  // in its middle, …
  for (const std::size_t events : {1u, 2u, 4u, 9u}) {
    std::filesystem::remove_all(workspace_.root() + "/sweeps");
    std::filesystem::remove_all(workspace_.root() + "/trials");
    std::filesystem::remove(Events());
    auto run = StartRun();
    const std::string journal = workspace_.Journal("s");
    ASSERT_TRUE(WaitUntil([&] {
      const std::string text = Slurp(journal);
      return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= events;
    }));
    run->Signal(SIGKILL);
    EXPECT_EQ(run->Wait().code, 128 + SIGKILL);
    EXPECT_TRUE(WaitUntil([&] { return CountTrialProcesses(workspace_.root()) == 0; })) << "orphans";
    EXPECT_NE(Status()["state"], "running");
    const Finished resumed = Resume();
    EXPECT_EQ(resumed.code, 0) << resumed.output;
    EXPECT_EQ(FinishedStages().size(), 2u);
    for (const std::string& stage : FinishedStages())
      EXPECT_EQ(CountFakeEvents(Events(), "finish", stage), 1);
  }
}

TEST_F(SessionTest, TwoLaunchersOnOneSweepOneRefuses) {
  Set("FAKE_GATE", temp_ / "gate");
  auto first = StartRun();
  ASSERT_TRUE(WaitUntil([&] {  // both trials wait at the gate, and all they have said is written
    std::size_t checkpoints = 0;
    for (const JournalEvent& event : ReadJournal(FileSystem::Real(), workspace_.Journal("s")).events)
      checkpoints += event.type == journal::kCheckpointed;
    return checkpoints == 2;
  }));
  const std::string journal = Slurp(workspace_.Journal("s"));
  const Finished second = Run();
  EXPECT_EQ(second.code, 2) << second.output;
  EXPECT_NE(second.output.find(std::to_string(first->pid())), std::string::npos) << second.output;
  EXPECT_EQ(Slurp(workspace_.Journal("s")), journal);
  EXPECT_EQ(Status()["state"], "running");
  std::ofstream(temp_ / "gate") << "open";
  EXPECT_EQ(first->Wait().code, 0);
}

TEST_F(SessionTest, TwoSweepsOfOneWorkspaceNeverRunASharedTrialTwice) {
  WriteSweep(1);
  Set("FAKE_GATE", temp_ / "gate");
  auto first = StartRun();
  ASSERT_TRUE(WaitForEvent("step-1", 1));
  WriteSweep(1, "other");
  auto second = StartRun();
  ASSERT_TRUE(WaitUntil(
      [&] { return Slurp(workspace_.Journal("other")).find("attempt-started") != std::string::npos; }));
  std::ofstream(temp_ / "gate") << "open";
  EXPECT_EQ(first->Wait().code, 0);
  EXPECT_EQ(second->Wait().code, 0);
  for (const std::string& stage : FinishedStages()) EXPECT_EQ(CountFakeEvents(Events(), "finish", stage), 1);
}

TEST_F(SessionTest, ADamagedOrMissingResultIsFoundAndItsStageRunsAgain) {
  WriteSweep(2);
  EXPECT_EQ(Run().code, 0);
  const std::set<std::string> all = FinishedStages();
  const std::string damaged = *all.begin(), missing = *all.rbegin();
  std::filesystem::resize_file(workspace_.TrialResult(damaged), 1000);
  std::filesystem::remove(workspace_.TrialResult(missing));
  const Finished run = Run();
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_NE(run.output.find("is damaged"), std::string::npos) << run.output;
  EXPECT_EQ(CountFakeEvents(Events(), "finish"), 6);
  EXPECT_EQ(CountFakeEvents(Events(), "finish", damaged), 2);
  EXPECT_EQ(CountFakeEvents(Events(), "finish", missing), 2);
}

TEST_F(SessionTest, UnderMpirunTheSameStagesAreFinished) {
  for (const char* variable :
       {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
    Set(variable, "1");
  const auto run =
      Start({"run", temp_ / "sweep.toml", "--no-report", "--slots", "1"}, {FindProgram("mpirun"), "-n", "3"})
          ->Wait();
  EXPECT_EQ(run.code, 0) << run.output;
  const std::set<std::string> parallel = FinishedStages();
  EXPECT_EQ(parallel.size(), 4u);
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 4);
  std::set<std::string> nodes;
  for (const JournalEvent& event : ReadJournal(FileSystem::Real(), workspace_.Journal("s")).events)
    if (event.type == journal::kAttemptStarted) nodes.insert(event.fields.at("slots"));
  EXPECT_GE(nodes.size(), 2u) << "one rank did everything";
  std::filesystem::remove_all(workspace_.root());
  std::filesystem::remove(Events());
  EXPECT_EQ(Run().code, 0);
  EXPECT_EQ(FinishedStages(), parallel);
}

TEST_F(SessionTest, UnderMpirunAWrongSweepEndsAllRanksWithExitCodeTwo) {
  for (const char* variable :
       {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
    Set(variable, "1");
  std::ofstream(temp_ / "sweep.toml") << "name = \"s\"\n[modle]\nlayers = 1\n";
  const auto run = Start({"run", temp_ / "sweep.toml"}, {FindProgram("mpirun"), "-n", "2"})->Wait();
  EXPECT_EQ(run.code, 2) << run.output;
  EXPECT_FALSE(std::filesystem::exists(workspace_.root()));
}

}  // namespace
}  // namespace headsweep
