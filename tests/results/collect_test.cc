#include "results/collect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "cluster/base/hash.h"
#include "results/grid.h"
#include "results/results_file.h"
#include "results/schema.h"
#include "results/stage_file.h"
#include "results/stage_format.h"
#include "tests/results/synthetic.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::MakeSweep;
using ::testing::SizeIs;
using testing::SyntheticSweep;
using testing::TempDir;

constexpr const char* kPython = "/usr/bin/python3";  // Debian's, which sees Debian's modules

// Runs a script of tests/results; its output goes to the test's. "" = it ended with 0.
std::string RunPython(const std::string& script, const std::vector<std::string>& arguments) {
  std::string command = fmt::format("{} '{}/tests/results/{}'", kPython, HEADSWEEP_SOURCE_DIR, script);
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  const int status = std::system((command + " 2>&1").c_str());
  return status == 0 ? "" : fmt::format("{} ended with status {}", command, status);
}

bool HavePythonModules() {
  return std::system(
             fmt::format("{} -c 'import h5py, pandas, xarray, h5netcdf' 2>/dev/null", kPython).c_str()) == 0;
}

json JsonNumber(double value) { return std::isnan(value) ? json() : json(value); }

// What the python side must find, from the stage files.
json Expected(const CollectInput& input) {
  json expected = {
      {"trials", 0}, {"dimensions", json::array()}, {"axes", json::object()}, {"cells", json::array()}};
  std::map<std::string, std::size_t> rows = {{"steps", 0},   {"evaluations", 0}, {"importance", 0},
                                             {"pruning", 0}, {"ablation", 0},    {"removal", 0}};
  for (const GridAxis& axis : input.axes) {
    bool text = false;
    for (const AxisValue& value : axis.values) text = text || std::holds_alternative<std::string>(value);
    json values = json::array();
    for (const AxisValue& value : axis.values) {
      if (text)
        values.push_back(FormatAxisValue(value));
      else
        values.push_back(std::get<std::int64_t>(value));
    }
    expected["axes"][axis.name] = values;
    expected["dimensions"].push_back(axis.name);
  }
  for (const CollectStage& stage : input.stages) {
    expected["trials"] = expected["trials"].get<int>() + (stage.kind == "train");
    std::optional<StageFile> file;
    if (!stage.result_path.empty()) file = ReadStageFile(stage.result_path);
    for (const std::vector<int>& point : stage.points) {
      json at;
      for (std::size_t a = 0; a < point.size(); ++a) at[input.axes[a].name] = point[a];
      const double nan = std::nan("");
      expected["cells"].push_back(
          {{"at", at}, {"variable", "test_nll"}, {"value", JsonNumber(file ? file->summary.test_nll : nan)}});
      expected["cells"].push_back({{"at", at},
                                   {"variable", "head_size_resolved"},
                                   {"value", NumberOf(stage.columns.at("head_size"))}});
      expected["cells"].push_back(
          {{"at", at},
           {"variable", "parameters"},
           {"value", JsonNumber(file ? static_cast<double>(file->summary.parameters) : nan)}});
    }
    if (!file) continue;
    rows["steps"] += file->tables.steps.size();
    rows["evaluations"] += file->tables.evaluations.size();
    rows["importance"] += file->tables.importance.size();
    rows["pruning"] += file->tables.pruning.size();
    rows["ablation"] += file->tables.ablation.size();
    rows["removal"] += file->tables.removal.size();
  }
  rows["attempts"] = input.attempts.size();
  rows["stages"] = input.stages.size();
  for (const auto& [name, count] : rows) expected["tables"][name] = count;
  return expected;
}

// Adds, for one trial, every point of its pruning curves as the mean over order seeds.
void AddPruningCells(const CollectInput& input, const std::string& trial,
                     const std::vector<std::string>& orders, json& expected) {
  std::map<std::pair<std::string, int>, std::vector<double>> samples;
  const CollectStage* parent = nullptr;
  for (const CollectStage& stage : input.stages) {
    if (stage.id == trial) parent = &stage;
    if (stage.parent != trial || stage.result_path.empty()) continue;
    const StageFile file = ReadStageFile(stage.result_path);
    for (std::size_t i = 0; i < file.tables.pruning.size(); ++i) {
      samples[{file.tables.pruning[i].order, static_cast<int>(i)}].push_back(file.tables.pruning[i].nll);
    }
  }
  ASSERT_NE(parent, nullptr);
  ASSERT_FALSE(samples.empty());
  for (const auto& [where, values] : samples) {
    double sum = 0;
    for (const double value : values) sum += value;
    json at = {{"order", std::find(orders.begin(), orders.end(), where.first) - orders.begin()},
               {"fraction", where.second}};
    for (std::size_t a = 0; a < input.axes.size(); ++a) at[input.axes[a].name] = parent->points[0][a];
    expected["cells"].push_back(
        {{"at", at}, {"variable", "pruning_nll"}, {"value", sum / static_cast<double>(values.size())}});
  }
}

TEST(Collect, PandasAndXarrayReadWhatWasPutIn) {
  if (!HavePythonModules())
    GTEST_SKIP() << "python3-h5py, python3-pandas, python3-xarray, python3-h5netcdf not installed";
  TempDir dir;
  const SyntheticSweep sweep;
  const CollectInput input = MakeSweep(sweep, dir / "stages");
  const CollectOutcome outcome = Collect(input, dir / "results.h5");
  EXPECT_THAT(outcome.problems, SizeIs(0));
  json expected = Expected(input);
  for (const CollectStage& stage : input.stages) {
    if (stage.kind == "train" && stage.points.size() > 1 && stage.state == "finished") {
      AddPruningCells(input, stage.id, sweep.orders,
                      expected);  // a merged duplicate: both points must be there
    }
  }
  FileSystem::Real().WriteFile(dir / "expected.json", expected.dump());
  EXPECT_EQ(RunPython("read_results.py", {dir / "results.h5", dir / "expected.json"}), "");
}

TEST(Collect, GridWithoutAxesIsASinglePoint) {
  if (!HavePythonModules()) GTEST_SKIP() << "python modules not installed";
  TempDir dir;
  SyntheticSweep sweep;
  sweep.heads = {4};
  sweep.head_sizes = {std::int64_t{32}};
  sweep.seeds = 1;
  sweep.failures = false;
  CollectInput input = MakeSweep(sweep, dir / "stages");
  input.axes.clear();
  for (CollectStage& stage : input.stages) {
    if (stage.kind == "train") stage.points = {{}};
  }
  Collect(input, dir / "results.h5");
  json expected = Expected(input);
  expected["cells"].erase(1);  // head_size is no axis: not head_size_resolved
  FileSystem::Real().WriteFile(dir / "expected.json", expected.dump());
  EXPECT_EQ(RunPython("read_results.py", {dir / "results.h5", dir / "expected.json"}), "");
}

TEST(Collect, SweepWithoutAnyResultIsStillAFile) {
  TempDir dir;
  CollectInput input;
  input.sweep_name = "nothing yet";
  CollectOutcome outcome = Collect(input, dir / "results.h5");
  EXPECT_EQ(outcome.stages_read, 0);
  EXPECT_THAT(FormatSummary(dir / "results.h5"), HasSubstr("nothing yet"));
}

TEST(Collect, SameInputGivesTheSameBytes) {
  TempDir dir;
  SyntheticSweep sweep;
  sweep.heads = {2, 4};
  sweep.seeds = 1;
  const CollectInput input = MakeSweep(sweep, dir / "stages");
  Collect(input, dir / "a.h5");
  Collect(input, dir / "b.h5");
  EXPECT_EQ(FileSystem::Real().ReadFile(dir / "a.h5"), FileSystem::Real().ReadFile(dir / "b.h5"));
}

TEST(Collect, BadFilesAreSkippedAndListed) {
  TempDir dir;
  SyntheticSweep sweep;
  sweep.heads = {2, 8};
  sweep.seeds = 2;
  sweep.orders = {};
  sweep.failures = false;
  CollectInput input = MakeSweep(sweep, dir / "stages");
  ASSERT_GE(input.stages.size(), 8u);
  FileSystem& files = FileSystem::Real();
  const std::string whole = files.ReadFile(input.stages[0].result_path);
  files.WriteFile(input.stages[0].result_path, "");
  files.WriteFile(input.stages[1].result_path, "these are not the bytes of a stage file");
  files.WriteFile(input.stages[2].result_path, std::string_view(whole).substr(0, whole.size() / 2));
  std::string later = whole;
  later.replace(later.find("schema 1"), 8, "schema 2");
  files.WriteFile(input.stages[3].result_path, later);
  input.stages[4].result_path = dir / "absent.h5";
  files.WriteFile(input.stages[5].result_path, whole);  // another stage's
  input.stages[6].result_path = "";                     // finished, but nothing there
  const CollectOutcome outcome = Collect(input, dir / "results.h5");
  EXPECT_EQ(outcome.stages_read, static_cast<int>(input.stages.size()) - 7);
  ASSERT_THAT(outcome.problems, SizeIs(7));
  const char* reasons[] = {"is empty",     "is not a stage file",    "is truncated",      "schema version 2",
                           "No such file", "holds results of stage", "has no result file"};
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_THAT(outcome.problems[i], HasSubstr(reasons[i]));
    EXPECT_THAT(outcome.problems[i], HasSubstr(i == 6 ? input.stages[i].id : input.stages[i].result_path));
  }
}

TEST(Collect, ATrialThatWasStoppedEarlyHasItsRowsButNoResult) {
  TempDir dir;
  SyntheticSweep sweep;
  sweep.heads = {2, 8};
  sweep.seeds = 1;
  sweep.orders = {};
  sweep.failures = false;
  CollectInput input = MakeSweep(sweep, dir / "stages");
  CollectStage& stopped = input.stages[0];
  const StageTables rows = ReadStageFile(stopped.result_path).tables;
  {
    LiveMetrics live(dir / "metrics.h5", testing::MakeProvenance(stopped.id, "train", ""));
    live.Append(rows);
    live.Close();
  }
  stopped.result_path = dir / "metrics.h5";
  EXPECT_THAT(Collect(input, dir / "results.h5").problems, SizeIs(1)) << "a finished stage has a summary";
  stopped.state = "early-stopped";
  stopped.reason = "others do better";
  EXPECT_THAT(Collect(input, dir / "results.h5").problems, SizeIs(0));
  const ResultsFile results(dir / "results.h5");
  EXPECT_EQ(results.trials[0].state, "early-stopped");
  EXPECT_EQ(results.trials[0].reason, "others do better");
  EXPECT_THAT(results.sweep.partial, HasSubstr("1 of 4 stages were stopped early, so what is left"));
  EXPECT_TRUE(std::isnan(results.trials[0].valid_perplexity)) << "it is no result of the point";
  std::size_t evaluations = 0;
  results.ForEachRow(EvaluationSchema(), ResultsFile::Visit<EvaluationRow>(
                                             [&](const std::string& trial, const std::string&, const EvaluationRow&) {
                                               evaluations += trial == results.trials[0].stage;
                                             }));
  EXPECT_EQ(evaluations, rows.evaluations.size());
}

TEST(Collect, SevenHundredFilesNeedNoMoreMemoryOrDescriptorsThanAFew) {
  TempDir dir;
  SyntheticSweep sweep;
  sweep.heads = {2};
  sweep.head_sizes = {std::int64_t{16}};
  sweep.seeds = 700;
  sweep.steps = 6;
  sweep.orders = {};
  sweep.failures = false;
  CollectInput input = MakeSweep(sweep, dir / "stages");
  ASSERT_THAT(input.stages, SizeIs(700));
  for (const std::size_t bad : {7u, 350u, 699u})
    FileSystem::Real().WriteFile(input.stages[bad].result_path, "bad");
  CollectInput few = input;
  few.stages.resize(50);
  Collect(few, dir / "few.h5");
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  rlimit usual{};
  ::getrlimit(RLIMIT_NOFILE, &usual);
  const rlimit few_files{.rlim_cur = 64, .rlim_max = usual.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few_files);
  const CollectOutcome outcome = Collect(input, dir / "results.h5");
  ::setrlimit(RLIMIT_NOFILE, &usual);
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(outcome.stages_read, 697);
  EXPECT_THAT(outcome.problems, SizeIs(3));
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 40 * 1024) << "KiB more than for 50 files";
}

// A sweep of any size that is nowhere in memory: every stage's file is made when the stage is handed over, at one path.
class EndlessSweep {
 public:
  EndlessSweep(std::int64_t trials, const TempDir& dir) : trials_(trials), path_(dir / "stage.h5") {
    const testing::SyntheticModel model;
    WriteStageFile(path_, testing::MakeProvenance(kPlaceholder, "train", ""), testing::MakeTrainTables(model, 6, 2),
                   testing::MakeSummary(model, testing::MakeTrainTables(model, 6, 2)));
    pattern_ = FileSystem::Real().ReadFile(path_);
    at_ = pattern_.find(kPlaceholder);
  }

  CollectSource Source() const {
    CollectSource source{.sweep_name = "endless", .sweep_toml = "", .axes = {}, .for_each_stage = {}, .for_each_attempt = {}};
    GridAxis seeds{.name = "seed", .key = "seed", .values = {}};
    for (std::int64_t i = 0; i < trials_; ++i) seeds.values.emplace_back(i);
    source.axes.push_back(std::move(seeds));
    source.for_each_stage = [this, pass = 0](const auto& visit) mutable {
      const bool reads = ++pass == 2;
      for (std::int64_t i = 0; i < trials_; ++i) visit(StageAt(i, reads));
    };
    source.for_each_attempt = [this](const auto& visit) {
      for (std::int64_t i = 0; i < trials_; ++i)
        visit(AttemptRecord{.stage_id = IdOf(i),
                            .attempt = 1,
                            .host = "node",
                            .job = "7",
                            .slot = "0:0",
                            .outcome = "finished",
                            .cause = "",
                            .message = "",
                            .job_restart = 0,
                            .started_at = 1.0 * static_cast<double>(i),
                            .finished_at = 2.0 * static_cast<double>(i)});
    };
    return source;
  }

 private:
  static constexpr const char* kPlaceholder = "0123456789abcdef";
  static std::string IdOf(std::int64_t i) { return fmt::format("{:016x}", 0x123456789abcdefu * static_cast<std::uint64_t>(i + 1)); }

  CollectStage StageAt(std::int64_t i, bool with_file) const {
    CollectStage stage;
    stage.id = IdOf(i);
    stage.kind = "train";
    stage.state = "finished";
    stage.result_path = path_;
    stage.config_json = fmt::format(R"({{"seed":{},"note":"{:500}"}})", i, "");
    stage.columns = {{"seed", i}, {"heads", std::int64_t{4}}, {"corpus", std::string("kjv")}};
    stage.points = {{static_cast<int>(i)}};
    if (with_file) {
      std::string bytes = pattern_;
      bytes.replace(at_, stage.id.size(), stage.id);
      const std::string_view body = std::string_view(bytes).substr(kStageHeaderBytes);
      bytes.replace(0, kStageHeaderBytes,
                    FormatStageHeader({.schema = kStageSchemaVersion, .state = StageFileState::kComplete,
                                       .bytes = body.size(), .checksum = Checksum(body)}));
      FileSystem::Real().Remove(path_);  // a file that is cut short and written anew is waited for by some file systems
      FileSystem::Real().WriteFile(path_, bytes);
    }
    return stage;
  }

  const std::int64_t trials_;
  const std::string path_;
  std::string pattern_;
  std::size_t at_ = 0;
};

// The most memory that a process of its own had, in KiB.
long PeakOf(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work() ? 0 : 1);
  int status = -1;
  rusage usage{};
  EXPECT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_EQ(status, 0);
  return usage.ru_maxrss;
}

TEST(Collect, MemoryDoesNotGrowWithTheNumberOfTrials) {
  TempDir dir;
  const auto peak = [&](std::int64_t trials) {
    const EndlessSweep sweep(trials, dir);
    return PeakOf([&] { return Collect(sweep.Source(), dir / "results.h5").stages_read == trials; });
  };
  const long few = peak(3000), many = peak(9000);  // HDF5's own caches are full after some 3000
  RecordProperty("few", static_cast<int>(few));
  RecordProperty("many", static_cast<int>(many));
  EXPECT_LT(many - few, 3000) << "KiB: half a KiB a trial, which is less than the trial's configuration alone";
}

TEST(Collect, FailureLeavesNoHalfFileBehind) {
  TempDir dir;
  SyntheticSweep sweep;
  sweep.heads = {2};
  sweep.seeds = 1;
  CollectInput input = MakeSweep(sweep, dir / "stages");
  std::filesystem::create_directories(dir / "results.h5");  // a directory where the file should go
  EXPECT_THROW(Collect(input, dir / "results.h5"), IoError);
  EXPECT_THAT(FileSystem::Real().List(dir.path()), ::testing::UnorderedElementsAre("results.h5", "stages"));
}

TEST(Grid, AxesWithTakenNamesAreCalledByTheirKey) {
  const std::vector<GridAxis> axes = {{"order", "prune.order", {std::int64_t{1}}},
                                      {"seed", "seed", {1.5, std::int64_t{2}}},
                                      {"seed", "task.seed", {std::string("x")}}};
  const TempDir dir;
  GridBuilder builder(axes, {{"test_nll", "nat", "loss"}}, dir / "grid");
  const Grid grid = builder.Finish();
  EXPECT_EQ(grid.dimensions[0].name, "prune_order");
  EXPECT_EQ(grid.dimensions[1].name, "seed");
  EXPECT_EQ(std::get<std::vector<double>>(grid.dimensions[1].values), (std::vector<double>{1.5, 2}));
  EXPECT_EQ(grid.dimensions[2].name, "task_seed");
}

TEST(Grid, TooLargeIsRefusedWithAReason) {
  GridAxis axis{"a", "a", std::vector<AxisValue>(3000, AxisValue(1.0))}, other = axis;
  other.name = "b";
  const TempDir dir;
  EXPECT_THROW(GridBuilder({axis, other}, {}, dir / "grid"), Unsupported);
}

}  // namespace
}  // namespace headsweep
