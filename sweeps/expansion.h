// `headsweep expand`: what a sweep would run, as text or JSON, before anything runs. Reads the sweep file and
// nothing else (except what fingerprint_of reads, if one is given); writes nothing to disk.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "sweeps/plan.h"

namespace headsweep {

enum class ExpandView {
  kTable,       // counts, one row a trial with its cost, totals
  kCount,       // counts alone; lazy, any size
  kList,        // one line a point: number, tab, "heads = 4, seed = 1"; lazy, any size, duplicates not merged
  kJson,        // everything, for programs
  kKeys,        // the table of keys; needs no sweep
  kExclusions,  // every [[exclude]] with the number of points it excludes and examples; lazy
};

struct ExpandOptions {
  std::string sweep_path;
  ExpandView view = ExpandView::kTable;
  double gflops = 0;  // of one process, for the time estimate; 0 = measured here, times run.threads on CPUs
  FingerprintOf fingerprint_of;   // empty: trials are shown without ids
  std::uint64_t most_rows = 200;  // of the table; 0 = all
};

// Throws ConfigError. Warnings go to `notes` ("file:line:column: warning: …"), the rest to `out`.
void Expand(const ExpandOptions& options, std::ostream& out, std::ostream& notes);

// "1.5 MiB", "2 min", "12,345"
std::string HumanBytes(double bytes);
std::string HumanSeconds(double seconds);  // 0: "?"
std::string HumanCount(std::uint64_t count);

}  // namespace headsweep
