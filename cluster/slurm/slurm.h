// Slurm's commands, asked with a deadline and without a shell (posix_spawn). Nothing here decides anything. The one rule
// that everything rests on: no answer is an answer of its own. A squeue that fails, hangs or talks nonsense means that a
// job's state is *unknown*, never that the job is gone; an sbatch that does not answer has perhaps made a job. Methods
// never throw: the outcome is a value. Not for the inside of a scheduler loop: a call takes milliseconds on a good day
// and its whole deadline on a bad one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/slurm/answers.h"

namespace headsweep {

struct JobsAnswer {
  bool known = false;          // false: jobs says nothing, and problem says why
  std::vector<SlurmJob> jobs;  // those that Slurm still remembers; one it does not name is over
  std::string problem;
};

enum class SlurmOutcome {
  kDone,
  kRefused,  // Slurm said no: nothing happened
  kUnknown   // no answer: perhaps it happened
};

struct SlurmReply {
  SlurmOutcome outcome = SlurmOutcome::kUnknown;
  std::string text;  // the job's id of a submission; otherwise what Slurm complained about
};

class Slurm {
 public:
  // Deadline of each call; 0: HEADSWEEP_SLURM_TIMEOUT (20 s).
  explicit Slurm(double timeout_seconds = 0);

  // Whether Slurm's commands are on PATH.
  static bool IsHere();

  // ids: "123", "123_4". Every task of an array is a job of its own in the answer.
  JobsAnswer Jobs(const std::vector<std::string>& ids) const;
  // Jobs of this user with that comment, whatever their state: for a submission whose answer was lost.
  JobsAnswer JobsWithComment(const std::string& comment) const;

  // script: an absolute path. directory: where the job starts, and its output files lie (SlurmCanName). more: words in front of the
  // script, as "--dependency=afterany:7". Variables of a job around this process (SLURM_*) do not reach the new one.
  SlurmReply Submit(const std::string& script, const std::string& directory,
                    const std::vector<std::string>& more = {}) const;
  SlurmReply Requeue(const std::string& id) const;
  // How often the job has been requeued; nullopt: no answer, or no such job.
  std::optional<int> Restarts(const std::string& id) const;
  SlurmReply Cancel(const std::string& id) const;
  // Only if it waits; of an array, those tasks that do.
  SlurmReply CancelPending(const std::string& id) const;

  // nullopt: no answer.
  std::optional<std::map<std::string, std::string>> Config() const;
  std::optional<std::vector<SlurmPartition>> Partitions() const;
  // "idle", "allocated", "mixed*" (does not answer), "down*", …
  std::optional<std::string> NodeState(const std::string& node) const;

 private:
  struct Heard {
    bool answered = false;  // it ended in time
    int exit_code = 0;
    std::string output;   // standard output and error
    std::string problem;  // !answered: why
  };
  Heard Ask(const std::vector<std::string>& command, bool new_job = false) const;
  SlurmReply Tell(const std::vector<std::string>& command, bool new_job = false) const;
  JobsAnswer Answer(const Heard& heard) const;

  double timeout_;
};

// Pure. Whether a job is not requeued because it is ending already, or waits to begin again.
bool SaysJobIsChanging(std::string_view complaint);
// Pure, for tests. Whether what a command printed as it failed leaves open if its request was carried out.
bool LeavesOpen(std::string_view complaint);

}  // namespace headsweep
