#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <unordered_set>

#include "cluster/base/batch_job.h"
#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "cluster/base/hash.h"
#include "cluster/base/ids.h"
#include "cluster/base/json.h"
#include "cluster/base/run_program.h"
#include "tests/cluster/environment.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScopedVariable;
using testing::TempDir;

// Ids: one never compiles as another, nor as the value inside.
static_assert(!std::is_convertible_v<Attempt, NodeId>);
static_assert(!std::is_constructible_v<Attempt, NodeId>);
static_assert(!std::is_convertible_v<int, Attempt>);
static_assert(!std::is_convertible_v<Attempt, int>);
static_assert(!std::is_convertible_v<std::string, StageId>);
static_assert(std::is_constructible_v<StageId, std::string>);

TEST(Json, OfOtherProgramsIsReadAndWrittenWhateverItHolds) {
  EXPECT_TRUE(ParseJson("{\"a\": 1}").is_object());
  for (const char* text : {"", "{", "{\"a\": 1} more", "\xFF", "{\"a\": \"\xFF\"}"}) {
    EXPECT_TRUE(ParseJson(text).is_discarded()) << text;
    EXPECT_FALSE(ParseJson(text).is_object()) << text;
  }
  EXPECT_EQ(DumpJson(nlohmann::json{{"b", "a\xFFz"}, {"a", 1}}), "{\"a\":1,\"b\":\"a\uFFFDz\"}");
  EXPECT_EQ(DumpJson(nlohmann::ordered_json{{"b", 2}, {"a", 1}}), "{\"b\":2,\"a\":1}");
  EXPECT_EQ(DumpJson(ParseOrderedJson("{\"b\": 2, \"a\": 1}"), 1), "{\n \"b\": 2,\n \"a\": 1\n}");
}

TEST(Ids, CompareAndHashLikeTheirValues) {
  EXPECT_EQ(Attempt(3), Attempt(3));
  EXPECT_LT(Attempt(2), Attempt(3));
  EXPECT_EQ(Attempt().value(), 0);
  std::unordered_set<StageId> ids = {StageId("a"), StageId("b"), StageId("a")};
  EXPECT_EQ(ids.size(), 2u);
}

TEST(Errors, DiagnosticsLeaveOutWhatIsNotKnown) {
  EXPECT_EQ(ToString({"sweep.toml", 12, 3, "unknown key"}), "sweep.toml:12:3: unknown key");
  EXPECT_EQ(ToString({"sweep.toml", 12, 0, "unknown key"}), "sweep.toml:12: unknown key");
  EXPECT_EQ(ToString({"sweep.toml", 0, 0, "unknown key"}), "sweep.toml: unknown key");
  EXPECT_EQ(ToString({"", 0, 0, "unknown key"}), "unknown key");
}

TEST(Errors, AConfigErrorCarriesEveryComplaint) {
  const ConfigError error({{"f", 1, 1, "first"}, {"f", 2, 5, "second"}});
  EXPECT_STREQ(error.what(), "f:1:1: first\nf:2:5: second");
  EXPECT_EQ(error.diagnostics().size(), 2u);
  EXPECT_STREQ(ConfigError("alone").what(), "alone");
  EXPECT_EQ(ConfigError("alone").diagnostics().at(0).message, "alone");
}

TEST(Errors, IoErrorsSayOperationPathAndReason) {
  const IoError error("open", "/a/b", ENOENT);
  EXPECT_STREQ(error.what(), "open /a/b: No such file or directory");
  EXPECT_EQ(error.operation(), "open");
  EXPECT_EQ(error.path(), "/a/b");
  EXPECT_EQ(error.error_number(), ENOENT);
  EXPECT_STREQ(IoError("write", "/a", ENOSPC, "free some space").what(),
               "write /a: No space left on device; free some space");
}

TEST(Errors, CommErrorsSayPeerOperationAndTime) {
  const CommError error("rank 3", "barrier", 12.5, "no answer");
  EXPECT_STREQ(error.what(), "barrier with rank 3 failed after 12.50 s: no answer");
  EXPECT_EQ(error.peer(), "rank 3");
  EXPECT_STREQ(DeviceError("cudaMalloc", 2, "out of memory", 1).what(),
               "device 1: cudaMalloc failed with code 2 (out of memory)");
}

TEST(ErrorsDeathTest, ABrokenInvariantEndsTheProcessWithItsPlace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  HEADSWEEP_CHECK(true, "not printed");
  EXPECT_DEATH(HEADSWEEP_CHECK(1 == 2, "one is {}", 1), "base_test.cc:.*broken invariant 1 == 2: one is 1");
}

TEST(Hash, IsTheSameOnEveryMachine) {
  // XXH3 of the empty string, by its specification: 64 bits 2d06800538d394c2, 128 bits 99aa06d3014798d8
  // 6001c324468d497f.
  EXPECT_EQ(HashHex(""), "99aa06d3014798d8");
  EXPECT_EQ(ChecksumHex(""), "2d06800538d394c2");
  EXPECT_NE(HashHex("a"), HashHex("b"));
  EXPECT_EQ(Checksum("abc"), Checksum("abc", 3));
}

TEST(Clock, MonotonicTimeDoesNotGoBack) {
  const SystemClock clock;
  const double first = clock.Monotonic();
  EXPECT_GE(clock.Monotonic(), first);
  EXPECT_GT(clock.Wall(), 1.6e9);  // after 2020
}

TEST(Paths, AreJoinedAndTakenApart) {
  EXPECT_EQ(JoinPath("a/b", "c"), "a/b/c");
  EXPECT_EQ(JoinPath("a/b/", "c"), "a/b/c");
  EXPECT_EQ(JoinPath("/", "c"), "/c");
  EXPECT_EQ(JoinPath("", "c"), "c");
  EXPECT_EQ(ParentPath("a/b/c"), "a/b");
  EXPECT_EQ(ParentPath("c"), ".");
  EXPECT_EQ(ParentPath("/c"), "/");
  EXPECT_EQ(BaseName("a/b/c"), "c");
  EXPECT_EQ(BaseName("c"), "c");
}

class Files : public ::testing::Test {
 protected:
  TempDir dir_;
  FileSystem& files_ = FileSystem::Real();
};

// The operation on a path that is not there is an IoError with that path and ENOENT.
TEST_F(Files, MissingPathsAreNamed) {
  const std::string missing = dir_ / "no/such";
  const std::pair<const char*, std::function<void()>> operations[] = {
      {"read", [&] { files_.ReadFile(missing); }},
      {"size", [&] { files_.FileSize(missing); }},
      {"write", [&] { files_.WriteFile(missing, "x"); }},
      {"append", [&] { files_.OpenForAppend(missing); }},
      {"truncate", [&] { files_.Truncate(missing, 0); }},
      {"sync", [&] { files_.SyncFile(missing); }},
      {"sync directory", [&] { files_.SyncDirectory(missing); }},
      {"rename", [&] { files_.Rename(missing, missing); }},
      {"durable", [&] { WriteFileDurably(files_, missing, "x"); }},
  };
  for (const auto& [name, operation] : operations) {
    try {
      operation();
      ADD_FAILURE() << name << " succeeded";
    } catch (const IoError& error) {
      EXPECT_EQ(error.error_number(), ENOENT) << name;
      EXPECT_THAT(error.what(), HasSubstr(missing)) << name;
    }
  }
  EXPECT_FALSE(files_.Exists(missing));
  EXPECT_THAT(files_.List(missing), IsEmpty());
  files_.Remove(missing);  // absent is fine
  files_.RemoveAll(missing);
}

TEST_F(Files, DirectoriesAreMadeListedAndRemoved) {
  files_.CreateDirectories(dir_ / "a/b/c");
  files_.CreateDirectories(dir_ / "a/b/c");
  files_.WriteFile(dir_ / "a/z", "");
  files_.WriteFile(dir_ / "a/y", "");
  EXPECT_THAT(files_.List(dir_ / "a"), ElementsAre("b", "y", "z"));
  EXPECT_THROW(files_.CreateDirectories(dir_ / "a/z/below-a-file"), IoError);
  EXPECT_THROW(files_.List(dir_ / "a/z"), IoError);
  files_.RemoveAll(dir_ / "a");
  EXPECT_FALSE(files_.Exists(dir_ / "a"));
}

TEST_F(Files, BytesComeBackAsWritten) {
  std::string bytes(200000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
  files_.WriteFile(dir_ / "f", bytes);
  EXPECT_EQ(files_.ReadFile(dir_ / "f"), bytes);
  EXPECT_EQ(files_.FileSize(dir_ / "f"), 200000);
  files_.WriteFile(dir_ / "f", "short");  // truncates
  EXPECT_EQ(files_.ReadFile(dir_ / "f"), "short");
}

TEST_F(Files, AppendGoesToTheEndAndTruncateCutsIt) {
  {
    const auto file = files_.OpenForAppend(dir_ / "log");
    EXPECT_EQ(file->size(), 0);
    file->Append("one\n");
    file->Append("two\n");
    file->Sync();
    EXPECT_EQ(file->size(), 8);
  }
  files_.Truncate(dir_ / "log", 6);
  const auto file = files_.OpenForAppend(dir_ / "log");
  EXPECT_EQ(file->size(), 6);
  file->Append("!\n");
  EXPECT_EQ(files_.ReadFile(dir_ / "log"), "one\ntw!\n");
}

TEST_F(Files, RenameReplacesAFile) {
  files_.WriteFile(dir_ / "from", "new");
  files_.WriteFile(dir_ / "to", "old");
  files_.Rename(dir_ / "from", dir_ / "to");
  EXPECT_EQ(files_.ReadFile(dir_ / "to"), "new");
  EXPECT_THAT(files_.List(dir_.path()), ElementsAre("to"));
}

TEST_F(Files, DurableWritesLeaveNoTemporaryFile) {
  WriteFileDurably(files_, dir_ / "f", "one");
  WriteFileDurably(files_, dir_ / "f", "two");
  EXPECT_EQ(files_.ReadFile(dir_ / "f"), "two");
  EXPECT_THAT(files_.List(dir_.path()), ElementsAre("f"));
}

TEST_F(Files, SealingMovesFilesAndDirectories) {
  files_.WriteFile(dir_ / "f.tmp", "x");
  SealInPlace(files_, dir_ / "f.tmp", dir_ / "f");
  files_.CreateDirectories(dir_ / "d.tmp");
  files_.WriteFile(dir_ / "d.tmp/inside", "y");
  SealInPlace(files_, dir_ / "d.tmp", dir_ / "d");
  EXPECT_THAT(files_.List(dir_.path()), ElementsAre("d", "f"));
  EXPECT_EQ(files_.ReadFile(dir_ / "d/inside"), "y");
  EXPECT_THROW(SealInPlace(files_, dir_ / "absent", dir_ / "g"), IoError);
}

// A file system that writes down what was asked of it.
class Recorder final : public FileSystem {
 public:
  std::string ReadFile(const std::string& p) const override { return real_.ReadFile(p); }
  bool Exists(const std::string& p) const override { return real_.Exists(p); }
  std::int64_t FileSize(const std::string& p) const override { return real_.FileSize(p); }
  std::vector<std::string> List(const std::string& p) const override { return real_.List(p); }
  void CreateDirectories(const std::string& p) override { real_.CreateDirectories(p); }
  void WriteFile(const std::string& p, std::string_view bytes) override {
    Note("write", p), real_.WriteFile(p, bytes);
  }
  std::unique_ptr<AppendFile> OpenForAppend(const std::string& p) override { return real_.OpenForAppend(p); }
  void Truncate(const std::string& p, std::int64_t n) override { real_.Truncate(p, n); }
  void SyncFile(const std::string& p) override { Note("sync", p), real_.SyncFile(p); }
  void SyncDirectory(const std::string& p) override { Note("sync directory", p), real_.SyncDirectory(p); }
  void Rename(const std::string& a, const std::string& b) override {
    Note("rename to", b), real_.Rename(a, b);
  }
  void Remove(const std::string& p) override { real_.Remove(p); }
  void RemoveAll(const std::string& p) override { real_.RemoveAll(p); }
  std::vector<std::string> notes;

 private:
  void Note(const std::string& what, const std::string& path) {
    const std::string name = BaseName(path);
    notes.push_back(what + " " + name.substr(0, name.find(".tmp-")));
  }
  FileSystem& real_ = FileSystem::Real();
};

TEST_F(Files, TheDurableOrderIsWriteSyncRenameSyncDirectory) {
  Recorder recorder;
  const std::string directory = dir_ / "d";
  files_.CreateDirectories(directory);
  WriteFileDurably(recorder, directory + "/f", "x");
  EXPECT_THAT(recorder.notes, ElementsAre("write f", "sync f", "rename to f", "sync directory d"));

  recorder.notes.clear();
  files_.CreateDirectories(directory + "/t");
  files_.WriteFile(directory + "/t/a", "");
  files_.WriteFile(directory + "/t/b", "");
  SealInPlace(recorder, directory + "/t", directory + "/sealed");
  EXPECT_THAT(recorder.notes,
              ElementsAre("sync a", "sync b", "sync directory t", "rename to sealed", "sync directory d"));
}

// Ends a process at its n-th durable operation, for every n: whatever is there is either the old or the new,
// never a mixture.
TEST_F(Files, CrashPointsLeaveOldOrNew) {
  int crashes = 0;
  for (int n = 1;; ++n) {
    ASSERT_LT(n, 60) << "the crash point is never passed";
    const std::string directory = dir_ / std::to_string(n);
    files_.CreateDirectories(directory);
    files_.WriteFile(directory + "/file", "old");
    files_.WriteFile(directory + "/old", "");
    const ProgramResult child = RunProgram({"/usr/bin/env", fmt::format("HEADSWEEP_CRASH_AT=any:{}", n),
                                            HEADSWEEP_BINARY_DIR "/tests/durable_writer", directory},
                                           30, true);
    const std::string file = files_.ReadFile(directory + "/file");
    EXPECT_THAT(file, ::testing::AnyOf("old", "new"));
    if (files_.Exists(directory + "/tree")) {
      EXPECT_EQ(file, "new") << "later steps came first";
      EXPECT_THAT(files_.List(directory + "/tree"), ElementsAre("a", "b"));
    }
    if (child.exit_code == 0) {
      EXPECT_EQ(files_.ReadFile(directory + "/log"), "one\ntwo\n");
      EXPECT_FALSE(files_.Exists(directory + "/old"));
      break;
    }
    ASSERT_EQ(child.exit_code, 137) << child.output;
    EXPECT_TRUE(files_.Exists(directory + "/old")) << "the removal is the last operation";
    ++crashes;
  }
  // file: 3; tree: 1 for its directory, 3 syncs, 1 rename, 1 sync; log: 4; removal: 1.
  EXPECT_EQ(crashes, 14);
}

TEST_F(Files, CrashPointsCanNameAnOperation) {
  files_.WriteFile(dir_ / "file", "old");
  const ProgramResult child = RunProgram({"/usr/bin/env", "HEADSWEEP_CRASH_AT=append:2",
                                          HEADSWEEP_BINARY_DIR "/tests/durable_writer", dir_.path()},
                                         30, true);
  EXPECT_EQ(child.exit_code, 137);
  EXPECT_EQ(files_.ReadFile(dir_ / "log"), "one\n");
  EXPECT_TRUE(files_.Exists(dir_ / "tree"));
}

TEST(BatchJob, IsTheOneThatSlurmOrPbsNames) {
  const ScopedVariable job("SLURM_JOB_ID", nullptr), array("SLURM_ARRAY_JOB_ID", nullptr), task("SLURM_ARRAY_TASK_ID", nullptr),
      restarts("SLURM_RESTART_COUNT", nullptr), pbs("PBS_JOBID", nullptr);
  EXPECT_EQ(ThisBatchJob().id, "");
  EXPECT_EQ(ThisBatchJob().system, BatchJob::System::kNone);
  {
    const ScopedVariable sub_job("PBS_JOBID", "12[3].server");
    EXPECT_EQ(ThisBatchJob().id, "12[3].server");
    EXPECT_EQ(ThisBatchJob().system, BatchJob::System::kPbs);
  }
  const ScopedVariable slurm("SLURM_JOB_ID", "77"), again("SLURM_RESTART_COUNT", "2");
  EXPECT_EQ(ThisBatchJob().id, "77");
  EXPECT_EQ(ThisBatchJob().restart, 2);
  EXPECT_EQ(ThisBatchJob().system, BatchJob::System::kSlurm);
  const ScopedVariable of("SLURM_ARRAY_JOB_ID", "76"), third("SLURM_ARRAY_TASK_ID", "3");
  EXPECT_EQ(ThisBatchJob().id, "76_3");
}

}  // namespace
}  // namespace headsweep
