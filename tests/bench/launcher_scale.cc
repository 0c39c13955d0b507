// Suite "launcher", part 4: sweeps of 10,000 and 100,000 trials, from the plan to results.h5.
#include <fmt/format.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "launcher/journal.h"
#include "launcher/process.h"
#include "results/schema.h"
#include "results/stage_file.h"
#include "results/stage_format.h"
#include "results/summary_json.h"
#include "tests/bench/launcher_workspace.h"
#include "tests/bench/process_cost.h"

namespace headsweep::bench {
namespace {

// A workspace in which every trial of the sweep is done: sweep file, journal, sealed results.
class DoneSweep {
 public:
  DoneSweep(const std::string& folder, int trials) : workspace_(folder + "/runs"), trials_(trials), log_(folder + "/log") {
    FileSystem& files = FileSystem::Real();
    std::filesystem::create_directories(workspace_.SweepDirectory("noop"));
    const std::string corpus = folder + "/text.txt";
    std::ofstream text(corpus);
    for (int i = 0; i < 2000; ++i) text << "sentence " << i << " of a text that nobody reads " << i * i << "\n";
    text.close();
    files.WriteFile(workspace_.SweepToml("noop"), NoopSweepToml("noop", corpus, trials));
  }

  std::vector<double> Plan() const {
    return {static_cast<double>(Planned().Specs().size())};
  }

  // The results are one real file each, alike but for the identity of their stage.
  std::vector<double> WriteResults() const {
    const PlannedSweep planned = Planned();
    const std::string placeholder = planned.IdAt(0);
    std::filesystem::create_directories(workspace_.TrialsRoot());
    const std::string pattern = workspace_.SweepDirectory("noop") + "/pattern.h5";
    Provenance provenance;
    provenance.stage_id = placeholder;
    provenance.kind = "train";
    WriteStageFile(pattern, provenance, Tables(), Summary());
    const std::string bytes = FileSystem::Real().ReadFile(pattern);
    FileSystem::Real().Remove(pattern);
    const std::size_t at = bytes.find(placeholder);
    HEADSWEEP_CHECK(at != std::string::npos && bytes.find(placeholder, at + 1) == std::string::npos,
                    "a stage file holds its identity elsewhere than once in plain text");
    for (const PlanStage& stage : planned.plan.stages) {
      const std::string id = planned.plan.Id(stage);
      std::string copy = bytes;
      std::memcpy(copy.data() + at, id.data(), id.size());
      const std::string_view body = std::string_view(copy).substr(kStageHeaderBytes);
      const std::string header = FormatStageHeader({.schema = kStageSchemaVersion, .state = StageFileState::kComplete,
                                                    .bytes = body.size(), .checksum = Checksum(body)});
      std::memcpy(copy.data(), header.data(), header.size());
      std::filesystem::create_directory(workspace_.Trial(id));
      FileSystem::Real().WriteFile(workspace_.TrialResult(id), copy);
    }
    return {static_cast<double>(bytes.size())};
  }

  // What a launcher would have written: started, checkpointed and ended of each trial.
  std::vector<double> WriteJournal() const {
    const SystemClock clock;
    Journal journal(FileSystem::Real(), workspace_.Journal("noop"), clock);
    JournalEvent began{.type = journal::kSweepStarted, .time = 0, .stage = "", .attempt = 0, .fields = {{"sweep", "noop"}}};
    journal.Append({began});
    std::vector<JournalEvent> events;
    const std::string summary = ToJson(Summary()).dump();
    const PlannedSweep planned = Planned();
    for (const PlanStage& stage : planned.plan.stages) {
      const auto add = [&](const char* type, std::map<std::string, std::string> fields) {
        events.push_back({.type = type, .time = 0, .stage = planned.plan.Id(stage), .attempt = 1, .fields = std::move(fields)});
      };
      add(journal::kAttemptStarted, {{"host", "node0001"}, {"slots", "0:0"}});
      add(journal::kCheckpointed, {{"step", "1"}});
      add(journal::kAttemptEnded, {{"outcome", "finished"}, {"message", ""}, {"summary", summary}});
      if (events.size() >= 3000) journal.Append(std::exchange(events, {}));
    }
    journal.Append(events);
    return {static_cast<double>(FileSystem::Real().FileSize(workspace_.Journal("noop")))};
  }

  // The journal read and its history brought into a core.
  std::vector<double> Replay() const {
    const PlannedSweep planned = Planned();
    std::map<StageId, std::string> done;
    for (const PlanStage& stage : planned.plan.stages) done.emplace(StageId(planned.plan.Id(stage)), "");
    const SystemClock clock;
    const double start = clock.Monotonic();
    const std::clock_t before = std::clock();
    const HistoryStream history([&](const HistoryStream::Visit& visit) {
      ScanJournal(FileSystem::Real(), workspace_.Journal("noop"), visit);
    });
    const Core core(planned.Specs(), {}, history, done);
    HEADSWEEP_CHECK(core.counts().finished == trials_, "{} of {} trials are finished", core.counts().finished, trials_);
    return {clock.Monotonic() - start, static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC};
  }

  ProcessCost Run(std::vector<std::string> words) const {
    words.insert(words.begin(), ProgramDirectory() + "/headsweep");
    words.insert(words.end(), {"--workspace", workspace_.root()});
    return MeasureProgram(words, {{"HEADSWEEP_TRAINER", ProgramDirectory() + "/tests/noop-trainer"}}, log_);
  }

 private:
  PlannedSweep Planned() const {
    return PlanSweep(LoadKeptSweep(workspace_, FileSystem::Real(), "noop"), FingerprintOfSource());
  }
  static StageTables Tables() {
    StageTables tables;
    tables.steps.resize(1);
    tables.evaluations.resize(1);
    tables.evaluations[0].split = "test";
    return tables;
  }
  static StageSummary Summary() {
    StageSummary summary;
    summary.digest = "0123456789abcdef";
    summary.summary_line = "test perplexity per word 10.0";
    return summary;
  }

  const Workspace workspace_;
  const int trials_;
  const std::string log_;
};

}  // namespace

Table ScaleTable(const std::string& folder, int trials) {
  const DoneSweep sweep(folder, trials);
  Table table{fmt::format("a sweep of {} trials", trials),
              {"what", "wall s", "CPU s", "CPU s of children", "peak MB", "bytes/trial"},
              {}};
  const auto add = [&](const std::string& what, const ProcessCost& cost) {
    table.rows.push_back({what, cost.wall, cost.cpu, cost.children_cpu, cost.peak_megabytes,
                          cost.peak_megabytes * (1 << 20) / trials});
  };
  add("sweep file planned", MeasureForked([&] { return sweep.Plan(); }).cost);
  MeasureForked([&] { return sweep.WriteResults(); });
  MeasureForked([&] { return sweep.WriteJournal(); });
  const ForkedCost replay = MeasureForked([&] { return sweep.Replay(); });
  ProcessCost replayed = replay.cost;
  replayed.wall = replay.answers.at(0);
  replayed.cpu = replay.answers.at(1);
  add("journal replayed (peak: with its plan)", replayed);
  add("headsweep status", sweep.Run({"status", "noop"}));
  add("headsweep resume, all done", sweep.Run({"resume", "noop", "--no-report", "--quiet"}));
  add("headsweep collect", sweep.Run({"collect", "noop", "--quiet"}));
  return table;
}

}  // namespace headsweep::bench
