// The coordinator with scripted agents (what it tells whom, and when), and with a real agent and fake
// trainers.
#include "launcher/coordinator.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <optional>

#include "cluster/base/errors.h"
#include "launcher/agent.h"
#include "launcher/attempt_outcome.h"
#include "launcher/messages.h"
#include "tests/launcher/launcher_fixture.h"

namespace headsweep {
namespace {

using namespace testing;
using nlohmann::json;

// The coordinator's end of a link to several agents, which the test plays.
class ScriptedLink final : public Link {
 public:
  explicit ScriptedLink(std::vector<NodeId> peers) : peers_(std::move(peers)) {}
  std::vector<NodeId> peers() const override { return peers_; }
  void Start(Receiver receiver) override { receiver_ = std::move(receiver); }
  void Send(NodeId to, const json& message) override {
    if (on_send) on_send(message);
    sent.emplace_back(to, message);
  }
  void Abandon(NodeId peer) override { abandoned.push_back(peer); }
  void Say(NodeId from, const json& message) { receiver_(from, message); }
  int Count(NodeId to, const std::string& type) const {
    int count = 0;
    for (const auto& [node, message] : sent) count += node == to && message["type"] == type;
    return count;
  }

  std::vector<std::pair<NodeId, json>> sent;
  std::vector<NodeId> abandoned;
  std::function<void(const json&)> on_send;

 private:
  std::vector<NodeId> peers_;
  Receiver receiver_;
};

class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() : workspace_(temp_ / "runs"), out_(std::tmpfile()), display_(out_, false) {
    FileSystem::Real().CreateDirectories(workspace_.SweepDirectory("s"));
  }
  ~CoordinatorTest() override { std::fclose(out_); }

  static std::vector<StageSpec> Plan(int count) {
    std::vector<StageSpec> plan;
    for (int i = 0; i < count; ++i)
      plan.push_back({.id = StageId("t" + std::to_string(i)),
                      .parent = {},
                      .kind = "train",
                      .slots = 1,
                      .retries = 2,
                      .flops = 1e9});
    return plan;
  }

  void Start(std::vector<Link*> links, std::vector<StageSpec> plan, Timing timing = {}) {
    journal_ = std::make_unique<Journal>(FileSystem::Real(), workspace_.Journal("s"), clock_);
    CoordinatorOptions options;
    options.sweep = "s";
    options.timing = timing;
    options.config_toml = [](const StageId& stage, int divisor) {
      return "# " + stage.value() + " divided by " + std::to_string(divisor) + "\n";
    };
    options.describe = [](const StageId& stage) { return "fake " + stage.value(); };
    options.is_ours = [this] { return is_ours_; };
    Core core(std::move(plan), {}, journal_->history().events, {});
    coordinator_ = std::make_unique<Coordinator>(loop_, std::move(links), FileSystem::Real(), clock_,
                                                 workspace_, *journal_, std::move(core), display_, options);
    coordinator_->Start([this](int code, bool clean) {
      exit_code_ = code;
      clean_ = clean;
    });
  }

  bool JournalHas(const char* type, const std::string& stage) const {
    for (const JournalEvent& event : ReadJournal(FileSystem::Real(), workspace_.Journal("s")).events)
      if (event.type == type && event.stage == stage) return true;
    return false;
  }

  std::string Printed() const {
    std::fflush(out_);
    std::rewind(out_);
    std::string text(1 << 16, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), out_));
    return text;
  }

  TempDir temp_;
  TestEnvironment environment_;
  Workspace workspace_;
  SystemClock clock_;
  boost::asio::io_context loop_;
  std::FILE* out_;
  Display display_;
  std::unique_ptr<Journal> journal_;
  bool is_ours_ = true;
  std::optional<int> exit_code_;
  bool clean_ = false;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(CoordinatorTest, ASweepThatNoNodeCanRunEndsAtOnceAndSaysWhy) {
  ScriptedLink link({NodeId(0), NodeId(1)});
  Start({&link}, Plan(2));
  EXPECT_EQ(link.sent.front().second["device"], "cpu");
  link.Say(NodeId(0), {{"type", "join"}, {"host", "here"}, {"epoch", 1}, {"slots", 0}, {"problem", "no driver"}});
  EXPECT_FALSE(exit_code_.has_value()) << "the other node has not answered yet";
  link.Say(NodeId(1),
           {{"type", "join"}, {"host", "there"}, {"epoch", 1}, {"slots", 0}, {"problem", "no GPU; ask for one"}});
  ASSERT_TRUE(RunUntil(loop_, [&] { return exit_code_.has_value(); }));
  EXPECT_EQ(exit_code_, kExitUsage);
  EXPECT_EQ(link.Count(NodeId(0), "end"), 1);
  EXPECT_NE(Printed().find("takes no trials: no driver"), std::string::npos) << Printed();
  EXPECT_NE(Printed().find("no GPU; ask for one"), std::string::npos) << Printed();
}

TEST_F(CoordinatorTest, ANodeWithoutSlotsDoesNotKeepTheOthersFromWorking) {
  ScriptedLink link({NodeId(0), NodeId(1)});
  Start({&link}, Plan(1));
  link.Say(NodeId(1), {{"type", "join"}, {"host", "there"}, {"epoch", 1}, {"slots", 1}});
  link.Say(NodeId(0), {{"type", "join"}, {"host", "here"}, {"epoch", 1}, {"slots", 0}, {"problem", "no driver"}});
  EXPECT_EQ(link.Count(NodeId(1), "start"), 1);
  link.Say(NodeId(1), {{"type", "ended"}, {"stage", "t0"}, {"attempt", 1}, {"outcome", "finished"}});
  ASSERT_TRUE(RunUntil(loop_, [&] { return exit_code_.has_value(); }));
  EXPECT_EQ(exit_code_, kExitDone);
}

TEST_F(CoordinatorTest, WhatIsDoneIsInTheJournalBefore) {
  ScriptedLink link({NodeId(0)});
  int starts = 0;
  link.on_send = [&](const json& message) {
    if (message["type"] == "start") {
      ++starts;
      EXPECT_TRUE(JournalHas(journal::kAttemptStarted, message["stage"]));
      EXPECT_EQ(ReadText(workspace_.TrialConfig(message["stage"])),
                "# " + message["stage"].get<std::string>() + " divided by 1\n");
    }
    if (message["type"] == "end") {
      EXPECT_TRUE(JournalHas(journal::kSweepEnded, ""));
    }
  };
  Start({&link}, Plan(2));
  link.Say(NodeId(0), {{"type", "join"}, {"host", "here"}, {"epoch", 1}, {"slots", 1}});
  for (const char* stage : {"t0", "t1"}) {
    link.Say(NodeId(0), {{"type", "ended"},
                         {"stage", stage},
                         {"attempt", 1},
                         {"outcome", "finished"},
                         {"cause", ""},
                         {"message", ""},
                         {"summary", "{}"}});
    EXPECT_TRUE(JournalHas(journal::kAttemptEnded, stage));
  }
  EXPECT_EQ(starts, 2);
  ASSERT_TRUE(RunUntil(loop_, [&] { return exit_code_.has_value(); }));
  EXPECT_EQ(exit_code_, kExitDone);
  EXPECT_TRUE(clean_);
}

TEST_F(CoordinatorTest, ASilentNodeIsLostAndItsTrialsGoToTheOthers) {
  ScriptedLink local({NodeId(0)}), remote({NodeId(1)});
  Start({&local, &remote}, Plan(1), {.kill_grace = 0.05, .node_timeout = 0.8});
  remote.Say(NodeId(1), {{"type", "join"}, {"host", "there"}, {"epoch", 1}, {"slots", 1}});
  ASSERT_EQ(remote.Count(NodeId(1), "start"), 1);
  local.Say(NodeId(0), {{"type", "join"}, {"host", "here"}, {"epoch", 1}, {"slots", 1}});
  ASSERT_TRUE(RunUntil(loop_, [&] { return local.Count(NodeId(0), "start") == 1; }));
  EXPECT_EQ(remote.abandoned, (std::vector<NodeId>{NodeId(1)}));
  // What the lost node still says about the old attempt changes nothing.
  remote.Say(NodeId(1), {{"type", "ended"}, {"stage", "t0"}, {"attempt", 1}, {"outcome", "finished"}});
  EXPECT_EQ(coordinator_->core().status(StageId("t0")).state, StageState::kRunning);
  local.Say(NodeId(0),
            {{"type", "ended"}, {"stage", "t0"}, {"attempt", 2}, {"outcome", "finished"}, {"summary", "{}"}});
  ASSERT_TRUE(RunUntil(loop_, [&] { return exit_code_.has_value(); }));
  EXPECT_EQ(exit_code_, kExitDone);
  EXPECT_FALSE(clean_) << "a rank is dead, so MPI_Finalize would wait for it";
}

TEST_F(CoordinatorTest, ALostNodeThatIsHeardAgainJoinsAnewAndGetsWork) {
  ScriptedLink local({NodeId(0)}), remote({NodeId(1)});
  Start({&local, &remote}, Plan(3), {.kill_grace = 0.05, .node_timeout = 0.8});
  const json join = {{"type", "join"}, {"host", "there"}, {"slots", 1}, {"epoch", 1}};
  remote.Say(NodeId(1), join);
  local.Say(NodeId(0), {{"type", "join"}, {"host", "here"}, {"slots", 1}, {"epoch", 1}});
  ASSERT_TRUE(RunUntil(loop_, [&] { return !remote.abandoned.empty(); }));
  EXPECT_EQ(remote.Count(NodeId(1), "lost"), 0);
  remote.Say(NodeId(1), {{"type", "alive"}});  // the link has healed
  EXPECT_EQ(remote.Count(NodeId(1), "lost"), 1);
  remote.Say(NodeId(1), join);  // late
  EXPECT_EQ(remote.Count(NodeId(1), "start"), 1) << "what it said before it was lost does not bring it back";
  json again = join;
  again["epoch"] = 2;
  remote.Say(NodeId(1), again);
  ASSERT_EQ(remote.Count(NodeId(1), "start"), 2);
  EXPECT_EQ(remote.sent.back().second["epoch"], 2);
  remote.Say(NodeId(1), again);  // twice
  EXPECT_EQ(remote.Count(NodeId(1), "start"), 2);
  again["epoch"] = 3;  // it has noticed a silence that was too short for us
  const std::string stage = remote.sent.back().second["stage"];
  remote.Say(NodeId(1), again);
  ASSERT_EQ(remote.Count(NodeId(1), "start"), 3) << "what ran there is over, so something is started";
  EXPECT_EQ(coordinator_->core().status(StageId(stage)).failures, 0) << "which costs no retry";
}

TEST_F(CoordinatorTest, ANodeThatSaysItIsAliveIsAnsweredAndKept) {
  ScriptedLink local({NodeId(0)}), remote({NodeId(1)});
  Start({&local, &remote}, Plan(1), {.kill_grace = 0.05, .node_timeout = 0.8});
  remote.Say(NodeId(1), {{"type", "join"}, {"host", "there"}, {"epoch", 1}, {"slots", 1}});
  int said = 0;
  ASSERT_TRUE(RunUntil(loop_, [&] {
    if (remote.Count(NodeId(1), "alive") == said) remote.Say(NodeId(1), {{"type", "alive"}}), ++said;
    return said > 60;  // more turns of the loop than the time-out lasts
  }));
  EXPECT_TRUE(remote.abandoned.empty());
}

TEST_F(CoordinatorTest, GarbageFromAnAgentChangesNothing) {
  ScriptedLink link({NodeId(0)});
  Start({&link}, Plan(1));
  link.Say(NodeId(0), {{"type", "join"}, {"host", "here"}, {"epoch", 1}, {"slots", 1}});
  link.Say(NodeId(0), {{"type", 7}});
  link.Say(NodeId(0), {{"no", "type"}});
  link.Say(NodeId(0), {{"type", "ended"}, {"stage", "unheard-of"}, {"attempt", 1}, {"outcome", "finished"}});
  link.Say(NodeId(0), {{"type", "progress"}, {"stage", {1, 2}}, {"attempt", "x"}, {"step", nullptr}});
  link.Say(NodeId(5), {{"type", "join"}, {"host", "nowhere"}, {"epoch", 1}, {"slots", 9}});
  EXPECT_EQ(coordinator_->core().counts().running, 1);
}

TEST_F(CoordinatorTest, FirstAsksThenKills) {
  ScriptedLink link({NodeId(0)});
  Start({&link}, Plan(1));
  link.Say(NodeId(0), {{"type", "join"}, {"host", "here"}, {"epoch", 1}, {"slots", 1}});
  coordinator_->RequestStop("Ctrl-C");
  EXPECT_EQ(link.Count(NodeId(0), "stop"), 1);
  EXPECT_EQ(link.Count(NodeId(0), "kill"), 0);
  coordinator_->RequestStop("Ctrl-C");
  EXPECT_EQ(link.Count(NodeId(0), "kill"), 1);
  link.Say(NodeId(0), {{"type", "ended"}, {"stage", "t0"}, {"attempt", 1}, {"outcome", "stopped"}});
  ASSERT_TRUE(RunUntil(loop_, [&] { return exit_code_.has_value(); }));
  EXPECT_EQ(exit_code_, kExitResumable);
}

// A launcher that was taken for dead, on a node that Slurm had lost, must not write into its successor's journal.
TEST_F(CoordinatorTest, ALauncherThatHasLostTheSweepRecordsNothingMore) {
  ScriptedLink link({NodeId(0)});
  Start({&link}, Plan(2));
  link.Say(NodeId(0), {{"type", "join"}, {"host", "here"}, {"epoch", 1}, {"slots", 1}});
  const std::string before = FileSystem::Real().ReadFile(workspace_.Journal("s"));
  is_ours_ = false;
  EXPECT_THROW(link.Say(NodeId(0), {{"type", "ended"}, {"stage", "t0"}, {"attempt", 1}, {"outcome", "finished"}}),
               ConfigError);
  EXPECT_EQ(FileSystem::Real().ReadFile(workspace_.Journal("s")), before);
  EXPECT_EQ(link.Count(NodeId(0), "start"), 1) << "nothing more is started";
}

class GangCoordinatorTest : public CoordinatorTest {
 protected:
  // Two nodes with one slot each, and a trial of two processes whose rank 0 was told to start on node 0.
  void StartGang(Timing timing = {}) {
    std::vector<StageSpec> plan = Plan(1);
    plan[0].slots = 2;
    Start({&local_, &remote_}, plan, timing);
    local_.Say(NodeId(0), {{"type", "join"}, {"host", "here"}, {"epoch", 1}, {"slots", 1}});
    remote_.Say(NodeId(1), {{"type", "join"}, {"host", "there"}, {"epoch", 1}, {"slots", 1}});
    ASSERT_EQ(local_.Count(NodeId(0), "start"), 1);
    EXPECT_EQ(remote_.Count(NodeId(1), "start"), 0) << "rank 0's node has not got the trial's lock yet";
  }
  void BothRun() {
    local_.Say(NodeId(0), {{"type", "launched"}, {"stage", "t0"}, {"attempt", 1}, {"directory", 7}});
    ASSERT_EQ(remote_.Count(NodeId(1), "start"), 1);
  }
  static json Ended(int rank, const std::string& outcome, const std::string& cause = "",
                    const std::string& text = "", int attempt = 1) {
    return {{"type", "ended"},    {"stage", "t0"},  {"attempt", attempt}, {"rank", rank},
            {"outcome", outcome}, {"cause", cause}, {"message", text},    {"summary", "{}"}};
  }
  json Last(ScriptedLink& link, const std::string& type) {
    json last;
    for (const auto& [node, message] : link.sent)
      if (message["type"] == type) last = message;
    return last;
  }
  StageState State() { return coordinator_->core().status(StageId("t0")).state; }

  ScriptedLink local_{{NodeId(0)}}, remote_{{NodeId(1)}};
};

TEST_F(GangCoordinatorTest, RankZeroStartsFirstAndEveryKeyReachesTheOtherNode) {
  StartGang();
  local_.Say(NodeId(0),
             {{"type", "rendezvous"}, {"stage", "t0"}, {"attempt", 1}, {"key", "early"}, {"value", "1"}});
  BothRun();
  EXPECT_EQ(Last(remote_, "start")["ranks"], json({1}));
  EXPECT_EQ(Last(remote_, "start")["directory"], 7);
  EXPECT_EQ(Last(remote_, "rendezvous")["key"], "early") << "set before the node was told to start";
  remote_.Say(NodeId(1),
              {{"type", "rendezvous"}, {"stage", "t0"}, {"attempt", 1}, {"key", "late"}, {"value", "2"}});
  EXPECT_EQ(Last(local_, "rendezvous")["value"], "2");
  EXPECT_EQ(remote_.Count(NodeId(1), "rendezvous"), 1) << "not back to where it came from";
  remote_.Say(NodeId(1), Ended(1, "finished"));
  EXPECT_EQ(State(), StageState::kRunning) << "rank 0 is still there";
  local_.Say(NodeId(0), Ended(0, "finished"));
  ASSERT_TRUE(RunUntil(loop_, [&] { return exit_code_.has_value(); }));
  EXPECT_EQ(exit_code_, kExitDone);
}

TEST_F(GangCoordinatorTest, ADeadProcessHasTheOthersKilledAndItsOwnCauseIsTheTrials) {
  StartGang();
  BothRun();
  local_.Say(NodeId(0), Ended(0, "failed", "peer", "all-reduce failed"));  // heard before the death itself
  EXPECT_EQ(remote_.Count(NodeId(1), "kill"), 1);
  EXPECT_EQ(Last(remote_, "kill")["reason"], kKilledPeerFailed);
  EXPECT_EQ(State(), StageState::kRunning);
  remote_.Say(NodeId(1), Ended(1, "failed", "signal", "signal 9"));
  EXPECT_EQ(State(), StageState::kReady);
  EXPECT_EQ(coordinator_->core().status(StageId("t0")).cause, "signal");
  EXPECT_NE(coordinator_->core().status(StageId("t0")).message.find("rank 1 of 2"), std::string::npos);
  EXPECT_EQ(coordinator_->core().status(StageId("t0")).failures, 1) << "one failure, not one a process";
  remote_.Say(NodeId(1), Ended(1, "failed", "error", "a late word"));  // fenced
  EXPECT_EQ(coordinator_->core().status(StageId("t0")).failures, 1);
}

TEST_F(GangCoordinatorTest, ALostNodeHasTheRestOfTheGangKilled) {
  StartGang({.kill_grace = 0.05, .node_timeout = 0.8});
  BothRun();
  ASSERT_TRUE(RunUntil(loop_, [&] { return local_.Count(NodeId(0), "kill") == 1; }));
  EXPECT_EQ(State(), StageState::kRunning);
  local_.Say(NodeId(0), Ended(0, "stopped", "", "killed"));
  EXPECT_EQ(State(), StageState::kReady);
  EXPECT_EQ(coordinator_->core().status(StageId("t0")).failures, 0) << "not the trial's fault";
}

TEST_F(GangCoordinatorTest, AStopBeforeTheSecondNodeStartsNeverStartsIt) {
  StartGang();
  coordinator_->RequestStop("Ctrl-C");
  local_.Say(NodeId(0), {{"type", "launched"}, {"stage", "t0"}, {"attempt", 1}, {"directory", 1}});
  local_.Say(NodeId(0), Ended(0, "failed", "peer", "asked to stop before the trial began"));
  ASSERT_TRUE(RunUntil(loop_, [&] { return exit_code_.has_value(); }));
  EXPECT_EQ(remote_.Count(NodeId(1), "start"), 0);
  EXPECT_EQ(exit_code_, kExitResumable);
}

TEST_F(CoordinatorTest, WithARealAgentEveryStageRunsOnceParentsFirst) {
  environment_.Set("FAKE_EVENTS", temp_ / "events");
  auto [ours, theirs] = MakeLoopback(loop_, NodeId(0), NodeId(0));
  AgentOptions options;
  options.host = "here";
  options.trainer = FakeTrainerPath();
  options.slots = 2;
  Agent agent(loop_, *theirs, FileSystem::Real(), clock_, options);
  bool agent_ended = false;
  agent.Start([&](bool) { agent_ended = true; });
  std::vector<StageSpec> plan = Plan(3);
  plan.push_back({.id = StageId("p0"),
                  .parent = StageId("t0"),
                  .kind = "prune",
                  .slots = 1,
                  .retries = 2,
                  .flops = 1e8});
  Start({ours.get()}, plan);
  ASSERT_TRUE(RunUntil(loop_, [&] { return exit_code_.has_value() && agent_ended; }));
  EXPECT_EQ(exit_code_, kExitDone);
  EXPECT_EQ(CountFakeEvents(temp_ / "events", "finish"), 4);
  EXPECT_EQ(CountFakeEvents(temp_ / "events", "start"), 4);
  bool parent_done = false;
  for (const FakeEvent& event : ReadFakeEvents(temp_ / "events")) {
    parent_done = parent_done || (event.stage == "t0" && event.what == "finish");
    if (event.stage != "p0") continue;
    EXPECT_TRUE(parent_done) << event.what;
  }
}

}  // namespace
}  // namespace headsweep
