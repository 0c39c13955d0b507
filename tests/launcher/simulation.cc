#include "tests/launcher/simulation.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "cluster/base/errors.h"

namespace headsweep::testing {

namespace {

// What a child tells its parent while it runs, and after an abort: memory shared by both.
struct Shared {
  std::uint64_t seed;
  SimulationTotals totals;
};

struct ChildEnd {
  bool failed = false;
  std::string output;  // stdout and stderr
};

// Runs `work` in a child with its output in a file. Failed: a Violation, or any death by signal.
ChildEnd InChild(const std::function<void()>& work) {
  std::FILE* output = std::tmpfile();
  HEADSWEEP_CHECK(output != nullptr, "no temporary file");
  std::fflush(nullptr);
  const pid_t child = ::fork();
  HEADSWEEP_CHECK(child >= 0, "fork failed");
  if (child == 0) {
    ::dup2(::fileno(output), STDOUT_FILENO);
    ::dup2(::fileno(output), STDERR_FILENO);
    try {
      work();
    } catch (const Violation& violation) {
      std::printf("%s\n", violation.what());
      std::fflush(nullptr);
      ::_exit(3);
    }
    std::fflush(nullptr);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ChildEnd end;
  end.failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  std::rewind(output);
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, output)) > 0;) end.output.append(buffer, n);
  std::fclose(output);
  return end;
}

ChildEnd Try(const Schedule& schedule, Mutant mutant, bool trace) {
  return InChild([&] { SimulatedWorld(schedule, mutant, trace).Run(); });
}

// Leaves out ever smaller runs of steps (Zeller & Hildebrandt 2002, "Simplifying and isolating
// failure-inducing input") until no single step can go.
Schedule Shorten(Schedule schedule, Mutant mutant) {
  for (std::size_t size = std::max<std::size_t>(1, schedule.steps.size() / 2); size >= 1;) {
    bool shorter = false;
    for (std::size_t at = 0; at < schedule.steps.size();) {
      Schedule candidate = schedule;
      const auto begin = candidate.steps.begin() + static_cast<std::ptrdiff_t>(at);
      candidate.steps.erase(begin,
                            begin + static_cast<std::ptrdiff_t>(std::min(size, candidate.steps.size() - at)));
      if (Try(candidate, mutant, false).failed) {
        schedule = candidate;
        shorter = true;
      } else {
        at += size;
      }
    }
    if (size == 1 && !shorter) break;
    size = std::max<std::size_t>(1, size / 2);
  }
  return schedule;
}

std::string LastLine(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

}  // namespace

std::optional<SimulationFailure> Simulate(std::uint64_t first, std::uint64_t count, Mutant mutant,
                                          SimulationTotals* totals) {
  auto* shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  HEADSWEEP_CHECK(shared != MAP_FAILED, "no shared memory");
  const ChildEnd end = InChild([&] {
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      shared->seed = seed;
      SimulatedWorld world(RandomSchedule(seed, kHostileSteps), mutant);
      world.Run();
      shared->totals.starts += world.starts();
      shared->totals.launches += world.launches();
    }
  });
  if (totals != nullptr) *totals = shared->totals;
  const std::uint64_t seed = shared->seed;
  ::munmap(shared, sizeof(Shared));
  if (!end.failed) return std::nullopt;
  SimulationFailure failure;
  failure.seed = seed;
  failure.message = LastLine(end.output);
  failure.shortest = Shorten(RandomSchedule(seed, kHostileSteps), mutant);
  failure.trace = Try(failure.shortest, mutant, true).output;
  return failure;
}

std::string Describe(const SimulationFailure& failure) {
  return fmt::format(
      "{}\nschedule {} (repeat with HEADSWEEP_TEST_SEED={}), shortened from {} hostile steps to {}:\n{}",
      failure.message, failure.seed, failure.seed, kHostileSteps, failure.shortest.steps.size(),
      failure.trace);
}

}  // namespace headsweep::testing
