// headsweep: the command that people type. This is the one place where errors of the process end up.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "cluster/base/errors.h"
#include "cluster/base/log.h"
#include "launcher/commands/command.h"
#include "launcher/job_record.h"
#include "launcher/mpi_link.h"

namespace headsweep {
namespace {

// Ranks other than the first do the same but say nothing about wrong usage: one complaint is enough.
bool IsSilentRank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    const char* rank = std::getenv(name);
    if (rank != nullptr) return std::atoi(rank) != 0;
  }
  return false;
}

bool NeedsEveryRank(const std::vector<std::string>& arguments) {
  return !arguments.empty() && (arguments.front() == "run" || arguments.front() == "resume");
}

// What `headsweep doctor --cluster` starts on nodes.
bool LooksFromNode(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& word) { return word.starts_with("--look-"); });
}

int Main(const std::vector<std::string>& arguments) {
  try {
    StartLog("headsweep", LogLevel::kWarning);
    if (IsSilentRank() && !NeedsEveryRank(arguments) && !LooksFromNode(arguments)) return kExitDone;
    const int exit_code = RunCommandLine(arguments);
    if (NeedsEveryRank(arguments) && !IsSilentRank()) LeaveExitCode(exit_code);
    return exit_code;
  } catch (const ConfigError& error) {
    if (IsSilentRank()) return kExitUsage;
    if (NeedsEveryRank(arguments)) LeaveExitCode(kExitUsage);
    for (const Diagnostic& diagnostic : error.diagnostics()) {
      const std::string text = ToString(diagnostic);
      std::fprintf(stderr, "%s%s\n", diagnostic.file.empty() ? "headsweep: " : "", text.c_str());
    }
    if (error.diagnostics().size() > 1) std::fprintf(stderr, "%zu complaints\n", error.diagnostics().size());
    return kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headsweep: %s\n", error.what());
    return kExitFailed;
  }
}

}  // namespace
}  // namespace headsweep

int main(int argc, char** argv) { return headsweep::Main({argv + 1, argv + argc}); }
