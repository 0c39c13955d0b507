// Suite "launcher": what the launcher costs, beside GNU parallel (Debian's package) running the same no-op program.
#include <fmt/format.h>

#include <algorithm>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "kernels/backend.h"
#include "tests/bench/launcher_workspace.h"
#include "tests/support/temp_dir.h"

namespace headsweep::bench {

// Memory does not grow with what trials did or brought, only with what the scheduler must know of each of them. Chosen.
constexpr double kFlatBytes = 2048;

std::string NoopSweepToml(const std::string& name, const std::string& corpus, int trials, int first_seed) {
  std::string seeds, rates;
  if (trials > 1000) {  // two axes: rates and seeds
    for (int i = 0; i < 100; ++i) rates += fmt::format("{}{}e-4", i == 0 ? "" : ", ", i + 1);
    rates = "\"train.learning_rate\" = [" + rates + "]\n";
    trials /= 100;
  }
  for (int i = 0; i < trials; ++i) seeds += fmt::format("{}{}", i == 0 ? "" : ", ", first_seed + i);
  return fmt::format(
      "name = \"{}\"\n[task]\ncorpus = \"{}\"\nvocabulary = 100\nlength = 16\n"
      "[model]\nlayers = 1\nembed = 16\nheads = 2\n[train]\nsteps = 1\nbatch = 1\n"
      "[grid]\n{}seed = [{}]\n",
      name, corpus, rates, seeds);
}

PlannedSweep PlanNoopSweep(int trials) {
  return PlanSweep(Sweep::Parse(NoopSweepToml("noop", "./text.txt", trials), "noop.toml"),
                   [](const TaskConfig&) { return std::string("fingerprint"); });
}

namespace {

double Number(const Table& table, const std::string& row, const std::string& column) {
  for (const auto& cells : table.rows) {
    const auto* name = std::get_if<std::string>(&cells[0]);
    if (name == nullptr || !name->starts_with(row)) continue;
    const auto at = std::find(table.columns.begin(), table.columns.end(), column) - table.columns.begin();
    return std::get<double>(cells.at(static_cast<std::size_t>(at)));
  }
  throw ConfigError(fmt::format("\"{}\" has no row {}", table.title, row));
}

// What launcher/OVERHEAD.md promises, each figure beside its limit.
Table Limits(const Table& trials, const Table& coordinator, const Table& cluster, const Table& small, const Table& large,
             int few, int many) {
  Table table{"limits", {"figure", "measured", "limit", "held"}, {}};
  const auto add = [&](const std::string& figure, double measured, double limit) {
    table.rows.push_back({figure, measured, limit, std::string(measured <= limit ? "held" : "NOT HELD")});
  };
  add("coordinator: CPU ms a no-op trial", std::get<double>(coordinator.rows.at(0).at(1)), 1);
  add("a slot comes free, to the next trainer's first step beyond its start-up: ms, 95 % of them",
      Number(trials, "headsweep run", "turnover p95"), 100);
  for (const auto& cells : cluster.rows)
    add(fmt::format("1,000 nodes of 8 devices, 50 finishes a second, {:.0f} reports a second and trial: CPU s a second",
                    std::get<double>(cells.at(0))),
        std::get<double>(cells.at(4)), 1);
  add(fmt::format("journal of {} trials replayed: s", many), Number(large, "journal replayed", "wall s"), 5);
  for (const char* what : {"sweep file planned", "headsweep status", "headsweep resume", "headsweep collect"}) {
    const double growth = (Number(large, what, "peak MB") - Number(small, what, "peak MB")) * (1 << 20) / (many - few);
    add(fmt::format("{}, from {} to {} trials: bytes of memory a trial", what, few, many), growth, kFlatBytes);
  }
  add(fmt::format("headsweep collect of {} trials: CPU ms a trial", many),
      Number(large, "headsweep collect", "CPU s") * 1e3 / many, 1);
  return table;
}

}  // namespace

Report RunLauncher(const Options& options) {
  const testing::TempDir folder;
  Report report;
  report.suite = "launcher";
  report.machine = fmt::format("{}; workspaces in {}", MakeBackend({"cpu", 1})->description(), folder.path());
  const auto add = [&](Table table) {  // minutes may pass: what is known is told
    fmt::print(stderr, "{}\n", FormatTable(table));
    report.tables.push_back(std::move(table));
  };
  add(NoopTrialsTable(folder.path(), options.seconds));
  add(CoordinatorTable(folder.path()));
  add(ClusterTable(options.seconds));
  constexpr int kFew = 10'000, kMany = 100'000;
  for (const int trials : {kFew, kMany}) add(ScaleTable(fmt::format("{}/scale-{}", folder.path(), trials), trials));
  const std::vector<Table> all = report.tables;
  add(Limits(all[0], all[1], all[2], all[3], all[4], kFew, kMany));
  report.notes = {
      "CPU: user and system time of the launcher's process alone. `headsweep run` is coordinator and agent in one "
      "process and syncs its journal before it acts; GNU parallel writes its log without a sync. Costs a trial are "
      "those of 200 trials less those of one, over 199."};
  return report;
}

}  // namespace headsweep::bench
