// What becomes of a job whose agents have ended: pure, so that every case is a line of a table in the test. Two rules:
// whoever wants the sweep stopped (a person, or Slurm clearing the job away) gets it stopped, and a job is only tried
// again while the sweep moves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headsweep {

struct RunEnd {
  std::optional<int> coordinator;  // its own exit code; nullopt: it died without a word
  int srun = 0;                    // exit code of the command that started the agents; 128 + signal
  std::string cancelled_by;        // `headsweep cancel`: who; "" = nobody
  bool slurm_ends_job = false;     // Slurm told the batch process itself to end: scancel, preemption, time limit
  bool at_time_limit = false;      // … and the limit was reached, or nearly
  std::int64_t progress_before = 0, progress_after = 0;  // any measure that grows with work that is safe on disk
  int futile_before = 0;           // runs right before this one that ended without progress
  int requeues = 0;                // how often the job was requeued for being unfinished
  int most_requeues = 100;
};

inline constexpr int kMostFutileRuns = 3;  // chosen: one for the node's sake, one for chance

struct RunDecision {
  bool again = false;   // put the job back into the queue
  int exit_code = 0;    // of the batch script: kExitDone, kExitFailed, kExitUsage, kExitResumable
  bool futile = false;  // counts for futile_before of the next run
  std::string reason;   // for people
};

RunDecision DecideAfterRun(const RunEnd& end);

}  // namespace headsweep
