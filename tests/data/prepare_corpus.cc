// prepare_corpus TEXT VOCABULARY DATA_ROOT: PrepareCorpus in a process of its own, for tests that kill it or
// run several. Prints the phases as they come.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cluster/base/errors.h"
#include "data/corpus.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: prepare_corpus TEXT VOCABULARY DATA_ROOT\n");
    return headsweep::kExitUsage;
  }
  try {
    headsweep::PrepareCorpus({argv[1], std::atoi(argv[2])}, argv[3], headsweep::FileSystem::Real(),
                             [](const std::string& phase) { std::printf("%s\n", phase.c_str()); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return headsweep::kExitFailed;
  }
  return headsweep::kExitDone;
}
