// The journal: what is read back, and what is made of every kind of damage. Power cuts are in
// tests/crash/seal_crash_test.cc. The files are in memory, since an fsync takes milliseconds, except in the
// tests that say so.
#include "launcher/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "tests/support/crash_disk.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using testing::CrashDisk;
using ::testing::HasSubstr;
using testing::TempDir;

class StoppedClock final : public Clock {
 public:
  double Monotonic() const override { return 1; }
  double Wall() const override { return 1700000000.25; }
};

JournalEvent Checkpointed(int step) {
  JournalEvent event;
  event.type = journal::kCheckpointed;
  event.stage = "00ff";
  event.attempt = 1;
  event.time = 1700000000.25;
  event.fields["step"] = std::to_string(step);
  return event;
}

class JournalTest : public ::testing::Test {
 protected:
  void Append(std::vector<JournalEvent> events) { Journal(files_, path_, clock_).Append(std::move(events)); }
  std::string Bytes() const { return files_.ReadFile(path_); }
  void SetBytes(const std::string& bytes) { files_.WriteFile(path_, bytes); }
  JournalHistory Read() const { return ReadJournal(files_, path_); }

  CrashDisk files_;
  const std::string path_ = "journal.jsonl";
  const StoppedClock clock_;
};

TEST_F(JournalTest, ReadsBackWhatWasAppended) {
  {
    Journal journal(files_, path_, clock_);
    EXPECT_TRUE(journal.history().events.empty());
    journal.Append({Checkpointed(1), Checkpointed(2)});
    journal.Append({});
    journal.Append({Checkpointed(3)});
  }
  const JournalHistory history = Read();
  EXPECT_EQ(history.events, (std::vector{Checkpointed(1), Checkpointed(2), Checkpointed(3)}));
  EXPECT_FALSE(history.torn);
  EXPECT_EQ(history.end, files_.FileSize(path_));
}

TEST_F(JournalTest, WorksOnRealFiles) {
  TempDir folder;
  const std::string path = folder / "journal.jsonl";
  Journal(FileSystem::Real(), path, clock_).Append({Checkpointed(1)});
  FileSystem::Real().Truncate(path, FileSystem::Real().FileSize(path) - 5);
  Journal(FileSystem::Real(), path, clock_).Append({Checkpointed(2), Checkpointed(3)});
  Journal again(FileSystem::Real(), path, clock_);
  EXPECT_EQ(again.history().events, (std::vector{Checkpointed(2), Checkpointed(3)}));
}

TEST_F(JournalTest, ThatIsAbsentIsEmpty) {
  EXPECT_TRUE(Read().events.empty());
  EXPECT_FALSE(Read().torn);
  EXPECT_FALSE(files_.Exists(path_)) << "reading creates nothing";
}

TEST_F(JournalTest, FillsInTheTime) {
  JournalEvent event = Checkpointed(1);
  event.time = 0;
  Append({event});
  EXPECT_EQ(Read().events[0].time, 1700000000.25);
}

TEST_F(JournalTest, KeepsAnyTextOnOneLine) {
  JournalEvent event = Checkpointed(1);
  event.fields["message"] = "two\nlines, \"quotes\", a tab\t, nul \0, ü, 漢, \x7f" + std::string(1, '\0');
  Append({event});
  EXPECT_EQ(Read().events[0], event);
  const std::string bytes = Bytes();
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), '\n'), 1);
}

TEST_F(JournalTest, ReplacesBytesThatAreNoText) {
  JournalEvent event = Checkpointed(1);
  event.fields["message"] = "broken \xff\xfe bytes";
  Append({event});
  EXPECT_EQ(Read().events[0].fields["message"], "broken \xef\xbf\xbd\xef\xbf\xbd bytes");
}

// A journal is read in blocks of a megabyte.
TEST_F(JournalTest, LinesThatLieAcrossBlocksAreWhole) {
  TempDir folder;
  const std::string path = folder / "journal.jsonl";
  std::vector<JournalEvent> events;
  for (int i = 0; i < 3000; ++i) {
    events.push_back(Checkpointed(i));
    events.back().fields["message"] = std::string(static_cast<std::size_t>(900 + i % 300), 'x');
  }
  Journal(FileSystem::Real(), path, clock_).Append(events);
  ASSERT_GT(FileSystem::Real().FileSize(path), std::int64_t{3} << 20);
  EXPECT_EQ(ReadJournal(FileSystem::Real(), path).events, events);
  FileSystem::Real().Truncate(path, FileSystem::Real().FileSize(path) - 1);
  std::size_t seen = 0;
  const JournalHistory scanned = ScanJournal(FileSystem::Real(), path, [&](JournalEvent& event) {
    ASSERT_LT(seen, events.size());
    EXPECT_EQ(event, events[seen++]);
  });
  EXPECT_EQ(seen, events.size() - 1) << "the last line is torn";
  EXPECT_TRUE(scanned.torn);
  EXPECT_TRUE(scanned.events.empty());
  EXPECT_EQ(scanned.end + scanned.torn_bytes, FileSystem::Real().FileSize(path));
}

TEST_F(JournalTest, KeepsEventsOfALaterVersion) {
  const std::string json =
      R"({"colour":"blue","shade":7,"nested":{"a":[1]},"time":1.5,"type":"colour-chosen"})";
  SetBytes(ChecksumHex(json) + " " + json + "\n");
  const JournalHistory history = Read();
  ASSERT_EQ(history.events.size(), 1u);
  EXPECT_EQ(history.events[0].type, "colour-chosen");
  EXPECT_EQ(history.events[0].fields.at("shade"), "7");
  EXPECT_EQ(history.events[0].fields.at("nested"), R"({"a":[1]})");
}

TEST_F(JournalTest, CutAnywhereLosesOnlyTheTail) {
  Append({Checkpointed(1), Checkpointed(2)});
  Append({Checkpointed(3)});
  const std::string whole = Bytes();
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    SetBytes(whole.substr(0, size));
    const JournalHistory history = Read();
    const auto lines = std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size), '\n');
    ASSERT_EQ(static_cast<std::ptrdiff_t>(history.events.size()), lines) << "cut at byte " << size;
    ASSERT_EQ(history.torn, size != 0 && whole[size - 1] != '\n') << "cut at byte " << size;
    ASSERT_EQ(history.end + history.torn_bytes, static_cast<std::int64_t>(size));
    Append({Checkpointed(9)});
    const JournalHistory after = Read();
    ASSERT_FALSE(after.torn);
    ASSERT_EQ(after.events.size(), history.events.size() + 1);
    ASSERT_EQ(after.events.back(), Checkpointed(9));
  }
}

TEST_F(JournalTest, WithAFlippedBitNeverSaysWhatWasNotWritten) {
  const std::vector<JournalEvent> written = {Checkpointed(1), Checkpointed(2), Checkpointed(3),
                                             Checkpointed(4)};
  Append({written[0], written[1]});
  const std::int64_t second_append = files_.FileSize(path_);
  Append({written[2], written[3]});
  const std::string whole = Bytes();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0, 3, 6}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      SetBytes(bytes);
      if (static_cast<std::int64_t>(at) < second_append) {
        ASSERT_THROW(Read(), IoError)
            << "byte " << at << ": the damaged line was on the disk before the next append";
        continue;
      }
      const JournalHistory history = Read();
      ASSERT_TRUE(history.torn) << "byte " << at;
      ASSERT_LT(history.events.size(), written.size()) << "byte " << at;
      for (std::size_t i = 0; i < history.events.size(); ++i) ASSERT_EQ(history.events[i], written[i]);
    }
  }
}

TEST_F(JournalTest, DamagedInTheMiddleSaysWhereAndWhatToDo) {
  Append({Checkpointed(1)});
  Append({Checkpointed(2)});
  Append({Checkpointed(3)});
  std::string bytes = Bytes();
  bytes[bytes.find('\n') + 30] ^= 1;
  SetBytes(bytes);
  try {
    Read();
    FAIL() << "the damage went unnoticed";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr(path_));
    EXPECT_THAT(error.what(), HasSubstr("line 2 is damaged"));
    EXPECT_THAT(error.what(), HasSubstr("headsweep run"));
  }
  EXPECT_THROW(Append({Checkpointed(4)}), IoError) << "nothing is appended to a damaged journal";
  EXPECT_EQ(Bytes(), bytes);
}

// A power cut may lose the first page of an append and keep a later one. Nothing of that append was acted on.
TEST_F(JournalTest, WithAHoleInTheLastAppendIsTorn) {
  Append({Checkpointed(1)});
  const auto kept = static_cast<std::size_t>(files_.FileSize(path_));
  Append({Checkpointed(2), Checkpointed(3), Checkpointed(4)});
  std::string bytes = Bytes();
  bytes.replace(kept, 100, std::string(100, '\0'));
  SetBytes(bytes);
  const JournalHistory history = Read();
  EXPECT_TRUE(history.torn);
  EXPECT_EQ(history.events, std::vector{Checkpointed(1)});
  Append({Checkpointed(5)});
  EXPECT_EQ(Read().events, (std::vector{Checkpointed(1), Checkpointed(5)}));
}

TEST_F(JournalTest, OfAHundredThousandLinesIsReadBack) {
  std::vector<JournalEvent> events;
  for (int i = 0; i < 100000; ++i) events.push_back(Checkpointed(i));
  Append(events);
  EXPECT_EQ(Read().events, events);
}

// Fails at the n-th write or sync.
class BrokenFile final : public AppendFile {
 public:
  BrokenFile(std::unique_ptr<AppendFile> file, int& left) : file_(std::move(file)), left_(left) {}
  void Append(std::string_view bytes) override {
    if (--left_ == 0) throw IoError("write", "journal", ENOSPC);
    file_->Append(bytes);
  }
  void Sync() override {
    if (--left_ == 0) throw IoError("fsync", "journal", EIO);
    file_->Sync();
  }
  std::int64_t size() const override { return file_->size(); }

 private:
  std::unique_ptr<AppendFile> file_;
  int& left_;
};

class BrokenDisk final : public FileSystem {
 public:
  BrokenDisk(FileSystem& real, int operations) : real_(real), left_(operations) {}
  std::string ReadFile(const std::string& p) const override { return real_.ReadFile(p); }
  bool Exists(const std::string& p) const override { return real_.Exists(p); }
  std::int64_t FileSize(const std::string& p) const override { return real_.FileSize(p); }
  std::vector<std::string> List(const std::string& p) const override { return real_.List(p); }
  void CreateDirectories(const std::string& p) override { real_.CreateDirectories(p); }
  void WriteFile(const std::string& p, std::string_view bytes) override { real_.WriteFile(p, bytes); }
  std::unique_ptr<AppendFile> OpenForAppend(const std::string& p) override {
    return std::make_unique<BrokenFile>(real_.OpenForAppend(p), left_);
  }
  void Truncate(const std::string& p, std::int64_t n) override { real_.Truncate(p, n); }
  void SyncFile(const std::string& p) override { real_.SyncFile(p); }
  void SyncDirectory(const std::string& p) override { real_.SyncDirectory(p); }
  void Rename(const std::string& a, const std::string& b) override { real_.Rename(a, b); }
  void Remove(const std::string& p) override { real_.Remove(p); }
  void RemoveAll(const std::string& p) override { real_.RemoveAll(p); }

 private:
  FileSystem& real_;
  int left_;
};

using JournalDeathTest = JournalTest;

TEST_F(JournalDeathTest, IsNeverAppendedToAfterAFailure) {
  for (const int operation : {2, 3}) {  // the first is the sync of the constructor
    BrokenDisk disk(files_, operation);
    Journal journal(disk, path_, clock_);
    EXPECT_THROW(journal.Append({Checkpointed(1)}), IoError);
    EXPECT_DEATH(journal.Append({Checkpointed(2)}), "appended to after an append failed");
  }
}

TEST(JournalFormat, WritesWhatTheDocumentShows) {
  JournalEvent event;
  event.type = journal::kAttemptStarted;
  event.time = 1767225600.5;
  event.stage = "9c1f0a77e2b4d680";
  event.attempt = 2;
  event.fields = {{"batch", "1337"}, {"host", "node03"}, {"slots", "1:0"}};
  const std::string line = FormatJournalLine(event);
  const std::string document =
      FileSystem::Real().ReadFile(std::string(HEADSWEEP_SOURCE_DIR) + "/launcher/JOURNAL.md");
  EXPECT_THAT(document, HasSubstr(line)) << "launcher/JOURNAL.md shows another line than the code writes";
  EXPECT_EQ(ParseJournalLine(line), event);
}

TEST(JournalFormat, TakesNothingForALineThatIsNone) {
  const std::string line = FormatJournalLine(Checkpointed(1));
  EXPECT_TRUE(ParseJournalLine(line));
  EXPECT_FALSE(ParseJournalLine(""));
  EXPECT_FALSE(ParseJournalLine("\n"));
  EXPECT_FALSE(ParseJournalLine(line.substr(0, line.size() - 1))) << "no newline";
  EXPECT_FALSE(ParseJournalLine(" " + line));
  for (const char* json :
       {"[]", "7", "{}", R"({"type":7})", R"({"type":"a","time":"noon"})", R"({"type":"a","attempt":1.5})"}) {
    EXPECT_FALSE(ParseJournalLine(ChecksumHex(json) + " " + json + "\n")) << json;
  }
}

TEST(JournalFormatDeath, RefusesAFieldWithAReservedName) {
  JournalEvent event = Checkpointed(1);
  event.fields["time"] = "now";
  EXPECT_DEATH(FormatJournalLine(event), "not free text");
}

}  // namespace
}  // namespace headsweep
