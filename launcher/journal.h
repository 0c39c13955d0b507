// The journal of one sweep: the truth about what was started and how it ended. Append-only; grammar and a
// worked example in launcher/JOURNAL.md, names in journal_format.h. One writer at a time: whoever constructs
// a Journal holds the sweep's lock (sweep_lock.h). Reading needs no lock. Errors: an IoError of Append is
// fatal. Never catch it and go on: what was not recorded must not be done, and after a failed fsync nobody
// knows what the disk holds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/file_system.h"
#include "launcher/journal_format.h"

namespace headsweep {

struct JournalHistory {
  std::vector<JournalEvent>
      events;            // every whole line, in order; types that this version does not know included
  bool torn = false;     // the last append was cut off by a crash: normal, and nothing acted on is missing
  std::int64_t end = 0;  // bytes up to the last whole line: where to truncate and append
  std::int64_t torn_bytes = 0;  // what follows `end`
};

using OnJournalEvent = std::function<void(JournalEvent& event)>;

// Calls visit for every whole line of the file at path, in order, and keeps none; what it returns has no events. For the rest as
// ReadJournal. A journal of 100,000 trials is 75 MB.
JournalHistory ScanJournal(const FileSystem& files, const std::string& path, const OnJournalEvent& visit);

// The history of the file at path; an absent file is an empty history. Throws IoError when a line is damaged
// that was complete once (whole lines of a later append follow): names the line and says what to do.
JournalHistory ReadJournal(const FileSystem& files, const std::string& path);

// Another launcher's journal, read on as it grows (LEASES.md).
class JournalTail {
 public:
  explicit JournalTail(std::string path) : path_(std::move(path)) {}
  // The whole lines that were appended since the last call; an absent file has none. A line that is not whole yet is read
  // later. Throws IoError.
  std::vector<JournalEvent> Read(const FileSystem& files);

 private:
  std::string path_;
  std::int64_t offset_ = 0;
};

class Journal {
 public:
  // Reads the history, cuts a torn tail off, and opens for appending. The file exists durably when this
  // returns. visit: gets the events, which are then not kept.
  Journal(FileSystem& files, const std::string& path, const Clock& clock, const OnJournalEvent& visit = {});

  const JournalHistory& history() const { return history_; }  // as found by the constructor

  // Appends all events in one write and one fsync. When this returns, they survive a crash. When it does not
  // return (exception or crash), any prefix of them may be found later; as nothing was done about them, that
  // is harmless. Events without a time get the clock's. No events: nothing is written.
  void Append(std::vector<JournalEvent> events);

 private:
  const Clock& clock_;
  JournalHistory history_;
  std::unique_ptr<AppendFile> file_;
  std::string path_;
  bool broken_ = false;  // an append failed: the end of the file is unknown
};

}  // namespace headsweep
