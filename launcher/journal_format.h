// The journal's events and their one-line form. See launcher/JOURNAL.md for the grammar and a worked example.
// A line is  <16 hex digits of xxHash3 over the JSON text> <blank> <JSON object> <newline>.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace headsweep {

// DO NOT CHANGE the names below: they are on disk.
namespace journal {
inline constexpr const char* kSweepStarted = "sweep-started";    // {sweep, toml_hash, stages, pid, host, version, automatic}
inline constexpr const char* kAttemptStarted = "attempt-started";  // {stage, attempt, host, slots}
inline constexpr const char* kCheckpointed = "checkpointed";     // {stage, attempt, step}
inline constexpr const char* kAttemptEnded = "attempt-ended";    // {stage, attempt, outcome, cause, message, summary, charged}
inline constexpr const char* kEvaluated = "evaluated";           // {stage, attempt, step, value}: of a sweep that stops trials early
inline constexpr const char* kEarlyStopped = "early-stopped";    // {stage, attempt, step, reason}: others do better
inline constexpr const char* kStageAdopted = "stage-adopted";    // {stage, summary}: a sealed result was already there
inline constexpr const char* kStopRequested = "stop-requested";  // {reason}
inline constexpr const char* kPaused = "paused";                 // {by}
inline constexpr const char* kContinued = "continued";           // {by}
inline constexpr const char* kRetried = "retried";               // {stage, by}: a person wants a failed stage tried again
inline constexpr const char* kDeleted = "deleted";               // {path, bytes, why}: in a workspace's gc.jsonl
inline constexpr const char* kSweepEnded = "sweep-ended";        // {exit_code, reason}
}  // namespace journal

struct JournalEvent {
  std::string type;                           // one of the above
  double time = 0;                            // unix seconds; filled in by the writer
  std::string stage;                          // or empty
  int attempt = 0;                            // or 0
  std::map<std::string, std::string> fields;  // everything else, as text
  bool operator==(const JournalEvent&) const = default;
};

namespace journal {
// A field, "" if the event has none of that name; as a whole number, 0 if it is none.
std::string Field(const JournalEvent& event, const char* name);
std::int64_t NumberField(const JournalEvent& event, const char* name);
}  // namespace journal

std::string FormatJournalLine(const JournalEvent& event);  // with checksum and newline
// nullopt: torn or damaged (checksum, JSON, missing newline).
std::optional<JournalEvent> ParseJournalLine(std::string_view line_with_newline);

}  // namespace headsweep
