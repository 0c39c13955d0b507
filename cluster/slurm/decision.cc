#include "cluster/slurm/decision.h"

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// How the agents ended, for people.
std::string Describe(const RunEnd& end) {
  if (end.coordinator) return "stopped with everything saved";
  if (end.srun > 128) return fmt::format("the agents were ended by signal {}", end.srun - 128);
  return fmt::format("the agents could not run, or died (srun ended with code {})", end.srun);
}

}  // namespace

RunDecision DecideAfterRun(const RunEnd& end) {
  if (end.coordinator == kExitDone) return {false, kExitDone, false, "everything is done"};
  if (end.coordinator == kExitFailed)
    return {false, kExitFailed, false, "some trials failed: trying again is for a person to decide"};
  if (end.coordinator == kExitUsage)
    return {false, kExitUsage, false, "the sweep cannot run, or another launcher runs it; see above"};
  if (!end.cancelled_by.empty())
    return {false, kExitResumable, false, fmt::format("cancelled by {}", end.cancelled_by)};
  if (end.slurm_ends_job && !end.at_time_limit)
    return {false, kExitResumable, false,
            "Slurm ends the job (scancel, preemption, or a requeue by somebody): what comes next is up to that"};
  const bool futile = end.progress_after <= end.progress_before;
  if (futile && end.futile_before + 1 >= kMostFutileRuns)
    return {false, kExitFailed, true,
            fmt::format("{} runs in a row ended without a new checkpoint or result, the last one so: {}. Not tried again",
                        end.futile_before + 1, Describe(end))};
  if (end.requeues >= end.most_requeues)
    return {false, kExitResumable, futile,
            fmt::format("{}, and already requeued {} times, the most that --max-requeues allows", Describe(end),
                        end.requeues)};
  return {true, kExitResumable, futile, Describe(end)};
}

}  // namespace headsweep
