// What Slurm's commands print, as values. Pure: text in, values out, no process is started (slurm.h does that). Every
// format is asked for explicitly, and our lines begin with a mark, so that a site's own chatter on the same output is
// told from them. Tried with Slurm 22.05; the options are those of 20.11 and later.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headsweep {

// Of Slurm's two dozen job states, what matters to somebody who waits for the job.
enum class JobPhase {
  kPending,  // has not begun, or waits to begin again
  kRunning,  // also suspended, and being set up
  kEnding,   // Slurm is clearing it away
  kOver      // will never run again by itself
};
const char* ToString(JobPhase phase);

struct SlurmJob {
  std::string id;      // "123", or "123_4" of an array: what scontrol and scancel take
  std::string state;   // Slurm's word: "PENDING", "RUNNING", "NODE_FAIL", …
  std::string reason;  // why it waits ("Resources", "Priority", "Dependency"), or "None"
  std::string nodes;   // "n[0-2]"; "" when it has none
  std::optional<double> seconds_left;
  std::string start;    // when it began, or is expected to: "2026-01-31T12:00:00"; "" = not known
  std::string comment;  // our token, see launcher/job_record.h
  JobPhase phase = JobPhase::kOver;
};

// For squeue --format and its answer.
inline constexpr const char* kJobFormat = "headsweep|%i|%T|%r|%N|%L|%S|%k";
std::vector<SlurmJob> ParseJobs(std::string_view output);
JobPhase PhaseOf(std::string_view state);  // an unknown state counts as running: nothing is assumed to be over

struct SlurmPartition {
  std::string name;
  bool is_default = false, is_up = false;
  int nodes = 0, idle_nodes = 0;
  int cpus_per_node = 0;
  std::string gpus;       // gres of its nodes: "gpu:fake:2"; "" = none
  std::string time_limit;  // "1-00:00:00", "infinite"
};
// For sinfo --format and its answer, one line for each kind of node; the kinds of one partition are joined (fewest CPUs,
// first gres).
inline constexpr const char* kPartitionFormat = "headsweep|%P|%a|%F|%c|%G|%l";
std::vector<SlurmPartition> ParsePartitions(std::string_view output);

// `scontrol show config`: "MaxArraySize = 1001" -> {"MaxArraySize", "1001"}.
std::map<std::string, std::string> ParseConfig(std::string_view output);

// `sbatch --parsable`: "123" or "123;cluster", on a line of its own; nullopt: no job was made.
std::optional<std::string> ParseSubmitted(std::string_view output);

// "[days-]hours:minutes:seconds", "minutes:seconds", "minutes", "days-hours[:minutes]", as Slurm takes and prints them, in
// seconds. nullopt: not a time ("UNLIMITED", "INVALID", "NOT_SET").
std::optional<double> ParseDuration(std::string_view text);
std::string FormatSlurmTime(double seconds);  // "1-02:03:04", "00:10:00"

// The lines of output that are none of ours, joined by "; ": what went wrong, in Slurm's own words.
std::string Complaint(std::string_view output);

}  // namespace headsweep
