// Submitting a sweep: the order of things that makes a submission safe. Everything the job will need is on disk, durably,
// before sbatch is called; its answer is recorded after. A crash in between leaves a record without a job, which the
// token in it finds again.
#pragma once

#include <string>
#include <vector>

#include "cluster/slurm/slurm.h"
#include "launcher/job_record.h"
#include "sweeps/sweep.h"

namespace headsweep {

struct SubmitRequest {
  JobRequest job;                    // checked
  std::vector<std::string> options;  // for `headsweep run`: {"--slots", "2"}
};

// The script as it would be submitted from `directory`.
std::string ScriptOf(const Workspace& workspace, const Sweep& sweep, const SubmitRequest& request,
                     const std::string& directory, const std::string& comment);

// Throws ConfigError when a submission of the sweep is alive, or may be, or Slurm's limits or the partition do not allow the request;
// CommError when Slurm does not answer.
void CheckMaySubmit(const FileSystem& files, const Workspace& workspace, const std::string& sweep, const Slurm& slurm,
                    const SubmitRequest& request);

// Returns the submission with its job. Throws ConfigError when Slurm refuses; CommError when it does not answer, and
// nobody can say whether there is a job now.
Submission Submit(FileSystem& files, const Workspace& workspace, const Sweep& sweep, const Slurm& slurm,
                  const SubmitRequest& request);

// Where Slurm does not requeue `job` ("7", "7_3" of an array): a new one from the submission's script, which begins when it has
// ended. The reply's text is its id, in the same form.
SlurmReply SubmitNext(const Slurm& slurm, const std::string& submission, const std::string& job);

// "job 7 (3 nodes x 2 GPUs, 01:00:00)".
std::string Describe(const Submission& submission);

}  // namespace headsweep
