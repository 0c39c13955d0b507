// The command line of the real `headsweep`: help, wrong usage, and the commands that only look.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/launcher/launcher_fixture.h"
#include "tests/support/headsweep_program.h"

namespace headsweep {
namespace {

using namespace testing;
using nlohmann::json;

class CommandsTest : public ::testing::Test {
 protected:
  Finished Do(const std::vector<std::string>& arguments,
              const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    return HeadsweepProgram(arguments, temp_ / "log", environment).Wait();
  }
  static bool Has(const Finished& finished, const std::string& text) {
    return finished.output.find(text) != std::string::npos;
  }
  void WriteSweep(const std::string& text) const { std::ofstream(temp_ / "sweep.toml") << text; }

  TempDir temp_;
};

TEST_F(CommandsTest, EveryCommandHasHelpWithExamples) {
  for (const char* command :
       {"run", "resume", "status", "watch", "explain", "logs", "expand", "collect", "report", "data", "plan", "doctor"}) {
    const Finished help = Do({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_TRUE(Has(help, "usage: headsweep " + std::string(command))) << help.output;
    EXPECT_TRUE(Has(help, "examples\n  ")) << help.output;
    EXPECT_EQ(Do({"help", command}).output, help.output);
    EXPECT_TRUE(Has(Do({"help"}), "  " + std::string(command))) << command;
  }
}

TEST_F(CommandsTest, SlipsAreAnsweredWithTheNearestNameAndExitCodeTwo) {
  const Finished command = Do({"rnu"});
  EXPECT_EQ(command.code, 2);
  EXPECT_TRUE(Has(command, "did you mean headsweep run?")) << command.output;
  const Finished option = Do({"status", "--jsn"});
  EXPECT_EQ(option.code, 2);
  EXPECT_TRUE(Has(option, "did you mean --json?")) << option.output;
  EXPECT_EQ(Do({}).code, 2);
  EXPECT_EQ(Do({"run"}).code, 2);
  EXPECT_EQ(Do({"run", "a.toml", "b.toml"}).code, 2);
  EXPECT_EQ(Do({"run", "a.toml", "--slots", "many"}).code, 2);
  EXPECT_EQ(Do({"run", "a.toml", "--slots", "-1"}).code, 2);
  EXPECT_EQ(Do({"data", "perpare", "kjv"}).code, 2);
}

TEST_F(CommandsTest, AWrongSweepNamesEveryComplaintAndTouchesNothing) {
  WriteSweep("name = \"s\"\n[modle]\nlayers = 1\n[train]\nsteps = -5\nbach = 3\n");
  const std::string workspace = temp_ / "runs";
  const Finished run =
      Do({"run", temp_ / "sweep.toml", "--workspace", workspace}, {{"HEADSWEEP_TRAINER", FakeTrainerPath()}});
  EXPECT_EQ(run.code, 2);
  for (const char* complaint : {"sweep.toml:2", "sweep.toml:5", "sweep.toml:6"})
    EXPECT_TRUE(Has(run, complaint)) << run.output;
  EXPECT_FALSE(std::filesystem::exists(workspace));
}

TEST_F(CommandsTest, PlanSaysAllThatIsMissingAndEstimates) {
  const Finished empty = Do({"plan", "--per-node", "0"});
  EXPECT_EQ(empty.code, 2);
  for (const char* option : {"--step-seconds is missing", "--batch is missing", "--parameters is missing", "--per-node"})
    EXPECT_TRUE(Has(empty, option)) << empty.output;
  const Finished plan = Do({"plan", "--step-seconds", "1", "--batch", "64", "--parameters", "1e6"});
  const json points =
      json::parse(Do({"plan", "--step-seconds", "1", "--batch", "64", "--parameters", "1e6", "--json"}).output)["points"];
  ASSERT_EQ(points.size(), 7u) << "1 to 64 devices";
  EXPECT_EQ(points[0]["devices"], 1);
  EXPECT_EQ(points[0]["step_seconds"], 1.0);
  EXPECT_GT(points[6]["speedup"], 8.0);
  EXPECT_EQ(plan.code, 0) << plan.output;
  EXPECT_TRUE(Has(plan, "beyond 64 devices some would have no example")) << plan.output;
}

TEST_F(CommandsTest, AMissingTrainerIsNamedWithTheRemedy) {
  WriteSweep("name = \"s\"\n");
  const Finished run = Do({"run", temp_ / "sweep.toml", "--workspace", temp_ / "runs"},
                          {{"HEADSWEEP_TRAINER", temp_ / "nothing"}});
  EXPECT_EQ(run.code, 2);
  EXPECT_TRUE(Has(run, "HEADSWEEP_TRAINER")) << run.output;
}

TEST_F(CommandsTest, LookingAtNothingSaysWhatToDo) {
  for (const char* command : {"status", "collect", "report", "resume"}) {
    const Finished finished =
        Do({command, "--workspace", temp_ / "runs"}, {{"HEADSWEEP_TRAINER", FakeTrainerPath()}});
    EXPECT_EQ(finished.code, 2) << command;
    EXPECT_TRUE(Has(finished, "headsweep run SWEEP.toml")) << finished.output;
  }
  EXPECT_EQ(Do({"logs", "3fa0", "--workspace", temp_ / "runs"}).code, 2);
  EXPECT_FALSE(std::filesystem::exists(temp_ / "runs"));
}

TEST_F(CommandsTest, LogsAreFoundByTheFirstDigitsOfTheTrial) {
  const Workspace workspace(temp_ / "runs");
  for (const char* stage : {"aaaa000011112222", "abbb000011112222"}) {
    std::filesystem::create_directories(workspace.AttemptDirectory(stage, 1));
    std::ofstream(workspace.AttemptLog(stage, 1)) << "one\ntwo\nthree of " << stage << "\n";
  }
  std::filesystem::create_directories(workspace.AttemptDirectory("aaaa000011112222", 10));
  std::ofstream(workspace.AttemptLog("aaaa000011112222", 10)) << "tenth\n";
  const auto logs = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "logs");
    arguments.insert(arguments.end(), {"--workspace", workspace.root()});
    return Do(arguments);
  };
  EXPECT_TRUE(Has(logs({"aa"}), "tenth"));
  const Finished two = logs({"ab", "-n", "2"});
  EXPECT_TRUE(Has(two, "two\nthree of abbb000011112222\n")) << two.output;
  EXPECT_FALSE(Has(two, "one")) << two.output;
  EXPECT_TRUE(Has(logs({"aaaa", "--attempt", "1", "-n", "0"}), "one\ntwo\n"));
  EXPECT_TRUE(Has(logs({"a"}), "fits 2 trials"));
  EXPECT_EQ(logs({"c"}).code, 2);
}

TEST_F(CommandsTest, DoctorAndDataListAndExpandWork) {
  const Finished doctor = Do({"doctor", "--json", "--workspace", temp_ / "runs"});
  EXPECT_LE(doctor.code, 1) << doctor.output;
  EXPECT_TRUE(json::parse(doctor.output).contains("findings"));
  EXPECT_TRUE(Has(Do({"data", "list", "--workspace", temp_ / "runs"}), "kjv"));
  WriteSweep("name = \"s\"\n[grid]\nseed = { count = 3 }\n");
  const Finished count = Do({"expand", temp_ / "sweep.toml", "--count"});
  EXPECT_EQ(count.code, 0);
  EXPECT_TRUE(Has(count, "3")) << count.output;
  EXPECT_EQ(Do({"expand", temp_ / "sweep.toml", "--count", "--json"}).code, 2);
}

TEST_F(CommandsTest, ACorpusIsPreparedAheadOfTime) {
  WriteSmallCorpus(temp_ / "text.txt", 200);
  const Finished prepared =
      Do({"data", "prepare", temp_ / "text.txt", "--vocabulary", "100", "--workspace", temp_ / "runs"});
  EXPECT_EQ(prepared.code, 0) << prepared.output;
  EXPECT_TRUE(Has(Do({"data", "list", "--workspace", temp_ / "runs"}), "text.txt"));
}

}  // namespace
}  // namespace headsweep
