// Suite "launcher", part 1: what a trial that does nothing costs, beside GNU parallel running the same program.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/run_program.h"
#include "launcher/process.h"
#include "tests/bench/launcher_workspace.h"
#include "tests/bench/process_cost.h"

namespace headsweep::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kTrials = 200;  // of one run

std::string NoopTrainer() { return ProgramDirectory() + "/tests/noop-trainer"; }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}
double Percentile95(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() * 95 / 100);
}

std::vector<std::pair<double, double>> ReadTimes(const std::string& path) {  // (start, end), by start
  std::vector<std::pair<double, double>> times;
  std::ifstream file(path);
  for (double start = 0, end = 0; file >> start >> end;) times.emplace_back(start, end);
  std::sort(times.begin(), times.end());
  return times;
}

// From the spawn of the trainer to its main: what no launcher can save.
double StartUp(const std::string& folder) {
  const SystemClock clock;
  const std::string times = folder + "/start-up-times";
  std::vector<double> spawned;
  for (int i = 0; i < 50; ++i) {
    ProcessSpec spec;
    spec.command = {NoopTrainer(), folder + "/start-up/config.toml"};
    spec.environment = {{"NOOP_TIMES", times}};
    fs::create_directories(folder + "/start-up");
    spawned.push_back(clock.Monotonic());
    if (WaitFor(Spawn(spec).pid, 60) != ExitStatus{}) throw ConfigError("the no-op trainer failed");
  }
  std::vector<double> took;
  const auto started = ReadTimes(times);
  for (std::size_t i = 0; i < spawned.size(); ++i) took.push_back(started.at(i).first - spawned[i]);
  return Median(took);
}

// One way of running trials: a command for so many of them, on so many slots.
struct Runner {
  std::string name;
  std::function<ProcessCost(int trials, int slots, const std::string& times)> run;
};

// Costs of one more trial, from runs of many and of one.
struct PerTrial {
  double wall = 0, cpu = 0, children = 0, peak_megabytes = 0;  // seconds
};
PerTrial Difference(const ProcessCost& many, const ProcessCost& one) {
  return {(many.wall - one.wall) / (kTrials - 1), (many.cpu - one.cpu) / (kTrials - 1),
          (many.children_cpu - one.children_cpu) / (kTrials - 1), many.peak_megabytes};
}

// headsweep run: every run gets seeds of its own, so that nothing is found done.
Runner Headsweep(const std::string& folder, const std::string& corpus) {
  return {"headsweep run", [=, seed = 1](int trials, int slots, const std::string& times) mutable {
            const std::string name = fmt::format("noop-{}", seed), file = folder + "/" + name + ".toml";
            std::ofstream(file) << NoopSweepToml(name, corpus, trials, seed);
            seed += trials;
            return MeasureProgram({ProgramDirectory() + "/headsweep", "run", file, "--no-report", "--quiet", "--slots",
                                   std::to_string(slots), "--workspace", folder + "/runs"},
                                  {{"HEADSWEEP_TRAINER", NoopTrainer()}, {"NOOP_TIMES", times}}, folder + "/headsweep-log");
          }};
}

// GNU parallel, with a log of jobs, from which it can resume as we can.
Runner GnuParallel(const std::string& program, const std::string& folder) {
  return {"GNU parallel --joblog", [=, run = 0](int trials, int slots, const std::string& times) mutable {
            const std::string base = fmt::format("{}/parallel-{}", folder, ++run);
            fs::create_directories(base);
            std::ofstream list(base + "/list");
            for (int i = 0; i < trials; ++i) {
              const std::string trial = fmt::format("{}/{}", base, i);
              fs::create_directories(trial);
              list << trial << "\n";
            }
            list.close();
            return MeasureProgram({program, "--will-cite", fmt::format("-j{}", slots), "--joblog", base + "/jobs", "-a",
                                   base + "/list", NoopTrainer(), "{}/config.toml"},
                                  {{"NOOP_TIMES", times}, {"HOME", folder}}, folder + "/parallel-log");
          }};
}

// Gaps between the end of one trainer and the main of the next, on one slot.
std::vector<double> Gaps(const std::string& times) {
  std::vector<double> gaps;
  const auto all = ReadTimes(times);
  for (std::size_t i = 1; i < all.size(); ++i) gaps.push_back(all[i].first - all[i - 1].second);
  return gaps;
}

}  // namespace

Table NoopTrialsTable(const std::string& folder, double seconds) {
  const std::string parallel = FindProgram("parallel");
  if (parallel.empty())
    throw ConfigError(
        "GNU parallel, which suite launcher measures against, is not installed: apt-get install parallel "
        "(cluster/setup.sh --tests)");
  const std::string corpus = folder + "/text.txt";
  std::ofstream text(corpus);
  for (int i = 0; i < 2000; ++i) text << "sentence " << i << " of a text that nobody reads " << i * i << "\n";
  text.close();
  std::vector<Runner> runners = {GnuParallel(parallel, folder), Headsweep(folder, corpus)};
  const SystemClock clock;
  const double start = clock.Monotonic(), start_up = StartUp(folder);

  std::vector<std::vector<PerTrial>> costs(runners.size());
  std::vector<std::vector<double>> gaps(runners.size());
  for (Runner& runner : runners) runner.run(1, 2, folder + "/unused-times");  // tokenises, fills caches
  for (int round = 0; round < 2 || clock.Monotonic() - start < seconds; ++round) {
    for (std::size_t i = 0; i < runners.size(); ++i) {
      const std::string times = fmt::format("{}/times-{}-{}", folder, round, i);
      const ProcessCost one = runners[i].run(1, 2, folder + "/unused-times");
      costs[i].push_back(Difference(runners[i].run(kTrials, 2, folder + "/unused-times"), one));
      runners[i].run(kTrials / 4, 1, times);
      for (const double gap : Gaps(times)) gaps[i].push_back(gap - start_up);
    }
  }

  Table table{fmt::format("trials that do nothing, on 2 slots; turnover on 1 slot: from the end of a trainer to the next "
                          "one's first step, beyond its own start-up of {:.1f} ms",
                          start_up * 1e3),
              {"run by", "wall ms/trial", "CPU ms/trial", "of it by children", "turnover ms", "turnover p95", "peak MB",
               "wall ratio", "CPU ratio", "turnover ratio"},
              {}};
  std::vector<double> first;
  for (std::size_t i = 0; i < runners.size(); ++i) {
    std::vector<double> wall, cpu, children, peak;
    for (const PerTrial& cost : costs[i]) {
      wall.push_back(cost.wall * 1e3);
      cpu.push_back(cost.cpu * 1e3);
      children.push_back(cost.children * 1e3);
      peak.push_back(cost.peak_megabytes);
    }
    const std::vector<double> medians = {Median(wall), Median(cpu), Median(gaps[i]) * 1e3};
    if (i == 0) first = medians;
    table.rows.push_back({runners[i].name, medians[0], medians[1], Median(children), medians[2],
                          Percentile95(gaps[i]) * 1e3, Median(peak), medians[0] / first[0], medians[1] / first[1],
                          medians[2] / first[2]});
  }
  return table;
}

}  // namespace headsweep::bench
