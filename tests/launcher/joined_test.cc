// Several launchers on one sweep (launcher/LEASES.md), through the real `headsweep` with fake trainers.
// HEADSWEEP_TEST_SEED=<n> chooses other moments and victims; HEADSWEEP_TEST_PAIRS=<n> starts so many pairs at once (50).
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "cluster/base/errors.h"
#include "launcher/journal.h"
#include "launcher/lease.h"
#include "launcher/roster.h"
#include "tests/launcher/launcher_fixture.h"
#include "tests/support/headsweep_program.h"

namespace headsweep {
namespace {

using namespace testing;
using nlohmann::json;

std::uint64_t Number(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class JoinedTest : public ::testing::Test {
 protected:
  JoinedTest() : workspace_(temp_ / "runs") {
    WriteSmallCorpus(temp_ / "text.txt", 300);
    environment_ = {{"HEADSWEEP_TRAINER", FakeTrainerPath()},
                    {"FAKE_EVENTS", Events()},
                    {"HEADSWEEP_KILL_GRACE", "0.3"},
                    {"HEADSWEEP_LEASE", "1"}};
  }

  // `seeds` training stages, without or with one pruning stage each.
  void WriteSweep(int seeds, bool prune = false, const std::string& name = "s", int first_seed = 1) {
    std::ofstream file(temp_ / (name + ".toml"));
    file << "name = \"" << name << "\"\n"
         << "[task]\ncorpus = \"./text.txt\"\nvocabulary = 100\nlength = 16\n"
         << "[model]\nlayers = 1\nembed = 16\nheads = 2\n"
         << "[train]\nsteps = 6\nbatch = 4\n"
         << "[run]\nretries = 50\n"
         << "[grid]\nseed = [";
    for (int i = 0; i < seeds; ++i) file << (i > 0 ? ", " : "") << first_seed + i;
    file << "]\n" << (prune ? "[prune]\norder = [\"importance\"]\n" : "");
  }

  std::string Events() const { return temp_ / "events"; }
  void Set(const std::string& name, const std::string& value) { environment_.emplace_back(name, value); }

  std::unique_ptr<HeadsweepProgram> Start(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--workspace", workspace_.root()});
    return std::make_unique<HeadsweepProgram>(arguments, temp_ / ("log-" + std::to_string(++programs_)), environment_);
  }
  std::unique_ptr<HeadsweepProgram> Join(const std::string& name = "s", const std::string& slots = "2") {
    return Start({"run", temp_ / (name + ".toml"), "--join", "--no-report", "--slots", slots});
  }
  json Status(const std::string& name = "s") {
    const Finished status = Start({"status", name, "--json"})->Wait();
    EXPECT_EQ(status.code, 0) << status.output;
    return json::parse(status.output);
  }
  bool WaitForEvent(const std::string& what, int count) {
    return WaitUntil([&] { return CountFakeEvents(Events(), what) >= count; });
  }

  // Each launcher's journal, by the name of its directory.
  std::map<std::string, std::vector<JournalEvent>> Journals(const std::string& name = "s") const {
    std::map<std::string, std::vector<JournalEvent>> journals;
    for (const LauncherCard& card : ReadRoster(FileSystem::Real(), workspace_, name))
      journals[card.key] = ReadJournal(FileSystem::Real(), JournalOf(card.directory)).events;
    return journals;
  }

  // Every stage has one result, made by one attempt, and no attempt's number was used twice.
  void ExpectEffectiveOnce(int stages, const std::string& name = "s") {
    const json status = Status(name);
    EXPECT_EQ(status["stages"].size(), static_cast<std::size_t>(stages));
    std::map<std::string, int> results;
    std::set<std::pair<std::string, int>> started, worked;
    for (const FakeEvent& event : ReadFakeEvents(Events())) {
      if (event.what == "finish") ++results[event.stage];
      if (event.what == "start") {
        EXPECT_TRUE(worked.insert({event.stage, event.attempt}).second)
            << event.stage << " attempt " << event.attempt << " was started twice";
      }
    }
    std::map<std::string, int> recorded;
    for (const auto& [launcher, events] : Journals(name)) {
      for (const JournalEvent& event : events) {
        if (event.type == journal::kAttemptStarted) {
          EXPECT_TRUE(started.insert({event.stage, event.attempt}).second)
              << event.stage << " attempt " << event.attempt << " is in two journals";
        }
        // An attempt that found the result of a launcher killed before it could record it worked nothing itself.
        if (event.type == journal::kAttemptEnded && event.fields.at("outcome") == "finished" &&
            worked.contains({event.stage, event.attempt}))
          ++recorded[event.stage];
      }
    }
    for (const json& stage : status["stages"]) {
      const std::string id = stage["id"];
      EXPECT_EQ(stage["state"], "finished") << stage;
      EXPECT_TRUE(FileSystem::Real().Exists(workspace_.TrialResult(id)));
      EXPECT_LE(results[id], 1) << id << " was sealed by more than one attempt";
      EXPECT_LE(recorded[id], 1) << id << " is recorded as finished by more than one attempt that worked";
      // Of one that was killed between recording the end and giving the lease back, for `headsweep gc`.
      if (const auto holder = HolderOf(workspace_.Trial(id))) {
        LauncherWatch watch(FileSystem::Real(), workspace_.root(), 1000);
        EXPECT_TRUE(watch.IsGone(holder->launcher)) << id << " is still leased by " << holder->launcher;
      }
    }
    EXPECT_TRUE(WaitUntil([&] { return CountTrialProcesses(workspace_.root()) == 0; })) << "an orphan lives on";
  }

  TempDir temp_;
  Workspace workspace_;
  std::vector<std::pair<std::string, std::string>> environment_;
  int programs_ = 0;
};

TEST_F(JoinedTest, TwoStartedAtOnceNeverDoAStageTwice) {
  const auto pairs = static_cast<int>(Number("HEADSWEEP_TEST_PAIRS", 50));
  for (int pair = 0; pair < pairs; ++pair) {
    const std::string name = "s" + std::to_string(pair);
    WriteSweep(1, pair % 2 == 1, name, 1 + pair);
    auto first = Join(name, "1"), second = Join(name, "1");
    const Finished one = first->Wait(), two = second->Wait();
    ASSERT_EQ(one.code, 0) << one.output;
    ASSERT_EQ(two.code, 0) << two.output;
  }
  EXPECT_EQ(CountFakeEvents(Events(), "start"), pairs + pairs / 2);
  EXPECT_EQ(CountFakeEvents(Events(), "finish"), pairs + pairs / 2);
}

// Four launchers share a grid of 25 trials of random length; at random times one is killed, or stopped for a while that may
// be longer than its lease. A killed one is started again.
TEST_F(JoinedTest, FourDrainAGridAlthoughLaunchersAreKilledAndStopped) {
  const std::uint64_t seed = Number("HEADSWEEP_TEST_SEED", 20261201);
  SCOPED_TRACE("HEADSWEEP_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  WriteSweep(25);
  Set("FAKE_PACE", "120");
  Set("FAKE_STEPS", "6");
  std::vector<std::unique_ptr<HeadsweepProgram>> launchers;
  for (int i = 0; i < 4; ++i) launchers.push_back(Join());
  int kills = 0, stops = 0, starts = 4;
  std::map<std::size_t, std::chrono::steady_clock::time_point> stopped;  // until when
  // Not "finish" events: a trainer may be killed between sealing and saying so.
  const auto results = [&] {
    int count = 0;
    for (const std::string& trial : FileSystem::Real().List(workspace_.TrialsRoot()))
      count += FileSystem::Real().Exists(workspace_.TrialResult(trial));
    return count;
  };
  while (results() < 25 || !stopped.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(below(300)));  // the moment is the experiment
    ASSERT_LT(starts, 100);
    for (auto it = stopped.begin(); it != stopped.end();) {
      if (std::chrono::steady_clock::now() < it->second) {
        ++it;
        continue;
      }
      launchers[it->first]->Signal(SIGCONT);
      it = stopped.erase(it);
    }
    for (std::size_t i = 0; i < launchers.size(); ++i) {
      if (launchers[i]->Running() || results() >= 25) continue;
      launchers[i]->Wait();
      launchers[i] = Join();
      ++starts;
    }
    const auto victim = static_cast<std::size_t>(below(4));
    if (results() >= 20 || stopped.contains(victim) || !launchers[victim]->Running()) continue;
    if (below(3) == 0) {
      launchers[victim]->Signal(SIGKILL);
      ++kills;
    } else if (stopped.size() < 2) {
      launchers[victim]->Signal(SIGSTOP);
      stopped[victim] = std::chrono::steady_clock::now() + std::chrono::milliseconds(below(2500));
      ++stops;
    }
  }
  for (auto& launcher : launchers) {
    const Finished end = launcher->Wait();
    EXPECT_TRUE(end.code == 0 || end.code == 128 + SIGKILL) << end.code << ": " << end.output;
  }
  std::printf("  %d kills, %d stops, %d launchers\n", kills, stops, starts);
  EXPECT_GT(kills, 0);
  EXPECT_GT(stops, 0);
  ExpectEffectiveOnce(25);
}

TEST_F(JoinedTest, AStoppedLauncherLosesItsTrialsAndRecordsNothingOfThemWhenItWakes) {
  WriteSweep(1);
  Set("FAKE_GATE", temp_ / "gate");
  auto stopped = Join("s", "1");
  ASSERT_TRUE(WaitForEvent("step-1", 1));
  stopped->Signal(SIGSTOP);
  auto successor = Join("s", "1");
  ASSERT_TRUE(WaitForEvent("start", 2)) << successor->output();  // it has taken over
  std::ofstream(temp_ / "gate") << "open";
  const Finished second = successor->Wait();
  EXPECT_EQ(second.code, 0) << second.output;
  stopped->Signal(SIGCONT);
  const Finished first = stopped->Wait();
  EXPECT_EQ(first.code, 0) << first.output;
  EXPECT_NE(first.output.find("is run by another launcher now"), std::string::npos) << first.output;
  int finished = 0, lost = 0;
  for (const auto& [launcher, events] : Journals()) {
    for (const JournalEvent& event : events) {
      if (event.type != journal::kAttemptEnded) continue;
      finished += event.attempt == 2 && event.fields.at("outcome") == "finished";
      lost += event.attempt == 1 && event.fields.at("cause") == "lost-lease" && event.fields.at("charged") == "no";
    }
  }
  EXPECT_EQ(finished, 1);
  EXPECT_EQ(lost, 1);
  ExpectEffectiveOnce(1);
}

// The launcher stands still, but its trainer goes on where its successor cannot look: what it seals does not count.
TEST_F(JoinedTest, ATrainerThatHasLostItsLeaseSealsNothing) {
  WriteSweep(1);
  Set("FAKE_GATE", temp_ / "gate");
  Set("FAKE_GATE_AT", "3");
  auto launcher = Join("s", "1");
  ASSERT_TRUE(WaitForEvent("step-3", 1));
  const std::string id = Status()["stages"][0]["id"];
  // As a successor on another host does it.
  ASSERT_EQ(::rename((workspace_.Trial(id) + "/lease-1").c_str(), (workspace_.Trial(id) + "/lost-1").c_str()), 0);
  std::ofstream(temp_ / "gate") << "open";
  const Finished end = launcher->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(CountFakeEvents(Events(), "fenced") + CountFakeEvents(Events(), "step-4"), 1 + CountFakeEvents(Events(), "fenced"))
      << "the first attempt did not get beyond the fence";
  ExpectEffectiveOnce(1);
}

TEST_F(JoinedTest, TheyAreSeenAndAskedTogether) {
  WriteSweep(4);
  Set("FAKE_GATE", temp_ / "gate");
  auto first = Join("s", "1"), second = Join("s", "1");
  ASSERT_TRUE(WaitForEvent("step-1", 2));
  const json status = Status();
  EXPECT_EQ(status["state"], "running");
  EXPECT_EQ(status["launchers"].size(), 2u) << status.dump(1);
  EXPECT_TRUE(status["launchers"][0]["joined"]);
  ASSERT_TRUE(WaitUntil([&] {
    const json now = Status();
    return now.contains("live") && now["live"]["slots"] == 2 && now["counts"]["running"] == 2;
  })) << Status().dump(1);
  EXPECT_EQ(Start({"pause", "s"})->Wait().code, 0);
  EXPECT_TRUE(WaitUntil([&] { return Status()["live"]["paused"] == true; }));
  const Finished cancel = Start({"cancel", "s"})->Wait();
  EXPECT_EQ(cancel.code, 0) << cancel.output;
  EXPECT_EQ(first->Wait().code, kExitResumable);
  EXPECT_EQ(second->Wait().code, kExitResumable);
  EXPECT_EQ(Status()["state"], "stopped");
  std::ofstream(temp_ / "gate") << "open";
  // Alone and without --join: goes on from all their journals.
  const Finished alone = Start({"resume", "s", "--no-report"})->Wait();
  EXPECT_EQ(alone.code, 0) << alone.output;
  EXPECT_EQ(CountFakeEvents(Events(), "finish"), 4);
  EXPECT_EQ(CountFakeEvents(Events(), "step-1"), 4) << "what was checkpointed is not repeated";
  EXPECT_EQ(Status()["state"], "done");
}

TEST_F(JoinedTest, WhoWantsTheSweepForHimselfAndWhoSharesItDoNotMix) {
  WriteSweep(2);
  Set("FAKE_GATE", temp_ / "gate");
  auto joined = Join("s", "1");
  ASSERT_TRUE(WaitForEvent("step-1", 1));
  const Finished alone = Start({"run", temp_ / "s.toml", "--no-report"})->Wait();
  EXPECT_EQ(alone.code, kExitUsage) << alone.output;
  EXPECT_NE(alone.output.find("--join"), std::string::npos) << alone.output;
  WriteSweep(3);  // another file of the same name
  const Finished other = Join("s", "1")->Wait();
  EXPECT_EQ(other.code, kExitUsage) << other.output;
  EXPECT_NE(other.output.find("another version of the sweep file"), std::string::npos) << other.output;
  joined->Signal(SIGKILL);
  joined->Wait();
  WriteSweep(2);
  auto exclusive = Start({"run", temp_ / "s.toml", "--no-report", "--slots", "1"});
  ASSERT_TRUE(WaitForEvent("start", 2)) << exclusive->output();
  const Finished late = Join("s", "1")->Wait();
  EXPECT_EQ(late.code, kExitUsage) << late.output;
  EXPECT_NE(late.output.find("for itself"), std::string::npos) << late.output;
  std::ofstream(temp_ / "gate") << "open";
  EXPECT_EQ(exclusive->Wait().code, 0);
}

// A failure costs one launch its retries, whichever launcher has it.
TEST_F(JoinedTest, RetriesAreCountedTogether) {
  WriteSweep(1);
  std::ofstream(temp_ / "s.toml", std::ios::app) << "";
  std::string text = ReadText(temp_ / "s.toml");
  text.replace(text.find("retries = 50"), 12, "retries = 1");
  std::ofstream(temp_ / "s.toml") << text;
  Set("FAKE_FAIL_AT", "1:error");
  auto first = Join("s", "1"), second = Join("s", "1");
  EXPECT_EQ(first->Wait().code, kExitFailed);
  EXPECT_EQ(second->Wait().code, kExitFailed);
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 2) << "one attempt and one retry, of both launchers together";
}

TEST_F(JoinedTest, WhoJoinsAPausedSweepStartsNothing) {
  WriteSweep(3);
  Set("FAKE_GATE", temp_ / "gate");
  auto first = Join("s", "1");
  ASSERT_TRUE(WaitForEvent("step-1", 1));
  ASSERT_EQ(Start({"pause", "s"})->Wait().code, 0);
  auto second = Join("s", "2");
  ASSERT_TRUE(WaitUntil([&] { return Status()["launchers"].size() == 2; })) << second->output();
  // Its live view comes after its first look at everything: had it started something, it would have done so by then.
  ASSERT_TRUE(WaitUntil([&] {
    std::size_t views = 0;
    for (const LauncherCard& card : ReadRoster(FileSystem::Real(), workspace_, "s"))
      views += FileSystem::Real().Exists(card.directory + "/live.json");
    return views == 2;
  })) << second->output();
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 1) << second->output();
  std::ofstream(temp_ / "gate") << "open";
  EXPECT_EQ(Start({"continue", "s"})->Wait().code, 0);
  EXPECT_EQ(first->Wait().code, 0) << first->output();
  EXPECT_EQ(second->Wait().code, 0) << second->output();
  EXPECT_EQ(Status()["state"], "done");
}

TEST_F(JoinedTest, ALeaseThatIsTooShortIsRefused) {
  WriteSweep(1);
  for (auto& [name, value] : environment_)
    if (name == "HEADSWEEP_LEASE") value = "0.3";
  const Finished end = Join("s", "1")->Wait();
  EXPECT_EQ(end.code, kExitUsage);
  EXPECT_NE(end.output.find("HEADSWEEP_LEASE=0.3: at least 1 s"), std::string::npos) << end.output;
  EXPECT_EQ(CountFakeEvents(Events(), "start"), 0);
}

TEST_F(JoinedTest, OneOfThemMakesTheReport) {
  WriteSweep(2);
  std::vector<std::unique_ptr<HeadsweepProgram>> launchers;
  for (int i = 0; i < 3; ++i) launchers.push_back(Start({"run", temp_ / "s.toml", "--join", "--slots", "1"}));
  int made = 0;
  for (auto& launcher : launchers) {
    const Finished end = launcher->Wait();
    EXPECT_EQ(end.code, 0) << end.output;
    EXPECT_NE(end.output.find(workspace_.Report("s")), std::string::npos) << end.output;
    made += end.output.find("another launcher makes") == std::string::npos;
  }
  EXPECT_GE(made, 1);
  EXPECT_TRUE(FileSystem::Real().Exists(workspace_.Results("s")));
  EXPECT_TRUE(FileSystem::Real().Exists(workspace_.Report("s")));
}

}  // namespace
}  // namespace headsweep
