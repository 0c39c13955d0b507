// A tiny real sweep over a made-up text that a test disturbs, and the promise that it ends with the same
// numbers as one that nobody disturbed, bit for bit, with nothing computed twice.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "launcher/journal.h"
#include "launcher/workspace.h"
#include "tests/support/headsweep_program.h"
#include "tests/support/temp_dir.h"

namespace headsweep::testing {

using nlohmann::json;
using Digests = std::map<std::string, std::string>;  // stage -> digest of all that must repeat

class DisturbedSweepTest : public ::testing::Test {
 protected:
  DisturbedSweepTest() {
    WriteSmallCorpus(temp_ / "text.txt", 400);
    std::ofstream(temp_ / "sweep.toml")
        << "name = \"s\"\n"
           "[task]\ncorpus = \"./text.txt\"\nvocabulary = 100\nlength = 16\n"
           "[model]\nlayers = 2\nembed = 16\nhead_size = 4\ndropout = 0.1\n"
           "[train]\nsteps = 24\nbatch = 4\nevaluate_every = 8\ncheckpoint_every = 4\n"
           "[grid]\n\"model.heads\" = [2, 3]\n"
           "[prune]\norder = [\"importance\"]\nstep = 0.5\n"
           "score_examples = 16\nevaluate_examples = 16\n";
  }

  std::unique_ptr<HeadsweepProgram> Start(const Workspace& workspace,
                                          const std::vector<std::string>& under = {}) {
    return std::make_unique<HeadsweepProgram>(
        std::vector<std::string>{"run", temp_ / "sweep.toml", "--no-report", "--slots",
                                 under.empty() ? "2" : "1", "--workspace", workspace.root()},
        temp_ / ("log-" + std::to_string(++programs_)),
        std::vector<std::pair<std::string, std::string>>{{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                                         {"OMPI_MCA_rmaps_base_oversubscribe", "1"}},
        under);
  }

  Digests DigestsOf(const Workspace& workspace, const std::string& sweep = "s") {
    const Finished status =
        HeadsweepProgram({"status", sweep, "--json", "--workspace", workspace.root()}, temp_ / "status").Wait();
    Digests digests;
    const json parsed = json::parse(status.output, nullptr, false);
    if (!parsed.is_object()) {
      ADD_FAILURE() << status.output;
      return digests;
    }
    for (const json& stage : parsed["stages"]) {
      EXPECT_EQ(stage["state"], "finished") << stage;
      digests[stage["id"]] = stage["summary"].is_object() ? stage["summary"].value("digest", "") : "";
      EXPECT_FALSE(digests[stage["id"]].empty()) << stage;
    }
    return digests;
  }

  // The undisturbed run that all others are compared with.
  Digests Reference() {
    const Workspace workspace(temp_ / "undisturbed");
    const Finished run = Start(workspace)->Wait();
    EXPECT_EQ(run.code, 0) << run.output;
    const Digests digests = DigestsOf(workspace);
    EXPECT_EQ(digests.size(), 4u);
    EXPECT_NE(digests.begin()->second, digests.rbegin()->second)
        << "a digest that never changes proves nothing";
    return digests;
  }

  static std::vector<JournalEvent> Events(const Workspace& workspace) {
    return ReadJournal(FileSystem::Real(), workspace.Journal("s")).events;
  }
  static std::set<std::string> FinishedIn(const std::vector<JournalEvent>& events) {
    std::set<std::string> stages;
    for (const JournalEvent& event : events)
      if (event.type == journal::kStageAdopted ||
          (event.type == journal::kAttemptEnded && event.fields.at("outcome") == "finished"))
        stages.insert(event.stage);
    return stages;
  }
  // No stage is started after it was finished.
  static void ExpectNothingRanTwice(const Workspace& workspace) {
    std::set<std::string> finished;
    for (const JournalEvent& event : Events(workspace)) {
      if (event.type == journal::kAttemptStarted) {
        EXPECT_FALSE(finished.contains(event.stage))
            << event.stage << " ran again as attempt " << event.attempt;
      }
      for (const std::string& stage : FinishedIn({event})) finished.insert(stage);
    }
  }
  static void KillTrials(const Workspace& workspace) {
    for (const TaggedProcess& process : FindTaggedProcesses())
      if (process.sweep.starts_with(workspace.root() + "/")) ::kill(process.pid, SIGKILL);
  }

  TempDir temp_;
  int programs_ = 0;
};

}  // namespace headsweep::testing
