// The scheduler core in a simulated world: thousands of random schedules, every promise checked after every
// event. The mutants prove that the checks bite. HEADSWEEP_TEST_SEED=<n> runs one schedule;
// HEADSWEEP_TEST_SCHEDULES=<n> runs that many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/launcher/simulated_world.h"

namespace headsweep {
namespace {

using testing::Mutant;
using testing::SimulatedWorld;
using testing::Violation;

constexpr int kHostileSteps = 200;

std::uint64_t Number(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(Simulation, EveryPromiseHoldsOnEveryRandomSchedule) {
  const std::uint64_t only = Number("HEADSWEEP_TEST_SEED", 0);
  const std::uint64_t schedules = only != 0 ? 1 : Number("HEADSWEEP_TEST_SCHEDULES", 5000);
  std::int64_t starts = 0, launches = 0;
  for (std::uint64_t i = 1; i <= schedules; ++i) {
    const std::uint64_t seed = only != 0 ? only : i;
    // A broken invariant aborts: the seed of the schedule that did it must be on the screen by then.
    ::setenv("HEADSWEEP_SIMULATION_SEED", std::to_string(seed).c_str(), 1);
    try {
      SimulatedWorld world(seed, Mutant::kNone);
      world.Run(kHostileSteps);
      starts += world.starts();
      launches += world.launches();
    } catch (const Violation& violation) {
      FAIL() << violation.what() << "; repeat with HEADSWEEP_TEST_SEED=" << seed;
    }
  }
  RecordProperty("starts", std::to_string(starts));
  RecordProperty("launches", std::to_string(launches));
  // The schedules must be worth something: attempts that are repeated, and coordinators that are killed.
  if (only == 0) {
    EXPECT_GT(starts, static_cast<std::int64_t>(schedules) * 5);
    EXPECT_GT(launches, static_cast<std::int64_t>(schedules) * 2);
  }
}

class SimulationMutant : public ::testing::TestWithParam<std::pair<Mutant, const char*>> {};

TEST_P(SimulationMutant, IsCaught) {
  constexpr std::uint64_t kSchedules = 2000;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    try {
      SimulatedWorld world(seed, GetParam().first);
      world.Run(kHostileSteps);
    } catch (const Violation& violation) {
      RecordProperty("caught", "schedule " + std::to_string(seed) + ": " + violation.what());
      std::printf("  caught by schedule %llu: %s\n", static_cast<unsigned long long>(seed), violation.what());
      return;
    }
  }
  FAIL() << "the simulation does not notice this mistake in " << kSchedules << " schedules";
}

INSTANTIATE_TEST_SUITE_P(Simulation, SimulationMutant,
                         ::testing::Values(std::pair(Mutant::kNoFencing, "NoFencing"),
                                           std::pair(Mutant::kActBeforeSync, "ActBeforeSync"),
                                           std::pair(Mutant::kLostIsNotDead, "LostIsNotDead"),
                                           std::pair(Mutant::kGangEndsWithOne, "GangEndsWithOne"),
                                           std::pair(Mutant::kReportBeforeSeal, "ReportBeforeSeal"),
                                           std::pair(Mutant::kForgetJournal, "ForgetJournal")),
                         [](const auto& param_info) { return std::string(param_info.param.second); });

}  // namespace
}  // namespace headsweep
