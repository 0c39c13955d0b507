// `headsweep gc`: what it finds, what it leaves alone, and that the record comes before the deletion.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "launcher/journal.h"
#include "launcher/sweep_lock.h"
#include "launcher/trial_lock.h"
#include "tests/launcher/launcher_fixture.h"
#include "tests/support/headsweep_program.h"

namespace headsweep {
namespace {

using namespace testing;
using nlohmann::json;

class GarbageTest : public ::testing::Test {
 protected:
  GarbageTest() : workspace_(temp_ / "runs") {
    WriteSmallCorpus(temp_ / "text.txt", 300);
    WriteSweep(2);
    EXPECT_EQ(Headsweep({"run", temp_ / "sweep.toml", "--no-report"}).code, 0);
    for (const std::string& id : FileSystem::Real().List(workspace_.TrialsRoot())) trials_.push_back(id);
  }

  void WriteSweep(int seeds) {
    std::ofstream(temp_ / "sweep.toml") << "name = \"s\"\n"
                                        << "[task]\ncorpus = \"./text.txt\"\nvocabulary = 100\nlength = 16\n"
                                        << "[model]\nlayers = 1\nembed = 16\nheads = 2\n"
                                        << "[train]\nsteps = 6\nbatch = 4\n"
                                        << "[grid]\nseed = { count = " << seeds << " }\n";
  }
  Finished Headsweep(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--workspace", workspace_.root()});
    return HeadsweepProgram(arguments, temp_ / ("log-" + std::to_string(++programs_)),
                            {{"HEADSWEEP_TRAINER", FakeTrainerPath()}})
        .Wait();
  }
  // path within the workspace -> why
  std::map<std::string, std::string> Gc(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"gc", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished gc = Headsweep(arguments);
    EXPECT_EQ(gc.code, 0) << gc.output;
    std::map<std::string, std::string> items;
    const std::size_t begin = gc.output.find('{');  // after what stderr says, if it says anything
    const json parsed = json::parse(gc.output.substr(begin == std::string::npos ? 0 : begin), nullptr, false);
    EXPECT_TRUE(parsed.is_object()) << gc.output;
    for (const json& item : parsed["items"])
      items[item["path"].get<std::string>().substr(workspace_.root().size() + 1)] = item["why"];
    return items;
  }
  void Write(const std::string& path, const std::string& text = "some bytes") {
    FileSystem::Real().CreateDirectories(ParentPath(path));
    FileSystem::Real().WriteFile(path, text);
  }
  bool Exists(const std::string& path) { return FileSystem::Real().Exists(path); }

  TempDir temp_;
  Workspace workspace_;
  std::vector<std::string> trials_;
  int programs_ = 0;
};

TEST_F(GarbageTest, OfACleanWorkspaceIsNothing) { EXPECT_EQ(Gc(), (std::map<std::string, std::string>{})); }

TEST_F(GarbageTest, IsListedAndStaysUntilYesIsSaid) {
  ASSERT_EQ(trials_.size(), 2u);
  const std::string done = workspace_.Trial(trials_[0]), open = workspace_.Trial(trials_[1]);
  std::filesystem::remove(open + "/result.h5");
  for (const std::string& trial : {done, open}) {
    std::filesystem::remove(trial + "/checkpoint");  // the fake trainer's is a file
    for (const char* step : {"100", "20", "300"}) Write(trial + "/checkpoint/step-" + step + "/state.json");
    Write(trial + "/attempt-1/metrics.h5");
    Write(trial + "/checkpoint/step-400.tmp-3-17/state.json");
    Write(trial + "/lost-7/owner");
    Write(trial + "/result.h5.damaged-1");
  }
  Write(workspace_.Trial("0123456789abcdef") + "/attempt-1/log.txt");
  Write(workspace_.DataRoot() + "/feedfeedfeedfeed/tokens");
  const std::string d = "trials/" + trials_[0] + "/", o = "trials/" + trials_[1] + "/";
  const std::map<std::string, std::string> expected = {
      {d + "checkpoint/step-100", "superseded by step-300"},
      {d + "checkpoint/step-20", "superseded by step-300"},
      {d + "checkpoint/step-400.tmp-3-17", "never finished by a process that is gone"},
      {d + "attempt-1/metrics.h5", "result.h5 holds it all"},
      {d + "lost-7", "the lease of a launcher that is gone"},
      {d + "result.h5.damaged-1", "it was damaged, and there is a good one"},
      {o + "checkpoint/step-20", "superseded by step-300"},
      {o + "checkpoint/step-400.tmp-3-17", "never finished by a process that is gone"},
      {o + "lost-7", "the lease of a launcher that is gone"},
      {"trials/0123456789abcdef", "no sweep of this workspace has this trial"},
      {"data/feedfeedfeedfeed", "no sweep of this workspace uses this text"}};
  EXPECT_EQ(Gc(), expected);
  for (const auto& [path, why] : expected) EXPECT_TRUE(Exists(workspace_.root() + "/" + path)) << path;
  EXPECT_EQ(Gc({"--yes"}), expected);
  for (const auto& [path, why] : expected) EXPECT_FALSE(Exists(workspace_.root() + "/" + path)) << path;
  EXPECT_TRUE(Exists(done + "/result.h5"));
  EXPECT_TRUE(Exists(done + "/checkpoint/step-300"));
  EXPECT_TRUE(Exists(open + "/checkpoint/step-100")) << "the newest may be damaged, and there is no result";
  std::map<std::string, std::string> recorded;
  for (const JournalEvent& event : ReadJournal(FileSystem::Real(), workspace_.root() + "/gc.jsonl").events)
    recorded[event.fields.at("path")] = event.fields.at("why");
  EXPECT_EQ(recorded, expected);
  EXPECT_EQ(Gc(), (std::map<std::string, std::string>{}));
}

TEST_F(GarbageTest, IsWhatASmallerSweepHasNoMore) {
  WriteSweep(1);
  EXPECT_EQ(Headsweep({"run", temp_ / "sweep.toml", "--no-report"}).code, 0);
  const auto items = Gc();
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items.begin()->second, "no sweep of this workspace has this trial");
  TrialLock lock;  // somebody runs it by hand
  ASSERT_TRUE(lock.TryLock(workspace_.root() + "/" + items.begin()->first + "/running.lock"));
  EXPECT_EQ(Gc({"--yes"}).size(), 0u);
  EXPECT_TRUE(Exists(workspace_.root() + "/" + items.begin()->first));
}

TEST_F(GarbageTest, StaysWhileALauncherRunsOrASweepCannotBeRead) {
  Write(workspace_.Trial("0123456789abcdef") + "/attempt-1/log.txt");
  {
    const SweepLock lock(workspace_.Lock("s"));
    const Finished refused = Headsweep({"gc", "--yes"});
    EXPECT_EQ(refused.code, kExitUsage) << refused.output;
    EXPECT_NE(refused.output.find("is being run by"), std::string::npos) << refused.output;
  }
  std::ofstream(workspace_.SweepToml("s")) << "name = \"s\"\nnonsense = 1\n";
  EXPECT_EQ(Headsweep({"gc", "--yes"}).code, kExitUsage);
  EXPECT_TRUE(Exists(workspace_.Trial("0123456789abcdef")));
}

TEST_F(GarbageTest, ACrashBetweenRecordAndDeletionIsMadeGoodByTheNextOne) {
  for (int i = 0; i < 3; ++i) Write(workspace_.Trial(fmt::format("0123456789abcde{}", i)) + "/attempt-1/log.txt");
  const Finished crashed = HeadsweepProgram({"gc", "--yes", "--workspace", workspace_.root()}, temp_ / "log",
                                            {{"HEADSWEEP_CRASH_AT", "remove:3"}})  // the first is the lock's
                               .Wait();
  EXPECT_EQ(crashed.code, 137) << crashed.output;
  EXPECT_EQ(ReadJournal(FileSystem::Real(), workspace_.root() + "/gc.jsonl").events.size(), 3u);
  EXPECT_EQ(Gc({"--yes"}).size(), 2u);
  EXPECT_EQ(Gc().size(), 0u);
}

}  // namespace
}  // namespace headsweep
