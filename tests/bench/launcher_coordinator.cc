// Suite "launcher", parts 2 and 3: the coordinator by itself, and the scheduler core with a thousand nodes.
#include <fmt/format.h>

#include <boost/asio/io_context.hpp>

#include <cstdio>
#include <map>
#include <queue>
#include <random>
#include <tuple>

#include "cluster/base/errors.h"
#include "launcher/coordinator.h"
#include "launcher/messages.h"
#include "tests/bench/launcher_workspace.h"
#include "tests/bench/process_cost.h"
#include "trainer/control_protocol.h"

namespace headsweep::bench {
namespace {

constexpr int kTrials = 500;

// A real coordinator, with its journal and its files, and an agent of two slots whose trials end as they start.
std::vector<double> RunCoordinator(const std::string& folder) {
  const PlannedSweep planned = PlanNoopSweep(kTrials);
  const Workspace workspace(folder + "/coordinator");
  FileSystem& files = FileSystem::Real();
  const SystemClock clock;
  files.CreateDirectories(workspace.SweepDirectory("noop"));
  Journal journal(files, workspace.Journal("noop"), clock);
  boost::asio::io_context loop;
  auto [to_agent, to_coordinator] = MakeLoopback(loop, NodeId(0), NodeId(0));
  to_coordinator->Start([&agent = *to_coordinator](NodeId from, const nlohmann::json& message) {
    const std::string type = message::Text(message, message::kType);
    if (type == message::kWelcome) {
      agent.Send(from, {{message::kType, message::kJoin}, {"host", "here"}, {"slots", 2}, {"problem", ""}, {"epoch", 1}});
    } else if (type == message::kStart) {
      nlohmann::json answer = {{"stage", message["stage"]}, {"attempt", message["attempt"]}, {"rank", 0}, {"step", 1},
                               {"steps", 1}, {"phase", "train"}, {message::kType, message::kProgress}};
      agent.Send(from, answer);
      answer.update({{message::kType, message::kEnded}, {"outcome", control::kFinished}, {"summary", "{}"}});
      agent.Send(from, answer);
    }
  });
  CoordinatorOptions options;
  options.sweep = "noop";
  options.config_toml = [&](const StageId& stage, int divisor) { return planned.ConfigToml(stage.value(), divisor); };
  options.describe = [&](const StageId& stage) { return planned.Describe(stage.value()); };
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  Display display(nowhere, /*quiet=*/true);
  const std::clock_t before = std::clock();
  const double start = clock.Monotonic();
  int exit_code = -1;
  {
    Coordinator coordinator(loop, {to_agent.get()}, files, clock, workspace, journal, Core(planned.Specs(), {}, {}, {}),
                            display, options);
    coordinator.Start([&](int code, bool) { exit_code = code; });
    loop.run();
  }
  HEADSWEEP_CHECK(exit_code == kExitDone, "the sweep of no-op trials ended with {}", exit_code);
  return {static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, clock.Monotonic() - start};
}

// --- A cluster of virtual time
constexpr int kNodes = 1000, kSlotsOfANode = 8;
constexpr double kFinishesPerSecond = 50;

struct Happening {
  double time = 0;
  int stage = 0;
  Attempt attempt;
  std::int64_t step = 0;  // steps done; the last one is the end
  bool operator>(const Happening& other) const { return time > other.time; }
};

struct ClusterRun {
  double virtual_seconds = 0, cpu = 0;
  std::int64_t finishes = 0, events = 0;
};

// Trials of about slots / rate seconds each, so that 50 end a second; each says where it is `reports` times a second.
ClusterRun RunCluster(double virtual_seconds, double reports) {
  constexpr int kSlots = kNodes * kSlotsOfANode;
  constexpr double kMeanSeconds = kSlots / kFinishesPerSecond;
  const int stages = kSlots + static_cast<int>(2 * kFinishesPerSecond * virtual_seconds);
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> length(0.5 * kMeanSeconds, 1.5 * kMeanSeconds);
  std::vector<StageSpec> plan;
  std::map<StageId, int> index;
  std::vector<double> seconds;
  for (int i = 0; i < stages; ++i) {
    seconds.push_back(length(random));
    const StageId id(fmt::format("{:016x}", static_cast<unsigned>(i) * 2654435761u));
    plan.push_back({.id = id, .parent = {}, .kind = "train", .slots = 1, .retries = 2, .flops = 1e12});
    index[id] = i;
  }
  Core core(plan, {}, {}, {});
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> future;
  ClusterRun run;
  bool is_first = true;
  const auto handle = [&](const Event& event, double now) {
    ++run.events;
    for (const Command& command : core.Handle(event, now)) {
      const auto* start = std::get_if<StartAttempt>(&command);
      if (start == nullptr) continue;
      const int stage = index.at(start->stage);
      // The first ones are somewhere in their middle, or all would end at once.
      const double left = seconds[static_cast<std::size_t>(stage)] * (is_first ? (random() % 1000 + 1) / 1000.0 : 1.0);
      future.push({now + std::min(left, reports > 0 ? 1 / reports : left), stage, start->attempt, 1});
      seconds[static_cast<std::size_t>(stage)] = now + left;  // when it ends
    }
  };
  for (int node = 0; node < kNodes; ++node) handle(NodeJoined{NodeId(node), fmt::format("n{}", node), kSlotsOfANode}, 0);
  is_first = false;
  const std::clock_t before = std::clock();
  run.events = 0;
  double next_tick = 0.2;
  while (!future.empty() && future.top().time < virtual_seconds) {
    const Happening now = future.top();
    future.pop();
    for (; next_tick <= now.time; next_tick += 0.2) handle(Tick{}, next_tick);
    const StageId& id = plan[static_cast<std::size_t>(now.stage)].id;
    const double end = seconds[static_cast<std::size_t>(now.stage)];
    if (now.time >= end) {
      ++run.finishes;
      handle(AttemptEnded{id, now.attempt, control::kFinished, "", "", "{}"}, now.time);
      continue;
    }
    handle(AttemptProgressed{id, now.attempt, now.step, 1000}, now.time);
    future.push({std::min(end, now.time + 1 / reports), now.stage, now.attempt, now.step + 1});
  }
  run.cpu = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  run.virtual_seconds = virtual_seconds;
  return run;
}

}  // namespace

Table CoordinatorTable(const std::string& folder) {
  Table table{"the coordinator by itself: real core, journal and files, an agent of 2 slots that answers at once",
              {"trials", "CPU ms/trial", "wall ms/trial", "peak MB"},
              {}};
  const ForkedCost run = MeasureForked([&] { return RunCoordinator(folder); });
  table.rows.push_back({static_cast<double>(kTrials), run.answers.at(0) * 1e3 / kTrials, run.answers.at(1) * 1e3 / kTrials,
                        run.cost.peak_megabytes});
  return table;
}

Table ClusterTable(double seconds) {
  Table table{fmt::format("the scheduler core with {} nodes of {} devices, virtual time", kNodes, kSlotsOfANode),
              {"reports a second and trial", "virtual s", "finishes/s", "events/s", "CPU s per virtual s", "peak MB"},
              {}};
  for (const double reports : {0.0, 1.0, 5.0}) {
    const double length = reports > 0 ? std::max(10.0, seconds) : 400;
    const ForkedCost run = MeasureForked([&] {
      const ClusterRun done = RunCluster(length, reports);
      return std::vector<double>{done.virtual_seconds, static_cast<double>(done.finishes), static_cast<double>(done.events), done.cpu};
    });
    const double virtual_seconds = run.answers.at(0);
    table.rows.push_back({reports, virtual_seconds, run.answers.at(1) / virtual_seconds, run.answers.at(2) / virtual_seconds,
                          run.answers.at(3) / virtual_seconds, run.cost.peak_megabytes});
  }
  return table;
}

}  // namespace headsweep::bench
