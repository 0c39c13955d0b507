#include "results/stage_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "results/schema.h"
#include "results/table_io.h"
#include "tests/results/synthetic.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;
using testing::MakeProvenance;
using testing::MakePruneTables;
using testing::MakeSummary;
using testing::MakeTrainTables;
using testing::TempDir;

template <class Row>
void ExpectSameRow(const TableSchema<Row>& schema, const Row& a, const Row& b) {
  RowBlock blocks[2] = {RowBlock(schema.Info().columns), RowBlock(schema.Info().columns)};
  schema.AddCells(a, blocks[0]);
  schema.AddCells(b, blocks[1]);
  for (std::size_t c = 0; c < schema.fields.size(); ++c) {
    const Column& column = schema.fields[c].column;
    const int i = static_cast<int>(c);
    if (column.type == ColumnType::kText) {
      EXPECT_EQ(blocks[0].Text(0, i), blocks[1].Text(0, i)) << column.name;
    } else {
      EXPECT_EQ(0, std::memcmp(static_cast<const char*>(blocks[0].data()) + blocks[0].offset(i),
                               static_cast<const char*>(blocks[1].data()) + blocks[1].offset(i), 8))
          << schema.name << "." << column.name;
    }
  }
}

void ExpectSameTables(const StageTables& a, const StageTables& b) {
  ForEachTable([&](const auto& schema, auto member) {
    ASSERT_EQ((a.*member).size(), (b.*member).size()) << schema.name;
    for (std::size_t i = 0; i < (a.*member).size(); ++i)
      ExpectSameRow(schema, (a.*member)[i], (b.*member)[i]);
  });
}

StageTables AllTables() {
  StageTables tables = MakeTrainTables({});
  const StageTables pruned = MakePruneTables({}, "importance");
  tables.pruning = pruned.pruning;
  tables.ablation = pruned.ablation;
  tables.removal = pruned.removal;
  return tables;
}

std::string ReasonOf(const std::string& path) {
  try {
    ReadStageFile(path);
  } catch (const IoError& error) {
    EXPECT_EQ(error.path(), path);
    return error.what();
  }
  return "was read";
}

TEST(StageFile, ReadsBackEveryValueThatWasWritten) {
  TempDir dir;
  StageTables tables = AllTables();
  tables.steps[3].loss = std::numeric_limits<double>::quiet_NaN();
  tables.steps[4].loss = -0.0;
  tables.steps[5].loss = std::numeric_limits<double>::denorm_min();
  tables.pruning[1].order_seed = std::numeric_limits<std::uint64_t>::max();
  tables.evaluations[0].split = "";
  tables.evaluations[1].split = "größer ≠ kleiner 𝛼";
  Provenance provenance = MakeProvenance("0123456789abcdef", "train", "");
  provenance.config_toml = std::string(200000, 'x') + "end";  // beyond HDF5's 64 KiB limit of attributes
  const StageSummary summary = MakeSummary({}, tables);
  WriteStageFile(dir / "result.h5", provenance, tables, summary);
  const StageFile file = ReadStageFile(dir / "result.h5");
  ExpectSameTables(tables, file.tables);
  ExpectSameRow(ProvenanceSchema(), provenance, file.provenance);
  ExpectSameRow(SummarySchema(), summary, file.summary);
  EXPECT_EQ(TablesDigest(file.tables, summary.weights_checksum), summary.digest);
}

TEST(StageFile, ColumnsThatCameLaterAreEmptyInFilesOfBefore) {
  TempDir dir;
  TableInfo before = ProvenanceSchema().Info();
  std::erase_if(before.columns, [](const Column& column) { return column.later; });
  ASSERT_LT(before.columns.size(), ProvenanceSchema().fields.size());
  hdf5::Handle file = hdf5::CreateFile(dir / "old.h5");
  RowBlock row(before.columns);
  for (const Column& column : before.columns) {
    if (column.type == ColumnType::kText) {
      row.AddText("text of " + column.name);
    } else if (column.type == ColumnType::kInt) {
      row.AddInt(7);
    } else {
      row.AddReal(0.5);
    }
  }
  hdf5::TableWriter writer(file.get(), before, hdf5::Storage::kCompressed, dir / "old.h5", 1);
  writer.Append(row);
  writer.Close();
  const RowBlock read = hdf5::ReadTable(file.get(), ProvenanceSchema().Info(), dir / "old.h5");
  ASSERT_EQ(read.rows(), 1);
  const Provenance provenance = ProvenanceSchema().RowAt(read, 0);
  EXPECT_EQ(provenance.job, "");
  EXPECT_EQ(provenance.job_restart, 0);
  EXPECT_EQ(provenance.host, "text of host");
  EXPECT_EQ(provenance.device, "text of device");
  EXPECT_EQ(provenance.attempt, 7);
}

TEST(StageFile, EmptyTablesAreFine) {
  TempDir dir;
  WriteStageFile(dir / "result.h5", Provenance{}, StageTables{}, StageSummary{});
  const StageFile file = ReadStageFile(dir / "result.h5");
  EXPECT_TRUE(file.tables.steps.empty());
  EXPECT_EQ(file.summary.outcome, "finished");
}

TEST(StageFile, TablesLongerThanABlockKeepTheirOrder) {
  TempDir dir;
  StageTables tables;
  for (int i = 0; i < 70000; ++i) tables.removal.push_back({"random", 1, i, 0, i % 7, i * 0.5});
  WriteStageFile(dir / "result.h5", Provenance{}, tables, StageSummary{});
  ExpectSameTables(tables, ReadStageFile(dir / "result.h5").tables);
}

TEST(StageFile, SameContentGivesSameBytes) {
  TempDir dir;
  for (const char* name : {"a", "b"})
    WriteStageFile(dir / name, MakeProvenance("1", "train", ""), AllTables(), {});
  EXPECT_EQ(FileSystem::Real().ReadFile(dir / "a"), FileSystem::Real().ReadFile(dir / "b"));
}

TEST(StageFile, TextThatIsNotUtf8IsMadeSo) {
  TempDir dir;
  StageSummary summary;
  summary.summary_line = std::string("a\xFF") + '\0' + "\xED\xA0\x80z";
  WriteStageFile(dir / "result.h5", Provenance{}, StageTables{}, summary);
  EXPECT_EQ(ReadStageFile(dir / "result.h5").summary.summary_line,
            "a\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDz");  // a lone surrogate is three bad bytes
}

TEST(StageFile, TextsOfAMegabyteComeBack) {
  TempDir dir;
  Provenance provenance = MakeProvenance("1", "train", "");
  while (provenance.config_toml.size() < 1 << 20) provenance.config_toml += "clé = \"\U0001F9E0\"\n";
  WriteStageFile(dir / "result.h5", provenance, StageTables{}, StageSummary{});
  EXPECT_TRUE(ReadStageFile(dir / "result.h5").provenance.config_toml == provenance.config_toml);
}

TEST(StageFile, EveryTruncationIsRefusedWithItsReason) {
  TempDir dir;
  WriteStageFile(dir / "result.h5", MakeProvenance("1", "train", ""), AllTables(),
                 MakeSummary({}, AllTables()));
  const std::string bytes = FileSystem::Real().ReadFile(dir / "result.h5");
  for (std::size_t length = 0; length < bytes.size(); length += length < 600 ? 1 : 211) {
    FileSystem::Real().WriteFile(dir / "cut.h5", std::string_view(bytes).substr(0, length));
    EXPECT_THAT(ReasonOf(dir / "cut.h5"), HasSubstr(length == 0 ? "is empty" : "is truncated")) << length;
  }
}

TEST(StageFile, EveryFlippedByteIsRefused) {
  TempDir dir;
  WriteStageFile(dir / "result.h5", MakeProvenance("1", "train", ""), AllTables(),
                 MakeSummary({}, AllTables()));
  const std::string bytes = FileSystem::Real().ReadFile(dir / "result.h5");
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 250; ++i) {
    std::string damaged = bytes;
    const std::size_t at = i < 120 ? static_cast<std::size_t>(i) : random() % bytes.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 + random() % 255));
    FileSystem::Real().WriteFile(dir / "damaged.h5", damaged);
    EXPECT_NE(ReasonOf(dir / "damaged.h5"), "was read") << "byte " << at;
  }
}

TEST(StageFile, ForeignFilesAreRefusedWithTheirReason) {
  TempDir dir;
  FileSystem& files = FileSystem::Real();
  std::mt19937 random(1);
  std::string noise(5000, ' ');
  for (char& c : noise) c = static_cast<char>(random());
  files.WriteFile(dir / "noise.h5", noise);
  EXPECT_THAT(ReasonOf(dir / "noise.h5"), HasSubstr("is not a stage file of headsweep"));
  WriteStageFile(dir / "result.h5", Provenance{}, StageTables{}, StageSummary{});
  const std::string bytes = files.ReadFile(dir / "result.h5");
  files.WriteFile(dir / "plain.h5", bytes.substr(512));
  EXPECT_THAT(ReasonOf(dir / "plain.h5"), HasSubstr("is an HDF5 file, but not a stage file"));
  std::string other = bytes;
  other.replace(other.find("schema 1"), 8, "schema 7");
  files.WriteFile(dir / "later.h5", other);
  EXPECT_THAT(ReasonOf(dir / "later.h5"), HasSubstr("schema version 7, this headsweep reads version 1"));
  EXPECT_THAT(ReasonOf(dir / "absent.h5"), HasSubstr("No such file"));
}

TEST(StageFile, FullDiskIsAnErrorWithItsErrno) {
  TempDir dir;
  // A file-size limit stands in for a full disk; in a child, because limits are a process's.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(9);
    try {
      WriteStageFile(dir / "result.h5", Provenance{}, AllTables(), StageSummary{});
    } catch (const IoError& error) {
      std::exit(error.error_number() == EFBIG ? 42 : 8);  // exit handlers included: HDF5's must not crash
    }
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST(LiveMetrics, FullDiskIsAnErrorAndTheProcessLeavesNormally) {
  TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{64 << 10, 64 << 10};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(9);
    try {
      LiveMetrics live(dir / "metrics.h5", Provenance{});
      StageTables tables;
      for (int i = 0; i < 100; ++i) {
        for (int k = 0; k < 100; ++k) tables.steps.push_back({i * 100 + k + 1, 1.0, 0, 0, 0, 0, 0});
        live.Append(tables);
      }
    } catch (const IoError& error) {
      std::exit(error.error_number() == EFBIG ? 42 : 8);
    }
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST(LiveMetrics, AppendsOnlyWhatIsNew) {
  TempDir dir;
  const StageTables whole = AllTables();
  LiveMetrics live(dir / "metrics.h5", MakeProvenance("1", "train", ""));
  StageTables part = whole;
  part.steps.resize(20);
  part.importance.resize(1);
  part.pruning.clear();
  live.Append(part);
  live.Append(part);
  live.Append(whole);
  live.Close();
  live.Close();
  const StageFile file = ReadStageFile(dir / "metrics.h5");
  ExpectSameTables(whole, file.tables);
  EXPECT_EQ(file.summary.outcome, "");
}

TEST(LiveMetrics, RowsOutliveAKilledProcess) {
  TempDir dir;
  const StageTables whole = MakeTrainTables({}, 200, 10);
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    LiveMetrics live(dir / "metrics.h5", MakeProvenance("1", "train", ""));
    StageTables part;
    part.evaluations = whole.evaluations;
    for (const StepRow& step : whole.steps) {
      part.steps.push_back(step);
      live.Append(part);
    }
    if (::write(pipes[1], "x", 1) != 1) ::_exit(9);
    for (;;) ::pause();
  }
  ::close(pipes[1]);
  char byte = 0;
  ASSERT_EQ(::read(pipes[0], &byte, 1), 1);  // ends with 0 if the child died
  ::close(pipes[0]);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  const StageFile file = ReadStageFile(dir / "metrics.h5");
  StageTables expected;
  expected.steps = whole.steps;
  expected.evaluations = whole.evaluations;
  ExpectSameTables(expected, file.tables);
  EXPECT_EQ(file.provenance.stage_id, "1");
  EXPECT_EQ(file.summary.outcome, "");
}

TEST(LiveMetrics, IsReadableWithoutAnyRow) {
  TempDir dir;
  LiveMetrics live(dir / "metrics.h5", MakeProvenance("1", "train", ""));
  EXPECT_EQ(ReadStageFile(dir / "metrics.h5").provenance.stage_id, "1");
}

TEST(TablesDigest, ChangesWithEveryValueButTimings) {
  const StageTables tables = AllTables();
  const std::string digest = TablesDigest(tables, 7);
  EXPECT_EQ(digest.size(), 16u);
  EXPECT_EQ(TablesDigest(tables, 7), digest);
  EXPECT_NE(TablesDigest(tables, 8), digest);
  ForEachTable([&](const auto& schema, auto member) {
    for (const auto& field : schema.fields) {
      StageTables changed = tables;
      auto& row = (changed.*member).back();
      std::visit(
          [&](auto m) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(row.*m)>, std::string>) {
              row.*m += "!";
            } else {
              row.*m += 1;
            }
          },
          field.member);
      EXPECT_EQ(TablesDigest(changed, 7) == digest, field.column.timing)
          << schema.name << "." << field.column.name;
    }
    StageTables shorter = tables;
    (shorter.*member).pop_back();
    EXPECT_NE(TablesDigest(shorter, 7), digest) << schema.name;
  });
}

TEST(TablesDigest, TakesDoublesBitByBit) {
  StageTables zero, minus_zero, not_a_number;
  zero.steps.resize(1);
  minus_zero.steps.resize(1);
  minus_zero.steps[0].loss = -0.0;
  not_a_number.steps.resize(1);
  not_a_number.steps[0].loss = std::nan("");
  EXPECT_NE(TablesDigest(zero, 0), TablesDigest(minus_zero, 0));
  EXPECT_EQ(TablesDigest(not_a_number, 0), TablesDigest(not_a_number, 0));
}

TEST(TablesDigest, IsTheSameInEveryRelease) {
  // On disk and in journals: a change here means that old digests no longer compare.
  EXPECT_EQ(TablesDigest(StageTables{}, 0), "6b2041cd9794f057");
  StageTables one;
  one.steps.push_back({1, 2.5, 1e-3, 0.5, 64, 0.1, 640});
  one.evaluations.push_back({1, "valid", 2.0, 7.4, 20.1, 100, 0.1});
  EXPECT_EQ(TablesDigest(one, 42), "d65de9d2f79004fb");
}

}  // namespace
}  // namespace headsweep
