// What is on disk about a sweep's submissions to Slurm (JOBS.md): one directory each,
// <workspace>/sweeps/<name>/jobs/<n>/, holding the batch script, the sweep file as it was submitted (jobs start later,
// and again, and must find the same), the record, what happened to its jobs, and Slurm's output. The record is written,
// durably, before sbatch is called, with a token that the job carries as Slurm's comment; so a submission whose answer
// was lost can be found again, and is never made twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/base/file_system.h"
#include "cluster/slurm/job_script.h"
#include "launcher/workspace.h"

namespace headsweep {

namespace job_file {
inline constexpr const char* kRecord = "job.json";
inline constexpr const char* kScript = "job.sh";
inline constexpr const char* kSweep = "sweep.toml";
inline constexpr const char* kCancelled = "cancelled";      // exists: nobody puts its jobs into the queue again
inline constexpr const char* kHistory = "history";          // history.jsonl, history-<task>.jsonl of an array
inline constexpr const char* kExitPrefix = "exit-";         // a coordinator's last word, see LeaveExitCode
inline constexpr const char* kChainPrefix = "next-";        // exists: an agent of that job has made the one that goes on
}  // namespace job_file

struct JobRecord {
  std::string sweep;      // name
  std::string file;       // the sweep file that was submitted, absolute
  std::string comment;    // "headsweep-<16 hex digits>"
  std::string job;        // Slurm's id of the first job; "" while sbatch has not answered
  std::string refused;    // what Slurm said when it made no job
  double time = 0;        // of the submission, unix seconds
  std::string by;         // "anna on login1"
  std::vector<std::string> options;  // further words for `headsweep run`: {"--slots", "2"}
  JobRequest request;

  bool operator==(const JobRecord&) const = default;
};

// Something that happened to a job of a submission; written by `headsweep batch`, within the job.
struct JobEvent {
  std::string type;    // one of job_event
  double time = 0;
  std::string job;     // "123", "123_4"
  int restart = 0;     // SLURM_RESTART_COUNT
  std::string nodes;   // started: SLURM_JOB_NODELIST
  std::int64_t progress = 0;   // started, ended: of the sweep's journal
  int exit_code = 0;   // ended
  bool again = false, futile = false;  // ended: see cluster/slurm/decision.h
  std::string reason;  // ended, requeued, chained: for people
  std::string next;    // chained: the job that goes on

  bool operator==(const JobEvent&) const = default;
};
namespace job_event {
inline constexpr const char* kStarted = "started";
inline constexpr const char* kEnded = "ended";
inline constexpr const char* kRequeued = "requeued";  // Slurm has accepted it
inline constexpr const char* kChained = "chained";    // requeue is not allowed here: a new job goes on
inline constexpr const char* kStranded = "stranded";  // neither worked: a person must resume
}  // namespace job_event

std::string FormatJobRecord(const JobRecord& record);
// Throws IoError naming path when it is none.
JobRecord ParseJobRecord(const std::string& text, const std::string& path);
std::string FormatJobEvent(const JobEvent& event);  // one line, with its newline
std::vector<JobEvent> ParseJobEvents(const std::string& text);  // lines that are none are left out

// A submission as it is on disk.
struct Submission {
  int number = 0;
  std::string directory;
  JobRecord record;
  std::vector<JobEvent> events;  // of all its jobs, by time
  std::string cancelled_by;      // "" = nobody

  // Every job id that is known: the first, and those that went on for it.
  std::vector<std::string> Ids() const;
};

// Oldest first; a directory without a record that can be read is left out.
std::vector<Submission> ReadSubmissions(const FileSystem& files, const Workspace& workspace, const std::string& sweep);
Submission ReadSubmission(const FileSystem& files, const std::string& directory);

// history.jsonl, or that of one task of an array. task: SLURM_ARRAY_TASK_ID, or "".
std::string HistoryPath(const std::string& directory, const std::string& task);

// A new directory, numbered, for a submission.
std::string MakeSubmissionDirectory(FileSystem& files, const Workspace& workspace, const std::string& sweep);
std::string NewJobComment();

// From now on none of its jobs is put into the queue again. Durable.
void MarkCancelled(FileSystem& files, const std::string& directory, const std::string& by);

// --- A coordinator's last word -------------------------------------------------------------------------------------------
// srun mixes up the ends of all agents, those on lost nodes too; so the coordinator writes its own exit code where
// HEADSWEEP_EXIT_CODE_FILE says. Nothing happens where that is not set.
inline constexpr const char* kExitCodeVariable = "HEADSWEEP_EXIT_CODE_FILE";
void LeaveExitCode(int exit_code);

}  // namespace headsweep
