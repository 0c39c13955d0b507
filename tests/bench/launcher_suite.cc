// Suite "launcher": what the launcher costs, beside GNU parallel (Debian's package) running the same no-op program.
#include <fmt/format.h>

#include "cluster/base/file_system.h"
#include "kernels/backend.h"
#include "tests/bench/launcher_workspace.h"
#include "tests/support/temp_dir.h"

namespace headsweep::bench {

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
  for (const int trials : {10'000, 100'000}) add(ScaleTable(fmt::format("{}/scale-{}", folder.path(), trials), trials));
  report.notes = {
      "CPU: user and system time of the launcher's process alone. `headsweep run` is coordinator and agent in one "
      "process and syncs its journal before it acts; GNU parallel writes its log without a sync. Costs a trial are "
      "those of 200 trials less those of one, over 199."};
  return report;
}

}  // namespace headsweep::bench
