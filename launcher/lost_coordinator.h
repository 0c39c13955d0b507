// What the agents of a Slurm job do when the node of its coordinator is gone. The batch script runs on that node too, and
// under --no-kill Slurm lets a job without its batch script stay where it is until its time limit. So the agents that are
// left wait until Slurm itself takes that node for dead, and then have the job requeued; several may, which is the same as
// one. Where Slurm does not requeue it, one of them makes the job that goes on, and cancels this one. When `headsweep batch`
// still shows signs of life (the coordinator alone has died), it sees to everything.
#pragma once

#include <string>

namespace headsweep {

// Set by `headsweep batch` for the agents.
inline constexpr const char* kBatchHostVariable = "HEADSWEEP_BATCH_HOST";
inline constexpr const char* kSubmissionVariable = "HEADSWEEP_SUBMISSION";  // the submission's directory

// The batch process of that run of the job changes this file every few seconds, and removes it at its end.
std::string SignOfLifePath(const std::string& submission, const std::string& job, int restart);
inline constexpr double kSignOfLifeSeconds = 3;

// Called by an agent whose coordinator has fallen silent, when nothing runs on its node any more. Does nothing outside a
// submitted job. Returns when the job is requeued, cancelled or not in need of it, after ten minutes at most.
void SeeToLostCoordinator();

// Pure. Whether Slurm takes a node in that state ("down*", "allocated", "mixed*", …) for dead. A node that merely does not
// answer is not.
bool IsDeadNode(const std::string& state);

}  // namespace headsweep
