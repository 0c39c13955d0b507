#include "data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <thread>

#include "cluster/base/errors.h"
#include "cluster/base/run_program.h"
#include "data/batches.h"
#include "data/corpus_description.h"
#include "data/file_lock.h"
#include "data/splits.h"
#include "data/text.h"
#include "data/tokenizer.h"
#include "tests/data/data_support.h"
#include "tests/support/corpora.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MadeUpText;
using testing::TempDir;

// Sets or clears an environment variable for one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* old = std::getenv(name);
    if (old != nullptr) old_ = old, had_ = true;
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { had_ ? ::setenv(name_, old_.c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

std::string Complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no complaint";
}

class Corpus : public ::testing::Test {
 protected:
  CorpusRequest Request(const std::string& text, const std::string& name = "text.txt") {
    files_.WriteFile(dir_ / name, text);
    return {dir_ / name, 150};
  }
  PreparedCorpus Prepare(const CorpusRequest& request) { return PrepareCorpus(request, root_, files_, {}); }
  // What is in the data root, lock files aside.
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const std::string& name : files_.List(root_))
      if (!name.ends_with(".lock")) names.push_back(name);
    return names;
  }

  TempDir dir_;
  std::string root_ = dir_ / "data";
  FileSystem& files_ = FileSystem::Real();
};

TEST_F(Corpus, IsPreparedOnceAndReadsBack) {
  const CorpusRequest request = Request(MadeUpText(400));
  std::vector<std::string> phases;
  const PreparedCorpus prepared =
      PrepareCorpus(request, root_, files_, [&](const std::string& phase) { phases.push_back(phase); });
  EXPECT_EQ(prepared.fingerprint, CorpusFingerprint(request));
  EXPECT_EQ(prepared.directory, root_ + "/" + prepared.fingerprint);
  EXPECT_EQ(prepared.name, "text.txt");
  EXPECT_EQ(prepared.vocabulary, 150);
  EXPECT_THAT(Entries(), ElementsAre(prepared.fingerprint));
  EXPECT_THAT(files_.List(prepared.directory),
              ElementsAre("corpus.json", "test.tokens", "tokenizer.model", "train.tokens", "valid.tokens"));
  EXPECT_EQ(prepared.train.sentences + prepared.valid.sentences + prepared.test.sentences, 400);
  EXPECT_GE(phases.size(), 4u);

  phases.clear();
  const PreparedCorpus again =
      PrepareCorpus(request, root_, files_, [&](const std::string& phase) { phases.push_back(phase); });
  EXPECT_EQ(again.directory, prepared.directory);
  EXPECT_EQ(again.test.pieces, prepared.test.pieces);
  EXPECT_EQ(phases.size(), 2u) << "read, ready: nothing trained or encoded again";
}

TEST_F(Corpus, IsTheSameBytesInAnotherPlace) {
  const PreparedCorpus one = Prepare(Request(MadeUpText(400)));
  const CorpusRequest request = Request(MadeUpText(400), "copy.txt");
  const PreparedCorpus two = PrepareCorpus(request, dir_ / "elsewhere", files_, {});
  for (const char* name : {"train.tokens", "valid.tokens", "test.tokens", "tokenizer.model"})
    EXPECT_EQ(files_.ReadFile(one.directory + "/" + name), files_.ReadFile(two.directory + "/" + name))
        << name;
}

TEST_F(Corpus, TokenFilesHoldTheSplitsSentenceForSentence) {
  const std::string text = MadeUpText(400);
  const PreparedCorpus prepared = Prepare(Request(text));
  const Tokenizer tokenizer(files_.ReadFile(prepared.directory + "/tokenizer.model"));
  const auto lines = SplitSentences(text, "t").lines;
  const SplitCounts* counts[] = {&prepared.train, &prepared.valid, &prepared.test};
  for (int s = 0; s < 3; ++s) {
    const TokenFile file(prepared.TokensPath(kSplitNames[s]));
    std::int64_t sentence = 0, words = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (SplitOf(static_cast<std::int64_t>(i), 400) != static_cast<Split>(s)) continue;
      std::vector<std::int32_t> ids;
      for (std::int64_t t = file.SentenceStart(sentence); t < file.SentenceStart(sentence + 1); ++t)
        ids.push_back(file[t]);
      ASSERT_EQ(ids.back(), kEndToken);
      ids.pop_back();
      ASSERT_EQ(tokenizer.Decode(ids), lines[i]);
      words += CountWords(lines[i]);
      ++sentence;
    }
    EXPECT_EQ(file.sentences(), sentence);
    EXPECT_EQ(counts[s]->sentences, sentence);
    EXPECT_EQ(counts[s]->words, words);
    EXPECT_EQ(counts[s]->pieces, file.size());
  }
}

TEST_F(Corpus, TheTokenizerHasNotSeenTheTestSplit) {
  // One strange word in a test sentence, or none: the same model.
  std::string text = MadeUpText(400), other;
  const auto lines = SplitSentences(text, "t").lines;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    other += lines[i];
    if (SplitOf(static_cast<std::int64_t>(i), 400) != Split::kTrain) other += " Ωmega";
    other += '\n';
  }
  const PreparedCorpus one = Prepare(Request(text)), two = Prepare(Request(other, "other.txt"));
  EXPECT_NE(one.fingerprint, two.fingerprint);
  EXPECT_EQ(files_.ReadFile(one.directory + "/tokenizer.model"),
            files_.ReadFile(two.directory + "/tokenizer.model"));
  EXPECT_GT(two.test.words, one.test.words);
}

TEST(Splits, AreNinetyFiveFiveInBlocksOfEight) {
  std::int64_t counts[3] = {};
  for (std::int64_t i = 0; i < 31102; ++i) ++counts[static_cast<int>(SplitOf(i, 31102))];
  EXPECT_EQ(counts[1], 1552);
  EXPECT_EQ(counts[2], 1552);
  EXPECT_EQ(SplitOf(71, 400), Split::kTrain);
  EXPECT_EQ(SplitOf(72, 400), Split::kValid);
  EXPECT_EQ(SplitOf(79, 400), Split::kValid);
  EXPECT_EQ(SplitOf(80, 400), Split::kTrain);
  EXPECT_EQ(SplitOf(152, 400), Split::kTest);
  EXPECT_EQ(SplitOf(160, 400), Split::kTrain);
}

TEST(Splits, AreNeverEmptyFromTwentySentencesOn) {
  for (std::int64_t n = kLeastSentences; n < 1000; ++n) {
    std::set<Split> seen;
    for (std::int64_t i = 0; i < n; ++i) seen.insert(SplitOf(i, n));
    ASSERT_EQ(seen.size(), 3u) << n;
  }
}

TEST_F(Corpus, FingerprintsFollowSentencesAndVocabularyOnly) {
  const CorpusRequest request = Request("\xef\xbb\xbf" + MadeUpText(50));
  const std::string fingerprint = CorpusFingerprint(request);
  EXPECT_EQ(fingerprint.size(), 16u);
  EXPECT_EQ(CorpusFingerprint(Request("\n" + MadeUpText(50) + "\r\n", "b.txt")), fingerprint);
  EXPECT_NE(CorpusFingerprint(Request(MadeUpText(50) + "one more.\n", "c.txt")), fingerprint);
  EXPECT_NE(CorpusFingerprint(Request(MadeUpText(50, 2), "d.txt")), fingerprint);
  EXPECT_NE(CorpusFingerprint({request.corpus, 151}), fingerprint);
}

TEST_F(Corpus, TheSameTextUnderAnotherNameIsSharedAndKeepsTheNameAskedFor) {
  const PreparedCorpus one = Prepare(Request(MadeUpText(50)));
  const PreparedCorpus two = Prepare(Request(MadeUpText(50), "other.txt"));
  EXPECT_EQ(one.directory, two.directory);
  EXPECT_EQ(two.name, "other.txt");
}

TEST_F(Corpus, DescriptionCountsRepeatedSentencesUnknownPiecesAndEmptyLines) {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += i == 19 || i == 3 ? "the very same line\n"
            : i == 39         ? "Ω\n\n"
                              : "line " + std::to_string(i) + "\n";
  const PreparedCorpus prepared = Prepare(Request(text));
  const std::string path = prepared.directory + "/corpus.json";
  const CorpusDescription description = ParseDescription(files_.ReadFile(path), path);
  EXPECT_EQ(description.empty_lines, 1);
  EXPECT_EQ(description.splits[2].in_train, 1);
  EXPECT_EQ(description.splits[2].unknown, 1);
  EXPECT_EQ(description.splits[0].in_train, 0);
  EXPECT_EQ(description.vocabulary_asked, 150);
  EXPECT_EQ(description.source, dir_ / "text.txt");
}

TEST_F(Corpus, WrongRequestsAreExplained) {
  EXPECT_THAT(Complaint([] { CorpusFingerprint({"", 100}); }), HasSubstr("corpus: empty"));
  const std::string missing = Complaint([] { CorpusFingerprint({"no-such.txt", 100}); });
  EXPECT_THAT(missing, HasSubstr("no-such.txt: no such file (/"));
  EXPECT_THAT(missing, HasSubstr("known: kjv, austen"));
  EXPECT_THAT(Complaint([&] {
                CorpusFingerprint({dir_.path(), 100});
              }),
              HasSubstr("cannot be read as a text file"));
  EXPECT_THAT(Complaint([&] { CorpusFingerprint(Request(MadeUpText(19))); }), HasSubstr("has 19 sentences"));
  EXPECT_THAT(Complaint([&] { CorpusFingerprint(Request("a\n\xff\n")); }),
              HasSubstr("text.txt:2:1: byte 0xff"));
  const CorpusRequest small{Request(MadeUpText(400)).corpus, 10};
  EXPECT_THAT(Complaint([&] { Prepare(small); }), HasSubstr("no tokenizer of 10 pieces"));
  EXPECT_THAT(Entries(), ElementsAre(HasSubstr(".tmp-")));  // not sealed; the next call removes it
}

TEST_F(Corpus, MissingKnownCorporaNameWhatWasLookedForAndWhatToInstall) {
  const Variable path("PATH", dir_.path().c_str());
  {
    const Variable corpora("HEADSWEEP_CORPORA", nullptr);
    const std::string kjv = Complaint([] { CorpusFingerprint({"kjv", 4000}); });
    EXPECT_THAT(kjv, HasSubstr("apt-get install bible-kjv bible-kjv-text"));
    EXPECT_THAT(kjv, HasSubstr("HEADSWEEP_CORPORA is not set"));
    EXPECT_THAT(Complaint([] {
                  CorpusFingerprint({"austen", 4000});
                }),
                HasSubstr("HEADSWEEP_CORPORA is not set"));
  }
  const Variable corpora("HEADSWEEP_CORPORA", dir_.path().c_str());
  EXPECT_THAT(Complaint([] {
                CorpusFingerprint({"kjv", 4000});
              }),
              HasSubstr(dir_ / "lm-kjv/kjv.txt" + " does not exist"));
}

TEST_F(Corpus, AnIncompleteKingJamesTextIsRefused) {
  files_.CreateDirectories(dir_ / "lm-kjv");
  files_.WriteFile(dir_ / "lm-kjv/kjv.txt", MadeUpText(100));
  const Variable corpora("HEADSWEEP_CORPORA", dir_.path().c_str());
  EXPECT_THAT(Complaint([] { CorpusFingerprint({"kjv", 4000}); }), HasSubstr("has 100 verses"));
}

TEST_F(Corpus, ABibleProgramThatFailsOrPrintsSomethingElseIsRefused) {
  const Variable corpora("HEADSWEEP_CORPORA", nullptr);
  const Variable path("PATH", dir_.path().c_str());
  const auto program = [&](const std::string& body) {
    files_.WriteFile(dir_ / "bible", "#!/bin/sh\n" + body + "\n");
    ASSERT_EQ(::chmod((dir_ / "bible").c_str(), 0755), 0);
  };
  program("exit 3");
  EXPECT_THAT(Complaint([] { CorpusFingerprint({"kjv", 4000}); }), HasSubstr("ended with code 3"));
  program("echo 'usage: bible'");
  EXPECT_THAT(Complaint([] { CorpusFingerprint({"kjv", 4000}); }), HasSubstr("printed \"usage: bible\""));
  program("echo 'Ge1:1 In the beginning'");
  EXPECT_THAT(Complaint([] { CorpusFingerprint({"kjv", 4000}); }), HasSubstr("has 1 verses with 3 words"));
}

TEST_F(Corpus, KingJamesIsTheSameFromProgramAndFile) {
  const std::string file = testing::CorpusFile("lm-kjv/kjv.txt");
  if (file.empty()) GTEST_SKIP() << "lm-kjv/kjv.txt not found; set HEADSWEEP_CORPORA";
  if (FindProgram("bible").empty())
    GTEST_SKIP() << "no program `bible` on PATH (apt-get install bible-kjv bible-kjv-text)";
  std::string from_program;
  {
    const Variable corpora("HEADSWEEP_CORPORA", nullptr);
    from_program = CorpusFingerprint({"kjv", 4000});
  }
  const std::string folder = ParentPath(ParentPath(file));
  const Variable corpora("HEADSWEEP_CORPORA", folder.c_str());
  EXPECT_EQ(CorpusFingerprint({"kjv", 4000}), from_program);
}

TEST_F(Corpus, KingJamesIsPreparedWithTheKnownCounts) {
  if (testing::CorpusFile("lm-kjv/kjv.txt").empty() && FindProgram("bible").empty())
    GTEST_SKIP() << "neither lm-kjv/kjv.txt (HEADSWEEP_CORPORA) nor the program `bible` is here";
  const std::string folder = ParentPath(ParentPath(testing::CorpusFile("lm-kjv/kjv.txt")));
  const Variable corpora("HEADSWEEP_CORPORA", FindProgram("bible").empty() ? folder.c_str() : nullptr);
  const PreparedCorpus kjv = Prepare({"kjv", 1000});
  EXPECT_EQ(kjv.vocabulary, 1000);
  EXPECT_EQ(kjv.train.sentences, 27998);
  EXPECT_EQ(kjv.train.sentences + kjv.valid.sentences + kjv.test.sentences, 31102);
  EXPECT_EQ(kjv.train.words + kjv.valid.words + kjv.test.words, 789634);
  // Representative: words per sentence and pieces per word of the test split are near those of the training
  // split.
  const auto ratio = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  EXPECT_NEAR(ratio(kjv.test.words, kjv.test.sentences) / ratio(kjv.train.words, kjv.train.sentences), 1,
              0.05);
  EXPECT_NEAR(ratio(kjv.test.pieces, kjv.test.words) / ratio(kjv.train.pieces, kjv.train.words), 1, 0.05);
}

TEST_F(Corpus, DamageToAnyPreparedFileIsRefusedByName) {
  const PreparedCorpus prepared = Prepare(Request(MadeUpText(400)));
  for (const char* name : {"corpus.json", "tokenizer.model", "train.tokens", "valid.tokens", "test.tokens"}) {
    const std::string path = prepared.directory + "/" + name;
    const std::string good = files_.ReadFile(path);
    std::string bad = good;
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
    files_.WriteFile(path, bad);
    const std::string complaint = Complaint([&] { OpenPreparedCorpus(prepared.directory, files_); });
    EXPECT_THAT(complaint, HasSubstr(path));
    EXPECT_THAT(complaint, HasSubstr("folder and run again"));
    files_.Remove(path);
    EXPECT_THROW(OpenPreparedCorpus(prepared.directory, files_), IoError) << name << " missing";
    files_.WriteFile(path, good);
  }
  const std::string train = files_.ReadFile(prepared.TokensPath("train"));
  files_.WriteFile(prepared.TokensPath("train"),
                   files_.ReadFile(prepared.TokensPath("test")));  // intact, but not that file
  EXPECT_THAT(Complaint([&] { OpenPreparedCorpus(prepared.directory, files_); }),
              HasSubstr("not the one that"));
  files_.WriteFile(prepared.TokensPath("train"), train);
  EXPECT_EQ(OpenPreparedCorpus(prepared.directory, files_).fingerprint, prepared.fingerprint);
}

TEST_F(Corpus, AnotherFormatOfTheDescriptionIsRefused) {
  const PreparedCorpus prepared = Prepare(Request(MadeUpText(50)));
  const std::string path = prepared.directory + "/corpus.json";
  std::string text = files_.ReadFile(path);
  text.replace(text.find("\"format\": 1"), 11, "\"format\": 7");
  files_.WriteFile(path, text);
  EXPECT_THAT(Complaint([&] { OpenPreparedCorpus(prepared.directory, files_); }),
              HasSubstr("format version 7"));
}

// Ends a child process at the n-th durable operation, for every n that occurs. The next call must find
// nothing half-made.
TEST_F(Corpus, AProcessKilledAtAnyOperationLeavesNothingHalfMade) {
  const CorpusRequest request = Request(MadeUpText(400));
  const std::string expected = PrepareCorpus(request, dir_ / "reference", files_, {}).fingerprint;
  int crashes = 0;
  for (int n = 1;; ++n) {
    ASSERT_LT(n, 100) << "the crash point is never passed";
    root_ = dir_ / fmt::format("root-{}", n);
    files_.CreateDirectories(root_);  // here, so that the child's count starts with the corpus itself
    const std::string crash = fmt::format("HEADSWEEP_CRASH_AT=any:{}", n);
    const ProgramResult child = RunProgram(
        {"/usr/bin/env", crash, HEADSWEEP_BINARY_DIR "/tests/prepare_corpus", request.corpus, "150", root_},
        60, true);
    if (child.exit_code == 0) break;
    ASSERT_EQ(child.exit_code, 137) << child.output;
    ++crashes;
    for (const std::string& name : Entries()) {
      if (name == expected) {
        EXPECT_EQ(OpenPreparedCorpus(root_ + "/" + name, files_).fingerprint, expected)
            << "sealed, so complete";
      } else {
        EXPECT_THAT(name, ::testing::StartsWith(expected + ".tmp-"));
      }
    }
    EXPECT_EQ(Prepare(request).fingerprint, expected) << "after a crash at operation " << n;
    EXPECT_THAT(Entries(), ElementsAre(expected)) << "leftovers are removed";
  }
  EXPECT_GE(crashes, 7);  // 5 files and 2 directories are synced, one directory renamed
}

// A file system whose disk is full at the n-th write.
class FullDisk final : public FileSystem {
 public:
  explicit FullDisk(int writes) : left_(writes) {}
  std::string ReadFile(const std::string& p) const override { return real_.ReadFile(p); }
  bool Exists(const std::string& p) const override { return real_.Exists(p); }
  std::int64_t FileSize(const std::string& p) const override { return real_.FileSize(p); }
  std::vector<std::string> List(const std::string& p) const override { return real_.List(p); }
  void CreateDirectories(const std::string& p) override { real_.CreateDirectories(p); }
  void WriteFile(const std::string& p, std::string_view bytes) override {
    if (left_-- == 0) throw IoError("write", p, ENOSPC);
    real_.WriteFile(p, bytes);
  }
  std::unique_ptr<AppendFile> OpenForAppend(const std::string& p) override { return real_.OpenForAppend(p); }
  void Truncate(const std::string& p, std::int64_t n) override { real_.Truncate(p, n); }
  void SyncFile(const std::string& p) override { real_.SyncFile(p); }
  void SyncDirectory(const std::string& p) override { real_.SyncDirectory(p); }
  void Rename(const std::string& a, const std::string& b) override { real_.Rename(a, b); }
  void Remove(const std::string& p) override { real_.Remove(p); }
  void RemoveAll(const std::string& p) override { real_.RemoveAll(p); }

 private:
  FileSystem& real_ = FileSystem::Real();
  int left_;
};

TEST_F(Corpus, AFullDiskIsReportedAndTheNextCallSucceeds) {
  const CorpusRequest request = Request(MadeUpText(50));
  for (int writes = 0; writes < 5; ++writes) {
    root_ = dir_ / fmt::format("root-{}", writes);
    FullDisk full(writes);
    EXPECT_THROW(PrepareCorpus(request, root_, full, {}), IoError);
    EXPECT_FALSE(files_.Exists(root_ + "/" + CorpusFingerprint(request)));
    EXPECT_EQ(Prepare(request).train.sentences, 45);
    EXPECT_EQ(Entries().size(), 1u);
  }
}

TEST_F(Corpus, ConcurrentPreparersShareOnePreparation) {
  const CorpusRequest request = Request(MadeUpText(400));
  std::atomic<int> trained{0};
  std::vector<std::string> directories(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      directories[i] = PrepareCorpus(request, root_, files_, [&](const std::string& phase) {
                         if (phase.starts_with("training")) ++trained;
                       }).directory;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trained, 1);
  for (const std::string& directory : directories) EXPECT_EQ(directory, directories[0]);
  EXPECT_EQ(Entries().size(), 1u);
}

TEST_F(Corpus, ConcurrentProcessesShareOnePreparation) {
  const CorpusRequest request = Request(MadeUpText(2000));
  std::vector<ProgramResult> results(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      results[i] =
          RunProgram({HEADSWEEP_BINARY_DIR "/tests/prepare_corpus", request.corpus, "150", root_}, 60, true);
    });
  for (std::thread& thread : threads) thread.join();
  int trained = 0;
  for (const ProgramResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    trained += result.output.find("training a tokenizer") != std::string::npos;
  }
  EXPECT_EQ(trained, 1);
  EXPECT_EQ(Entries().size(), 1u);
}

TEST_F(Corpus, ALockThatIsNeverFreedIsReportedWithItsHolder) {
  const FileLock held(dir_ / "a.lock", 1, [](const std::string&) {});
  std::string holder;
  try {
    const FileLock second(dir_ / "a.lock", 0.05, [&](const std::string& who) { holder = who; });
    FAIL();
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(::getpid())));
    EXPECT_THAT(error.what(), HasSubstr("a.lock"));
  }
  EXPECT_THAT(holder, HasSubstr(std::to_string(::getpid())));
}

TEST(KnownCorporaTest, AreListedWithDescriptions) {
  std::vector<std::string> names;
  for (const KnownCorpus& corpus : KnownCorpora()) {
    names.push_back(corpus.name);
    EXPECT_FALSE(corpus.description.empty());
  }
  EXPECT_THAT(names, ElementsAre("kjv", "austen"));
}

}  // namespace
}  // namespace headsweep
