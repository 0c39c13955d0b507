// A node's cable is pulled out while its trials run. Its trials go on elsewhere; when the cable is back, the node takes part again;
// what it did meanwhile counts for nothing. Real mpirun over network namespaces, real trainers.
#include <algorithm>

#include "tests/crash/disturbed_sweep.h"
#include "tests/crash/network_nodes.h"

namespace headsweep {
namespace {

using namespace testing;

class CutLinkTest : public DisturbedSweepTest {
 protected:
  // Three long trials, which start first, one on each node; and three short ones behind them.
  CutLinkTest() {
    std::ofstream(temp_ / "sweep.toml")
        << "name = \"s\"\n"
           "[task]\ncorpus = \"./text.txt\"\nvocabulary = 100\nlength = 16\n"
           "[model]\nlayers = 2\nembed = 16\nhead_size = 4\nheads = 2\n"
           "[train]\nbatch = 4\nevaluate_every = 10000\ncheckpoint_every = 500\n"
           "[grid]\nseed = { count = 3 }\n\"train.steps\" = [20000, 100]\n";
  }

  std::unique_ptr<HeadsweepProgram> StartOver(const NetworkNodes& nodes, const Workspace& workspace) {
    return std::make_unique<HeadsweepProgram>(
        std::vector<std::string>{"run", temp_ / "sweep.toml", "--no-report", "--slots", "1", "--workspace", workspace.root()},
        temp_ / "log-cut",
        std::vector<std::pair<std::string, std::string>>{{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                                         {"HEADSWEEP_KILL_GRACE", "0.3"},
                                                         {"HEADSWEEP_NODE_TIMEOUT", "5"}},
        nodes.Mpirun({"HEADSWEEP_KILL_GRACE", "HEADSWEEP_NODE_TIMEOUT"}));
  }

  // Stages that were started on the host, in order.
  static std::vector<std::string> StartedOn(const Workspace& workspace, const std::string& host) {
    std::vector<std::string> stages;
    if (!FileSystem::Real().Exists(workspace.Journal("s"))) return stages;
    for (const JournalEvent& event : Events(workspace))
      if (event.type == journal::kAttemptStarted && journal::Field(event, "host") == host) stages.push_back(event.stage);
    return stages;
  }
  static bool Says(const HeadsweepProgram& program, const std::string& text) {
    return program.output().find(text) != std::string::npos;
  }
};

TEST_F(CutLinkTest, TheSweepGoesOnWithoutTheNodeAndWithItAgainAndTheBitsAreTheSame) {
  const NetworkNodes nodes(3);
  if (!nodes.up()) GTEST_SKIP() << nodes.why_not();
  const Workspace workspace(temp_ / "cut"), undisturbed(temp_ / "undisturbed");
  ASSERT_EQ(Start(undisturbed)->Wait().code, 0);
  auto program = StartOver(nodes, workspace);
  const std::string host = nodes.Host(2);
  const auto its_trial = [&] {
    const std::vector<std::string> stages = StartedOn(workspace, host);
    return stages.empty() ? "" : stages.front();
  };
  const auto has_checkpoint = [&] {
    const std::string stage = its_trial();
    for (const JournalEvent& event : stage.empty() ? std::vector<JournalEvent>() : Events(workspace))
      if (event.type == journal::kCheckpointed && event.stage == stage) return true;
    return false;
  };
  ASSERT_TRUE(WaitUntil([&] { return has_checkpoint() || !program->Running(); }));
  ASSERT_TRUE(program->Running()) << program->output();
  const std::string stage = its_trial();
  ASSERT_TRUE(nodes.Cut(2));
  // Nothing new is started until the node is back, so that there is something left for it.
  ASSERT_EQ(HeadsweepProgram({"pause", "s", "--workspace", workspace.root()}, temp_ / "log-pause").Wait().code, 0);
  ASSERT_TRUE(WaitUntil([&] { return Says(*program, "(" + host + ") is lost") || !program->Running(); }));
  const std::vector<JournalEvent> events = Events(workspace);
  const auto end = std::find_if(events.begin(), events.end(), [&](const JournalEvent& event) {
    return event.type == journal::kAttemptEnded && event.stage == stage;
  });
  ASSERT_NE(end, events.end()) << program->output();
  EXPECT_EQ(journal::Field(*end, "cause"), "lost-node");
  EXPECT_EQ(journal::Field(*end, "charged"), "no");
  ASSERT_TRUE(nodes.Heal(2));
  ASSERT_TRUE(WaitUntil([&] { return Says(*program, "(" + host + ") is back") || !program->Running(); }));
  ASSERT_TRUE(program->Running()) << program->output();
  ASSERT_EQ(HeadsweepProgram({"continue", "s", "--workspace", workspace.root()}, temp_ / "log-on").Wait().code, 0);
  const Finished run = program->Wait();
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_GT(StartedOn(workspace, host).size(), 1u) << "it gets nothing to do any more:\n" << run.output;
  ExpectNothingRanTwice(workspace);
  EXPECT_EQ(CountTrialProcesses(workspace.root()), 0);
  EXPECT_EQ(DigestsOf(workspace), DigestsOf(undisturbed));
}

}  // namespace
}  // namespace headsweep
