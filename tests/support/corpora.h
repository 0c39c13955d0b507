// Real texts for tests: $HEADSWEEP_CORPORA, or ../shared/corpora beside the project. Tests that need one skip visibly.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace headsweep::testing {

// Path of a file of the corpora folder, or "" where there is none.
inline std::string CorpusFile(const std::string& name) {
  const char* set = std::getenv("HEADSWEEP_CORPORA");
  const std::filesystem::path root =
      set != nullptr ? std::filesystem::path(set)
                     : std::filesystem::path(HEADSWEEP_SOURCE_DIR) / ".." / "shared" / "corpora";
  std::error_code error;
  const auto path = std::filesystem::weakly_canonical(root / name, error);
  return !error && std::filesystem::exists(path) ? path.string() : "";
}

}  // namespace headsweep::testing
