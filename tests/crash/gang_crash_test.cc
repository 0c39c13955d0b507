// A trial of two processes: kill or freeze one of them at any moment, and within a stated bound every process
// of the trial is gone, the journal says once why, and the next attempt ends with the bits of the undisturbed
// run. Real launcher, real trainers, and for the first test three "nodes" with networks of their own under
// mpirun.
//   HEADSWEEP_GANG_RUNS=50     disturbed runs (default 4)
//   HEADSWEEP_GANG_SEED=7      of the moments
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "cluster/base/clock.h"
#include "cluster/base/run_program.h"
#include "launcher/journal.h"
#include "launcher/workspace.h"
#include "tests/crash/network_nodes.h"
#include "tests/support/headsweep_program.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using namespace testing;
using nlohmann::json;

constexpr double kTimeout = 3;    // HEADSWEEP_COLLECTIVE_TIMEOUT of the runs here
constexpr double kDeadBound = 2;  // seconds from a death to the end of the trial's last process
constexpr double kFrozenBound = kTimeout + 2;

int NumberFrom(const char* variable, int fallback) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : fallback;
}

class GangCrashTest : public ::testing::Test {
 protected:
  GangCrashTest() {
    WriteSmallCorpus(temp_ / "text.txt", 400);
    WriteSweep("[2]");
  }
  void WriteSweep(const std::string& heads) {
    std::ofstream(temp_ / "sweep.toml")
        << "name = \"s\"\n"
           "[task]\ncorpus = \"./text.txt\"\nvocabulary = 100\nlength = 16\n"
           "[model]\nlayers = 2\nembed = 16\nhead_size = 4\ndropout = 0.1\n"
           "[train]\nsteps = 300\nbatch = 6\nevaluate_every = 100\ncheckpoint_every = 20\n"
           "[grid]\n\"model.heads\" = "
        << heads << "\n[run]\ndevices = 2\nretries = 3\n";
  }

  std::unique_ptr<HeadsweepProgram> Start(const Workspace& workspace, int slots,
                                          const std::vector<std::string>& under = {}) {
    return std::make_unique<HeadsweepProgram>(
        std::vector<std::string>{"run", temp_ / "sweep.toml", "--no-report", "--slots", std::to_string(slots),
                                 "--workspace", workspace.root()},
        temp_ / ("log-" + std::to_string(++programs_)),
        std::vector<std::pair<std::string, std::string>>{
            {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
            {"HEADSWEEP_COLLECTIVE_TIMEOUT", std::to_string(kTimeout)}},
        under);
  }

  static std::vector<JournalEvent> Events(const Workspace& workspace) {
    if (!FileSystem::Real().Exists(workspace.Journal("s"))) return {};
    return ReadJournal(FileSystem::Real(), workspace.Journal("s")).events;
  }
  // Digest of every finished stage, as the journal has it.
  static std::map<std::string, std::string> Digests(const Workspace& workspace) {
    std::map<std::string, std::string> digests;
    for (const JournalEvent& event : Events(workspace)) {
      if (event.type != journal::kAttemptEnded || event.fields.at("outcome") != "finished") continue;
      const json summary = json::parse(event.fields.at("summary"), nullptr, false);
      digests[event.stage] = summary.is_object() ? summary.value("digest", "") : "";
    }
    return digests;
  }
  static std::vector<JournalEvent> Failures(const Workspace& workspace, const std::string& stage) {
    std::vector<JournalEvent> failures;
    for (const JournalEvent& event : Events(workspace))
      if (event.type == journal::kAttemptEnded && event.stage == stage &&
          event.fields.at("outcome") != "finished")
        failures.push_back(event);
    return failures;
  }

  // From the start of the only attempt to its end.
  static double TrialSeconds(const Workspace& workspace) {
    double started = 0, ended = 0;
    for (const JournalEvent& event : Events(workspace)) {
      if (event.type == journal::kAttemptStarted) started = event.time;
      if (event.type == journal::kAttemptEnded) ended = event.time;
    }
    return std::max(0.1, ended - started);
  }

  // Trainers of this workspace; stage: "<id>/<attempt>/<rank>", or a part of it from its start.
  static std::vector<TaggedProcess> Trainers(const Workspace& workspace, const std::string& stage = "") {
    std::vector<TaggedProcess> trainers = FindTaggedProcesses();
    std::erase_if(trainers, [&](const TaggedProcess& process) {
      return !process.sweep.starts_with(workspace.root() + "/") || !process.stage.starts_with(stage);
    });
    std::sort(trainers.begin(), trainers.end(),
              [](const auto& a, const auto& b) { return a.stage < b.stage; });
    return trainers;
  }

  // Signals one of the trainers and measures how long the trial's processes live on.
  void Disturb(const Workspace& workspace, const TaggedProcess& victim, int signal) {
    const std::string attempt = victim.stage.substr(0, victim.stage.rfind('/') + 1);
    const SystemClock clock;
    const double sent = clock.Monotonic();
    ::kill(victim.pid, signal);
    ASSERT_TRUE(WaitUntil([&] { return Trainers(workspace, attempt).empty(); })) << "an orphan lives on";
    const double took = clock.Monotonic() - sent;
    (signal == SIGKILL ? slowest_death_ : slowest_freeze_) =
        std::max(signal == SIGKILL ? slowest_death_ : slowest_freeze_, took);
    EXPECT_LE(took, signal == SIGKILL ? kDeadBound : kFrozenBound) << victim.stage;
  }

  TempDir temp_;
  int programs_ = 0;
  double slowest_death_ = 0, slowest_freeze_ = 0;
};

TEST_F(GangCrashTest, OverThreeNodesAKilledOrFrozenProcessEndsTheTrialInTimeAndTheBitsAreTheSame) {
  const NetworkNodes nodes(3);
  if (!nodes.up()) GTEST_SKIP() << nodes.why_not();
  const int runs = NumberFrom("HEADSWEEP_GANG_RUNS", 4), seed = NumberFrom("HEADSWEEP_GANG_SEED", 1);
  std::mt19937 random(static_cast<unsigned>(seed));
  const Workspace whole(temp_ / "whole");
  const SystemClock clock;
  const Finished undisturbed = Start(whole, 1, nodes.Mpirun({"HEADSWEEP_COLLECTIVE_TIMEOUT"}))->Wait();
  ASSERT_EQ(undisturbed.code, 0) << undisturbed.output;
  const auto reference = Digests(whole);
  ASSERT_EQ(reference.size(), 1u);
  const auto milliseconds = static_cast<unsigned>(1000 * TrialSeconds(whole));

  int disturbed = 0, killed = 0;
  for (int run = 0; run < runs; ++run) {
    const Workspace workspace(temp_ / ("run-" + std::to_string(run)));
    FileSystem::Real().CreateDirectories(workspace.root());
    std::filesystem::copy(whole.root() + "/data", workspace.root() + "/data",
                          std::filesystem::copy_options::recursive);
    auto program = Start(workspace, 1, nodes.Mpirun({"HEADSWEEP_COLLECTIVE_TIMEOUT"}));
    const int signal = run % 2 == 0 ? SIGKILL : SIGSTOP;
    SCOPED_TRACE(fmt::format("seed {}, run {}, signal {}", seed, run, signal));
    ASSERT_TRUE(WaitUntil([&] { return Trainers(workspace).size() == 2 || !program->Running(); }));
    // From the first moments of the meeting to near the end, at this machine's speed.
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % (milliseconds * 4 / 5)));
    const std::vector<TaggedProcess> trainers = Trainers(workspace);
    const bool hit = trainers.size() == 2;
    if (hit) Disturb(workspace, trainers[random() % 2], signal);
    const Finished end = program->Wait();
    ASSERT_EQ(end.code, 0) << end.output;
    EXPECT_EQ(Digests(workspace), reference);
    EXPECT_TRUE(Trainers(workspace).empty());
    const std::vector<JournalEvent> failures = Failures(workspace, reference.begin()->first);
    ASSERT_LE(failures.size(), 1u) << "one cause, one attempt";
    if (failures.empty()) continue;  // it was over: the result was sealed already
    ++disturbed;
    killed += signal == SIGKILL;
    EXPECT_EQ(failures[0].fields.at("cause"), signal == SIGKILL ? "signal" : "peer")
        << failures[0].fields.at("message");
    EXPECT_THAT(failures[0].fields.at("message"), ::testing::HasSubstr("rank "));
    if (::testing::Test::HasFailure()) break;
  }
  std::printf(
      "%d of %d runs disturbed (%d killed, %d frozen); slowest end after a death %.2f s, after a freeze %.2f "
      "s "
      "(timeout %.0f s)\n",
      disturbed, runs, killed, disturbed - killed, slowest_death_, slowest_freeze_, kTimeout);
  EXPECT_GE(2 * disturbed, runs) << "most came too late to disturb anything";
}

TEST_F(GangCrashTest, OtherTrialsDoNotNotice) {
  WriteSweep("[2, 3]");
  const Workspace workspace(temp_ / "runs");
  auto program = Start(workspace, 4);
  ASSERT_TRUE(WaitUntil([&] { return Trainers(workspace).size() == 4 || !program->Running(); }));
  ASSERT_TRUE(program->Running()) << program->output();
  const TaggedProcess victim = Trainers(workspace).front();
  Disturb(workspace, victim, SIGKILL);
  const Finished end = program->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  const std::string hit = victim.stage.substr(0, victim.stage.find('/'));
  for (const auto& [stage, digest] : Digests(workspace))
    EXPECT_EQ(Failures(workspace, stage).size(), stage == hit ? 1u : 0u) << stage;
  EXPECT_EQ(Digests(workspace).size(), 2u);
}

}  // namespace
}  // namespace headsweep
