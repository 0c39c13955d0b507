// simulate FIRST COUNT: runs that many schedules of the scheduler's simulation from seed FIRST on; prints the
// first that fails, shortened, and exits 3; 0 if none does. The mutants of the core are this program, linked
// with an edited core.
#include <cstdio>
#include <cstdlib>

#include "tests/launcher/simulation.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: simulate FIRST COUNT\n");
    return 2;
  }
  using namespace headsweep::testing;
  SimulationTotals totals;
  const auto failure = Simulate(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10),
                                Mutant::kNone, &totals);
  if (failure) {
    std::printf("%s", Describe(*failure).c_str());
    return 3;
  }
  std::printf("no promise broken: %lld attempts, %lld launches\n", static_cast<long long>(totals.starts),
              static_cast<long long>(totals.launches));
  return 0;
}
