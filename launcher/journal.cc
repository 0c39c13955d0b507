#include "launcher/journal.h"

#include <cerrno>
#include <cstdlib>

#include "cluster/base/errors.h"
#include "cluster/base/log.h"

namespace headsweep {
namespace {

// Each line says where the append that wrote it began. A power cut may lose the first page of an append and
// keep a later one, so whole lines after a damaged one prove damage only if they come from a later append:
// that one began after an fsync.
constexpr const char* kBatch = "batch";

std::int64_t TakeBatch(JournalEvent& event) {
  const auto it = event.fields.find(kBatch);
  if (it == event.fields.end()) return 0;
  const std::int64_t batch = std::strtoll(it->second.c_str(), nullptr, 10);
  event.fields.erase(it);
  return batch;
}

}  // namespace

JournalHistory ReadJournal(const FileSystem& files, const std::string& path) {
  JournalHistory history;
  if (!files.Exists(path)) return history;
  const std::string bytes = files.ReadFile(path);
  int line_number = 0, damaged_line = 0;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t newline = bytes.find('\n', begin);
    const std::size_t end = newline == std::string::npos ? bytes.size() : newline + 1;
    auto event = ParseJournalLine(std::string_view(bytes).substr(begin, end - begin));
    ++line_number;
    if (!event) {
      if (damaged_line == 0) damaged_line = line_number;
    } else {
      const std::int64_t batch = TakeBatch(*event);
      if (damaged_line == 0) {
        history.events.push_back(std::move(*event));
        history.end = static_cast<std::int64_t>(end);
      } else if (batch > history.end) {
        throw IoError(
            "read journal", path, EBADMSG,
            fmt::format(
                "line {} is damaged, and not by a crash: line {} was appended later. Restore the file "
                "from a backup, or move it away and run `headsweep run` again: stages with a sealed "
                "result are adopted, not repeated",
                damaged_line, line_number));
      }
    }
    begin = end;
  }
  history.torn_bytes = static_cast<std::int64_t>(bytes.size()) - history.end;
  history.torn = history.torn_bytes > 0;
  return history;
}

std::vector<JournalEvent> JournalTail::Read(const FileSystem& files) {
  std::vector<JournalEvent> events;
  std::string bytes;
  try {
    bytes = files.ReadFrom(path_, offset_);
  } catch (const IoError& error) {
    if (error.error_number() == ENOENT || error.error_number() == ESTALE) return events;
    throw;
  }
  std::size_t begin = 0;
  for (std::size_t newline; (newline = bytes.find('\n', begin)) != std::string::npos; begin = newline + 1) {
    auto event = ParseJournalLine(std::string_view(bytes).substr(begin, newline + 1 - begin));
    if (!event) break;
    TakeBatch(*event);
    events.push_back(std::move(*event));
  }
  offset_ += static_cast<std::int64_t>(begin);
  return events;
}

Journal::Journal(FileSystem& files, const std::string& path, const Clock& clock)
    : clock_(clock), history_(ReadJournal(files, path)), path_(path) {
  if (history_.torn) {
    LogWarning("{}: the last append was cut off by a crash; its {} bytes are dropped", path,
               history_.torn_bytes);
    files.Truncate(path, history_.end);
  }
  file_ = files.OpenForAppend(path);
  file_->Sync();                          // the truncation, before anything is appended after it
  files.SyncDirectory(ParentPath(path));  // the file's name
}

void Journal::Append(std::vector<JournalEvent> events) {
  HEADSWEEP_CHECK(!broken_, "{}: appended to after an append failed", path_);
  if (events.empty()) return;
  const std::string batch = fmt::format("{}", file_->size());
  std::string lines;
  for (JournalEvent& event : events) {
    if (event.time == 0) event.time = clock_.Wall();
    event.fields[kBatch] = batch;
    lines += FormatJournalLine(event);
  }
  broken_ = true;
  file_->Append(lines);
  file_->Sync();
  broken_ = false;
}

}  // namespace headsweep
