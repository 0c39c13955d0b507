// The scheduler core in a simulated world: thousands of random schedules, every promise checked after every
// event. The mutants prove that the checks bite: some are mistakes around the core, others mistakes in it,
// compiled from edited copies of its sources (CMakeLists.txt). HEADSWEEP_TEST_SEED=<n> runs one schedule;
// HEADSWEEP_TEST_SCHEDULES=<n> runs that many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cluster/base/run_program.h"
#include "tests/launcher/simulation.h"

namespace headsweep {
namespace {

using testing::Mutant;

std::uint64_t Number(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(Simulation, EveryPromiseHoldsOnEveryRandomSchedule) {
  const std::uint64_t only = Number("HEADSWEEP_TEST_SEED", 0);
  const std::uint64_t schedules = only != 0 ? 1 : Number("HEADSWEEP_TEST_SCHEDULES", 20000);
  testing::SimulationTotals totals;
  const auto failure = testing::Simulate(only != 0 ? only : 1, schedules, Mutant::kNone, &totals);
  ASSERT_FALSE(failure.has_value()) << testing::Describe(*failure);
  RecordProperty("starts", std::to_string(totals.starts));
  RecordProperty("launches", std::to_string(totals.launches));
  // The schedules must be worth something: attempts that are repeated, and coordinators that are killed.
  if (only == 0) {
    EXPECT_GT(totals.starts, static_cast<std::int64_t>(schedules) * 5);
    EXPECT_GT(totals.launches, static_cast<std::int64_t>(schedules) * 2);
  }
}

class SimulationMutant : public ::testing::TestWithParam<std::pair<Mutant, const char*>> {};

TEST_P(SimulationMutant, IsCaught) {
  constexpr std::uint64_t kSchedules = 2000;
  const auto failure = testing::Simulate(1, kSchedules, GetParam().first);
  ASSERT_TRUE(failure.has_value()) << "the simulation does not notice this mistake in " << kSchedules
                                   << " schedules";
  std::printf("%s", testing::Describe(*failure).c_str());
  EXPECT_LT(failure->shortest.steps.size(), testing::kHostileSteps / 2) << "the shrinker does not shrink";
}

INSTANTIATE_TEST_SUITE_P(Simulation, SimulationMutant,
                         ::testing::Values(std::pair(Mutant::kNoFencing, "NoFencing"),
                                           std::pair(Mutant::kActBeforeSync, "ActBeforeSync"),
                                           std::pair(Mutant::kLostIsNotDead, "LostIsNotDead"),
                                           std::pair(Mutant::kGangEndsWithOne, "GangEndsWithOne"),
                                           std::pair(Mutant::kReportBeforeSeal, "ReportBeforeSeal"),
                                           std::pair(Mutant::kEndSaidOnce, "EndSaidOnce"),
                                           std::pair(Mutant::kForgetJournal, "ForgetJournal")),
                         [](const auto& param_info) { return std::string(param_info.param.second); });

// Programs that hold the simulation and a core with one planted mistake.
class CoreMutant : public ::testing::TestWithParam<const char*> {};

TEST_P(CoreMutant, IsCaught) {
  const std::string program = std::string(HEADSWEEP_BINARY_DIR) + "/tests/simulate_" + GetParam();
  const ProgramResult result = RunProgram({program, "1", "2000"}, 60);
  std::printf("%s", result.output.c_str());
  EXPECT_EQ(result.exit_code, 3) << "the simulation does not notice this mistake in 2000 schedules";
}

TEST(CoreMutant, TheRealCorePassesTheSameProgram) {
  const ProgramResult result =
      RunProgram({std::string(HEADSWEEP_BINARY_DIR) + "/tests/simulate", "1", "2000"}, 60);
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

INSTANTIATE_TEST_SUITE_P(Simulation, CoreMutant, ::testing::Values(HEADSWEEP_CORE_MUTANTS),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace headsweep
