// Running simulated worlds, each in a child process, since a broken invariant of the core aborts; and
// shrinking a schedule that fails to the shortest one that still does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/launcher/simulated_world.h"

namespace headsweep::testing {

inline constexpr int kHostileSteps = 200;

struct SimulationTotals {
  std::int64_t starts = 0, launches = 0;
};

struct SimulationFailure {
  std::uint64_t seed = 0;
  std::string message;  // the promise that was broken
  Schedule shortest;    // still breaks a promise; no step can be left out
  std::string trace;    // of the shortest: events, records, commands
};

// Runs schedules first .. first + count - 1 (kHostileSteps each) and stops at the first that fails.
std::optional<SimulationFailure> Simulate(std::uint64_t first, std::uint64_t count, Mutant mutant,
                                          SimulationTotals* totals = nullptr);

// For people: the message, the seed, how to repeat it, the shortest schedule's trace.
std::string Describe(const SimulationFailure& failure);

}  // namespace headsweep::testing
