// An agent with real (fake) trainer processes; the test is its coordinator.
#include "launcher/agent.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/attempt_outcome.h"
#include "launcher/control_channel.h"
#include "launcher/messages.h"
#include "launcher/process.h"
#include "launcher/tagged_processes.h"
#include "launcher/trial_lock.h"
#include "tests/launcher/launcher_fixture.h"

namespace headsweep {
namespace {

using namespace testing;
using nlohmann::json;

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() : workspace_(temp_ / "runs") {
    environment_.Set("FAKE_EVENTS", Events());
    std::tie(ours_, theirs_) = MakeLoopback(loop_, NodeId(0), NodeId(7));
    ours_->Start([this](NodeId from, const json& message) {
      EXPECT_EQ(from, NodeId(7));
      received_.push_back(message);
    });
  }

  std::string Events() const { return temp_ / "events"; }

  void StartAgent(int slots, Timing timing = {}, const std::string& device = "cpu") {
    AgentOptions options;
    options.host = "here";
    options.trainer = FakeTrainerPath();
    options.slots = slots;
    options.rank_on_host = rank_on_host_;
    options.ranks_on_host = ranks_on_host_;
    options.timing = timing;
    options.read_summary = [](const Workspace&, const std::string& stage) {
      return "{\"outcome\":\"diverged\",\"digest\":\"read of " + stage + "\"}";
    };
    agent_ = std::make_unique<Agent>(loop_, *theirs_, FileSystem::Real(), clock_, options);
    agent_->Start([this](bool clean) { ended_ = clean ? "clean" : "unclean"; });
    Tell({{"type", "welcome"},
          {"workspace", workspace_.root()},
          {"sweep", "s"},
          {"threads", 1},
          {"device", device}});
  }
  // What it joined with, once it has.
  json Joined() {
    return RunUntil(loop_, [&] { return Find("join") != nullptr; }) ? *Find("join") : json::object();
  }

  void Tell(const json& message) { ours_->Send(NodeId(7), message); }
  void StartTrial(const std::string& stage, int attempt = 1, int slot = 0) {
    FileSystem::Real().CreateDirectories(workspace_.Trial(stage));
    Tell({{"type", "start"}, {"stage", stage}, {"attempt", attempt}, {"slots", {slot}}});
  }

  // `ranks` of a trial of `world` processes, on the slots of the same numbers.
  void StartGang(const std::string& stage, std::vector<int> ranks, int world, int directory = 0) {
    FileSystem::Real().CreateDirectories(workspace_.Trial(stage));
    Tell({{"type", "start"},
          {"stage", stage},
          {"attempt", 1},
          {"ranks", ranks},
          {"slots", ranks},
          {"world", world},
          {"directory", directory}});
  }
  json EndOfRank(const std::string& stage, int rank) {
    json end;
    RunUntil(loop_, [&] {
      for (const json& message : received_)
        if (message["type"] == "ended" && message["stage"] == stage && message["rank"] == rank) end = message;
      return !end.is_null();
    });
    return end;
  }

  const json* Find(const std::string& type, const std::string& stage = "", int attempt = 1) const {
    for (const json& message : received_)
      if (message["type"] == type &&
          (stage.empty() || (message["stage"] == stage && message["attempt"] == attempt)))
        return &message;
    return nullptr;
  }
  // The attempt's "ended" message; empty when it did not come in time.
  json WaitForEnd(const std::string& stage, int attempt = 1) {
    if (!RunUntil(loop_, [&] { return Find("ended", stage, attempt) != nullptr; })) return json::object();
    return *Find("ended", stage, attempt);
  }
  static int TaggedHere(const std::string& stage_tag) {
    int count = 0;
    for (const TaggedProcess& process : FindTaggedProcesses())
      count += process.stage == stage_tag && process.launcher == ProcessIdentity(::getpid());
    return count;
  }

  TempDir temp_;
  TestEnvironment environment_;
  Workspace workspace_;
  boost::asio::io_context loop_;
  SystemClock clock_;
  std::unique_ptr<Link> ours_, theirs_;
  std::vector<json> received_;
  std::string ended_;
  int rank_on_host_ = 0, ranks_on_host_ = 1;
  std::unique_ptr<Agent> agent_;  // last: it goes first
};

TEST_F(AgentTest, ATrialIsStartedReportedAndJudged) {
  StartAgent(1);
  StartTrial("a");
  const json end = WaitForEnd("a");
  EXPECT_EQ(end["outcome"], "finished") << end;
  EXPECT_EQ(json::parse(end["summary"].get<std::string>())["digest"], "digest-of-a");
  ASSERT_NE(Find("join"), nullptr);
  EXPECT_EQ((*Find("join"))["slots"], 1);
  ASSERT_EQ((*Find("join"))["device_bytes"].size(), 1u) << "the node's own memory";
  EXPECT_GT((*Find("join"))["device_bytes"][0], 1 << 20);
  ASSERT_NE(Find("progress", "a"), nullptr);
  ASSERT_NE(Find("checkpoint", "a"), nullptr);
  EXPECT_TRUE(FileSystem::Real().Exists(workspace_.TrialResult("a")));
  Tell({{"type", "end"}, {"clean", true}});
  EXPECT_TRUE(RunUntil(loop_, [&] { return ended_ == "clean"; }));
}

TEST_F(AgentTest, ACrashIsAFailureByItsSignal) {
  environment_.Set("FAKE_DIE_AT", "2");
  StartAgent(1);
  StartTrial("a");
  const json end = WaitForEnd("a");
  EXPECT_EQ(end["outcome"], "failed");
  EXPECT_EQ(end["cause"], "signal");
}

TEST_F(AgentTest, AnEndIsSaidAgainToACoordinatorThatKillsWhatIsOver) {
  StartAgent(1);
  StartTrial("a");
  const json end = WaitForEnd("a");
  ASSERT_EQ(end["outcome"], "finished") << end;
  received_.clear();  // nobody heard it
  Tell({{"type", "kill"}, {"stage", "a"}, {"attempt", 2}, {"reason", "another attempt"}});
  Tell({{"type", "kill"}, {"stage", "a"}, {"attempt", 1}, {"reason", "no sign of life"}});
  EXPECT_EQ(WaitForEnd("a"), end);
}

TEST_F(AgentTest, ExitZeroWithoutDoneIsAFailure) {
  environment_.Set("FAKE_EXIT_AT", "3:0");
  StartAgent(1);
  StartTrial("a");
  EXPECT_EQ(WaitForEnd("a")["outcome"], "failed");
}

TEST_F(AgentTest, GarbageOnTheControlChannelHarmsNobody) {
  environment_.Set("FAKE_GARBAGE", "1");
  StartAgent(1);
  StartTrial("a");
  EXPECT_EQ(WaitForEnd("a")["outcome"], "finished");
}

TEST_F(AgentTest, StopIsAskedForAndObeyed) {
  environment_.Set("FAKE_GATE", temp_ / "gate");
  StartAgent(1);
  StartTrial("a");
  ASSERT_TRUE(RunUntil(loop_, [&] { return CountFakeEvents(Events(), "step-1") == 1; }));
  Tell({{"type", "stop"}, {"stage", "a"}, {"attempt", 1}});
  EXPECT_EQ(WaitForEnd("a")["outcome"], "stopped");
}

TEST_F(AgentTest, WhatIgnoresStopAndTermIsKilledWithItsGrandchildren) {
  environment_.Set("FAKE_GATE", temp_ / "gate");
  environment_.Set("FAKE_IGNORE_TERM", "1");
  environment_.Set("FAKE_SPAWN", "1");
  StartAgent(1, {.kill_grace = 0.1, .stop_grace = 0.1});
  StartTrial("a");
  ASSERT_TRUE(RunUntil(loop_, [&] { return CountFakeEvents(Events(), "step-1") == 1; }));
  EXPECT_EQ(TaggedHere("a/1"), 2) << "the trainer, and its child in another session";
  Tell({{"type", "stop"}, {"stage", "a"}, {"attempt", 1}});
  EXPECT_EQ(WaitForEnd("a")["outcome"], "stopped");
  EXPECT_EQ(TaggedHere("a/1"), 0);
  EXPECT_NE(ReadText(workspace_.AttemptLog("a", 1)).find("threads of process"), std::string::npos);
}

TEST_F(AgentTest, NothingOutlivesTheAgentEvenOfFinishedTrials) {
  environment_.Set("FAKE_SPAWN", "1");
  StartAgent(1);
  StartTrial("a");
  EXPECT_EQ(WaitForEnd("a")["outcome"], "finished");
  Tell({{"type", "end"}, {"clean", true}});
  EXPECT_TRUE(RunUntil(loop_, [&] { return ended_ == "clean"; }));
  EXPECT_EQ(TaggedHere("a/1"), 0);
}

TEST_F(AgentTest, AMessageForAnOlderAttemptChangesNothing) {
  environment_.Set("FAKE_GATE", temp_ / "gate");
  StartAgent(1);
  StartTrial("a", 2);
  ASSERT_TRUE(RunUntil(loop_, [&] { return CountFakeEvents(Events(), "step-1") == 1; }));
  Tell({{"type", "kill"}, {"stage", "a"}, {"attempt", 1}, {"reason", "late"}});
  std::ofstream(temp_ / "gate") << "open";
  EXPECT_EQ(WaitForEnd("a", 2)["outcome"], "finished");
}

TEST_F(AgentTest, AProgramThatCannotStartIsAFailureThatSaysSo) {
  AgentOptions options;
  options.trainer = temp_ / "nothing";
  options.slots = 1;
  agent_ = std::make_unique<Agent>(loop_, *theirs_, FileSystem::Real(), clock_, options);
  agent_->Start([](bool) {});
  Tell({{"type", "welcome"}, {"workspace", workspace_.root()}, {"sweep", "s"}, {"threads", 1}});
  StartTrial("a");
  const json end = WaitForEnd("a");
  EXPECT_EQ(end["cause"], kCauseStart);
  EXPECT_NE(end["message"].get<std::string>().find("nothing"), std::string::npos);
}

TEST_F(AgentTest, ATrialThatAnotherLauncherRunsIsWaitedForAndNotRunTwice) {
  StartAgent(1);
  FileSystem::Real().CreateDirectories(workspace_.Trial("a"));
  TrialLock other;
  ASSERT_TRUE(other.TryLock(workspace_.TrialLock("a")));
  StartTrial("a");
  ASSERT_TRUE(RunUntil(loop_, [&] { return Find("progress", "a") != nullptr; }));
  EXPECT_EQ((*Find("progress", "a"))["phase"], "waiting");
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 0);
  std::ofstream(workspace_.TrialResult("a")) << "by the other";
  other = TrialLock();
  const json end = WaitForEnd("a");
  EXPECT_EQ(end["outcome"], "diverged") << "as the result says";
  EXPECT_NE(end["summary"].get<std::string>().find("read of a"), std::string::npos);
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 0);
}

TEST_F(AgentTest, TheProcessesOfATrialMeetAndEachEndsOnItsOwn) {
  StartAgent(3);
  StartGang("a", {0, 1, 2}, 3);
  for (const int rank : {0, 1, 2}) EXPECT_EQ(EndOfRank("a", rank)["outcome"], "finished") << rank;
  for (const char* what : {"met", "met-rank-1", "met-rank-2"})
    EXPECT_EQ(CountFakeEvents(Events(), what), 1) << what;
  EXPECT_EQ(Find("launched"), nullptr) << "all of it is here";
  EXPECT_TRUE(FileSystem::Real().Exists(workspace_.AttemptDirectory("a", 1) + "/log-2.txt"));
  int progress = 0;
  for (const json& message : received_) progress += message["type"] == "checkpoint";
  EXPECT_EQ(progress, 5) << "of rank 0 alone";
}

TEST_F(AgentTest, APartOfATrialWaitsForTheOtherNodesProcesses) {
  StartAgent(2);
  StartGang("a", {0, 1}, 3);
  ASSERT_TRUE(RunUntil(loop_, [&] { return Find("launched", "a") != nullptr; }));
  EXPECT_EQ((*Find("launched", "a"))["directory"], 1);
  const auto published = [&] {
    int count = 0;
    for (const json& message : received_) count += message["type"] == "rendezvous";
    return count;
  };
  ASSERT_TRUE(RunUntil(loop_, [&] { return published() == 2; }));
  EXPECT_EQ(CountFakeEvents(Events(), "met"), 0);
  Tell({{"type", "rendezvous"},
        {"stage", "a"},
        {"attempt", 1},
        {"key", "place.2"},
        {"value", std::string(100000, 'x')}});
  for (const int rank : {0, 1}) EXPECT_EQ(EndOfRank("a", rank)["outcome"], "finished") << rank;
}

TEST_F(AgentTest, TheRestOfATrialWhosePeerFailedIsKilledSoonEvenIfItIgnoresTerm) {
  environment_.Set("FAKE_GATE", temp_ / "gate");
  environment_.Set("FAKE_IGNORE_TERM", "1");
  StartAgent(2, {.kill_grace = 50, .node_timeout = 300});
  StartGang("a", {0, 1}, 2);
  ASSERT_TRUE(RunUntil(loop_, [&] { return CountFakeEvents(Events(), "step-1-rank-1") == 1; }));
  Tell({{"type", "kill"}, {"stage", "a"}, {"attempt", 1}, {"reason", kKilledPeerFailed}});
  for (const int rank : {0, 1}) EXPECT_EQ(EndOfRank("a", rank)["outcome"], "stopped") << rank;
  EXPECT_EQ(TaggedHere("a/1/0") + TaggedHere("a/1/1"), 0);
}

TEST_F(AgentTest, AnAttemptNeverWritesIntoTheFolderOfAnotherOne) {
  FileSystem::Real().CreateDirectories(workspace_.AttemptDirectory("a", 1));
  StartAgent(1);
  StartTrial("a");
  EXPECT_EQ(WaitForEnd("a")["outcome"], "finished");
  EXPECT_EQ(workspace_.Attempts(FileSystem::Real(), "a"), (std::vector<int>{1, 2}));
  EXPECT_TRUE(FileSystem::Real().Exists(workspace_.AttemptLog("a", 2)));
}

TEST_F(AgentTest, ASilentCoordinatorIsTakenForDeadAndNothingIsLeftRunning) {
  environment_.Set("FAKE_GATE", temp_ / "gate");
  StartAgent(1, {.kill_grace = 0.1, .node_timeout = 1.5, .return_timeout = 1.5});
  StartTrial("a");
  ASSERT_TRUE(RunUntil(loop_, [&] { return CountFakeEvents(Events(), "step-1") == 1; }));
  ASSERT_TRUE(RunUntil(loop_, [&] { return Find("ended") != nullptr; }));  // nobody answers its "alive"
  EXPECT_EQ(TaggedHere("a/1"), 0);
  EXPECT_EQ(ended_, "") << "a link that was cut may heal";
  EXPECT_TRUE(RunUntil(loop_, [&] { return ended_ == "unclean"; }));
}

TEST_F(AgentTest, AfterASilenceItJoinsAnewAndObeysNothingOfBefore) {
  StartAgent(1, {.kill_grace = 0.1, .node_timeout = 1.5});
  EXPECT_EQ(Joined()["epoch"], 1);
  environment_.Set("FAKE_GATE", temp_ / "gate");
  StartTrial("a");
  ASSERT_TRUE(RunUntil(loop_, [&] { return Find("ended") != nullptr; }));
  EXPECT_EQ((*Find("ended"))["outcome"], "stopped");
  received_.clear();
  StartTrial("late", 1);  // was on its way all the time
  EXPECT_EQ(Joined()["epoch"], 2);
  Tell({{"type", "start"}, {"stage", "late"}, {"attempt", 1}, {"epoch", 1}, {"ranks", {0}}, {"slots", {0}}});
  Tell({{"type", "lost"}, {"epoch", 1}});  // an answer to what it said before
  std::ofstream(temp_ / "gate").close();
  StartTrial("b");
  EXPECT_EQ(WaitForEnd("b")["outcome"], "finished");
  EXPECT_EQ(CountFakeEvents(Events(), "start", "late"), 0);
}

TEST_F(AgentTest, AnAgentThatWasTakenForLostEndsWhatRunsAndJoinsAnew) {
  environment_.Set("FAKE_GATE", temp_ / "gate");
  StartAgent(1);
  StartTrial("a");
  ASSERT_TRUE(RunUntil(loop_, [&] { return CountFakeEvents(Events(), "step-1") == 1; }));
  received_.clear();
  Tell({{"type", "lost"}, {"epoch", 1}});
  EXPECT_EQ(Joined()["epoch"], 2);
  EXPECT_NE(Find("ended"), nullptr);
  EXPECT_EQ(TaggedHere("a/1"), 0);
}

TEST_F(AgentTest, LeftoversOfADeadLauncherAreKilledBeforeItJoins) {
  environment_.Set("FAKE_GATE", temp_ / "gate");
  FileSystem::Real().CreateDirectories(workspace_.Trial("b"));
  ProcessSpec spec;
  spec.command = {FakeTrainerPath(), workspace_.TrialConfig("b")};
  spec.environment = {{kTagSweep, workspace_.SweepDirectory("s")}, {kTagStage, "b/1"}, {kTagLauncher, "1:1"}};
  const pid_t leftover = Spawn(spec).pid;
  ASSERT_TRUE(RunUntil(loop_, [&] { return CountFakeEvents(Events(), "step-1", "b") == 1; }));
  StartAgent(1);
  ASSERT_TRUE(RunUntil(loop_, [&] { return Find("join") != nullptr; }));
  EXPECT_EQ(WaitFor(leftover, kDeadline), (ExitStatus{.code = 0, .signal = SIGKILL}));
}

TEST_F(AgentTest, OnGpusASlotIsADeviceThatItsTrainerSeesAlone) {
  environment_.Set("FAKE_GPUS", "8");
  environment_.Set("CUDA_VISIBLE_DEVICES", "5,2");
  StartAgent(0, {}, "cuda");
  EXPECT_EQ(Joined()["slots"], 2);
  StartTrial("a", 1, 0);
  StartTrial("b", 1, 1);
  EXPECT_EQ(WaitForEnd("a")["outcome"], "finished");
  EXPECT_EQ(WaitForEnd("b")["outcome"], "finished");
  EXPECT_EQ(CountFakeEvents(Events(), "gpus-5", "a"), 1);
  EXPECT_EQ(CountFakeEvents(Events(), "gpus-2", "b"), 1);
}

TEST_F(AgentTest, WithoutCudaVisibleDevicesSlurmsVariablesCountAndThenEveryGpu) {
  environment_.Set("FAKE_GPUS", "8");
  environment_.Set("SLURM_STEP_GPUS", "4-6");
  StartAgent(0, {}, "cuda");
  EXPECT_EQ(Joined()["slots"], 3);
  StartTrial("a", 1, 2);
  EXPECT_EQ(WaitForEnd("a")["outcome"], "finished");
  EXPECT_EQ(CountFakeEvents(Events(), "gpus-6"), 1);
}

TEST_F(AgentTest, AgentsOfOneHostShareItsGpusOut) {
  environment_.Set("FAKE_GPUS", "5");
  rank_on_host_ = 1;
  ranks_on_host_ = 2;
  StartAgent(0, {}, "cuda");
  EXPECT_EQ(Joined()["slots"], 3);
  StartTrial("a", 1, 0);
  EXPECT_EQ(WaitForEnd("a")["outcome"], "finished");
  EXPECT_EQ(CountFakeEvents(Events(), "gpus-2"), 1);
}

TEST_F(AgentTest, ANodeWithoutAGpuJoinsWithoutSlotsAndSaysWhy) {
  StartAgent(4, {}, "cuda");
  const json join = Joined();
  EXPECT_EQ(join["slots"], 0);
  EXPECT_EQ(join["problem"], "the fake driver sees no GPU; fake more of them");
}

TEST_F(AgentTest, AProbeThatHangsOrCrashesIsNotWaitedForAndIsNamed) {
  environment_.Set("FAKE_PROBE", "hang");
  StartAgent(0, {.probe_timeout = 0.2}, "cuda");
  EXPECT_NE(Joined()["problem"].get<std::string>().find("did not end within"), std::string::npos);
  agent_.reset();
  received_.clear();
  environment_.Set("FAKE_PROBE", "crash");
  std::tie(ours_, theirs_) = MakeLoopback(loop_, NodeId(0), NodeId(7));
  ours_->Start([this](NodeId, const json& message) { received_.push_back(message); });
  StartAgent(0, {}, "cuda");
  EXPECT_NE(Joined()["problem"].get<std::string>().find("signal 6"), std::string::npos) << Joined();
}

TEST(LineParser, LinesMayComeInPiecesAndTooLongOnesAreSkippedWhole) {
  LineParser parser;
  std::vector<int> values;
  const auto take = [&](const json& message) {
    values.push_back(static_cast<int>(message::Integer(message, "v")));
  };
  for (const char c : std::string("{\"v\":1}\n{\"v\":2}\n")) parser.Feed({&c, 1}, take);
  const std::string half(LineParser::kLongestLine / 2 + 1, 'x');
  for (int i = 0; i < 5; ++i) parser.Feed(half, take);
  parser.Feed("{\"v\":9}\n{\"v\":3}\nnot json\n{\"v\":4}\n{\"v\":5}", take);
  EXPECT_EQ(values, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(parser.bad_lines(), 2);
}

}  // namespace
}  // namespace headsweep
