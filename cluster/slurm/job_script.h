// The batch script of a sweep: text from values, pure. What it does when it runs is `headsweep batch`
// (launcher/batch.h); the script only says what Slurm must know, prepares the environment, and names the command that
// starts one agent a node. It names everything by absolute path, so it can be started again, by Slurm or by hand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headsweep {

// What people ask for: on the command line, in a profile, or as a site's default.
struct JobRequest {
  std::string nodes = "1";  // "3", or "2-4": from two to four
  int gpus_per_node = 0;
  int cpus_per_node = 0;  // 0: whole nodes (--exclusive)
  std::string time;       // as Slurm takes it: "30" (minutes), "01:30:00", "2-00"; "" = the partition's default
  std::string partition, account, qos, constraint;  // "" = the site's default
  int array = 0;                    // so many jobs that share the sweep; 0 = one job
  std::string mpi = "pmix";         // srun --mpi=
  std::vector<std::string> setup;   // lines of bash in front of the agents: "module load openmpi"
  std::vector<std::string> sbatch;  // further words for sbatch: "--mail-type=FAIL"
  int lead_seconds = 0;   // from the signal "checkpoint and leave" to the end of the time limit; 0 = chosen from them
  int most_requeues = 100;  // chosen: beyond it a person should look

  bool operator==(const JobRequest&) const = default;
};

// Where the job belongs.
struct JobPlace {
  std::string sweep;      // its name
  std::string directory;  // of the submission: the script, its record and Slurm's output lie there
  std::string comment;    // tells this submission from all others, see launcher/job_record.h
  std::string program;    // path of headsweep
  std::vector<std::string> agent;  // the words after it, for every agent: {"run", "…/sweep.toml", …}
};

// Throws ConfigError with everything that is wrong with the request, as far as it can be said without asking Slurm.
void CheckJobRequest(const JobRequest& request);

// Checked request. stop_grace: the launcher's, seconds in which it lets trainers write a checkpoint (launcher/timing.h).
std::string FormatJobScript(const JobRequest& request, const JobPlace& place, double stop_grace);

// Seconds before the end of the time limit (0: none is known) at which the agents are asked to checkpoint: the grace and a
// minute, since they must also start late and leave; less in short jobs, which would do nothing else.
int LeadSeconds(double limit_seconds, double stop_grace);

// Whether Slurm can take a directory for the job's own. It replaces %-patterns and removes backslashes in the paths of
// output files, whole; then the job starts in / and its script opens the output itself.
bool SlurmCanName(std::string_view directory);

// A sweep's name as far as Slurm's tables show it well: letters, digits, "._-"; others become "_".
std::string JobName(std::string_view sweep);

}  // namespace headsweep
