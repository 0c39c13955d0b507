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

constexpr std::size_t kBlockBytes = 1 << 20;

std::int64_t TakeBatch(JournalEvent& event) {
  const auto it = event.fields.find(kBatch);
  if (it == event.fields.end()) return 0;
  const std::int64_t batch = std::strtoll(it->second.c_str(), nullptr, 10);
  event.fields.erase(it);
  return batch;
}

}  // namespace

JournalHistory ScanJournal(const FileSystem& files, const std::string& path, const OnJournalEvent& visit) {
  JournalHistory history;
  if (!files.Exists(path)) return history;
  int line_number = 0, damaged_line = 0;
  std::int64_t at = 0;  // of the first byte of rest
  const auto take = [&](std::string_view line) {
    auto event = ParseJournalLine(line);
    ++line_number;
    at += static_cast<std::int64_t>(line.size());
    if (!event) {
      if (damaged_line == 0) damaged_line = line_number;
      return;
    }
    const std::int64_t batch = TakeBatch(*event);
    if (damaged_line == 0) {
      visit(*event);
      history.end = at;
    } else if (batch > history.end) {
      throw IoError(
          "read journal", path, EBADMSG,
          fmt::format(
              "line {} is damaged, and not by a crash: line {} was appended later. Restore the file "
              "from a backup, or move it away and run `headsweep run` again: stages with a sealed "
              "result are adopted, not repeated",
              damaged_line, line_number));
    }
  };
  std::string rest;
  std::int64_t read = 0;
  for (;;) {
    const std::string block = files.ReadBlock(path, read, kBlockBytes);
    read += static_cast<std::int64_t>(block.size());
    rest += block;
    std::size_t begin = 0;
    for (std::size_t newline; (newline = rest.find('\n', begin)) != std::string::npos; begin = newline + 1)
      take(std::string_view(rest).substr(begin, newline + 1 - begin));
    rest.erase(0, begin);
    if (block.size() < kBlockBytes) break;
  }
  if (!rest.empty()) take(rest);
  history.torn_bytes = at - history.end;
  history.torn = history.torn_bytes > 0;
  return history;
}

JournalHistory ReadJournal(const FileSystem& files, const std::string& path) {
  std::vector<JournalEvent> events;
  JournalHistory history = ScanJournal(files, path, [&](JournalEvent& event) { events.push_back(std::move(event)); });
  history.events = std::move(events);
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

Journal::Journal(FileSystem& files, const std::string& path, const Clock& clock, const OnJournalEvent& visit)
    : clock_(clock), history_(visit ? ScanJournal(files, path, visit) : ReadJournal(files, path)), path_(path) {
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
