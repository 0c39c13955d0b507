// Schedules of the simulation, which decide everything that happens in it, and the mistakes that it must catch.
#pragma once

#include <cstdint>
#include <vector>

namespace headsweep::testing {

// What the simulation must catch: each is one way to build the coordinator or the agents wrong.
enum class Mutant {
  kNone,
  kNoFencing,         // a message counts for the stage's latest attempt, whichever attempt sent it
  kActBeforeSync,     // commands are carried out before their records are on the disk
  kLostIsNotDead,     // a silent node is called lost while its trainers still run, and joins again
  kGangEndsWithOne,   // the end of one process of a gang is reported as the end of the attempt
  kReportBeforeSeal,  // a trainer says "finished" before its result is on the disk
  kEndSaidOnce,       // an agent that is told to kill what is over does not say again that it is
  kForgetJournal,     // the coordinator starts from the results alone
};

// What is decided by chance: the plan and the nodes by `world`, then each hostile step by a seed of its own,
// so that a step can be left out without changing what the others do.
struct Schedule {
  std::uint64_t world = 0;
  std::vector<std::uint64_t> steps;
};

// SplitMix64 (Steele, Lea & Flood 2014): good enough here, and made in no time for each step.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

inline Schedule RandomSchedule(std::uint64_t seed, int hostile_steps) {
  Schedule schedule{seed, {}};
  Chance chance(~seed);
  for (int i = 0; i < hostile_steps; ++i) schedule.steps.push_back(chance.Next());
  return schedule;
}

}  // namespace headsweep::testing
