// headsweep-trainer: one process of one stage. By hand:
//
//   headsweep-trainer CONFIG.toml [--workspace DIR] [--attempt N] [--threads N] [--device NAME]
//   headsweep-trainer --probe      which GPUs there are, or why none can be used: one JSON object, exit code
//   0
//
// A launcher adds --control-fd FD (trainer/control_protocol.h), and --fence DIR if it shares the sweep with others. Everything the stage writes is under
// <workspace>/trials/<id>/; it goes on from its last checkpoint, and does nothing when its result.h5 is
// there. SIGTERM, SIGINT, SIGUSR1, SIGUSR2, a "stop" message and the end of the control channel all mean:
// checkpoint at the next step and leave.
//
// Exit codes: 0 finished or diverged, 1 unexpected error, 2 configuration or data, 12 out of memory, 71
// device, 69 another process of the trial failed or holds it, 74 input or output, 75 stopped with a
// checkpoint.
//
// A trial of several processes: RANK, WORLD_SIZE and a place to meet (trainer/rendezvous.h), as torchrun sets
// them; each works on its share of the effective batch.
//
// Environment: HEADSWEEP_LOG (level), HEADSWEEP_MEMORY_LIMIT (bytes, cluster/base/memory.h), HEADSWEEP_RUN_AHEAD=0
// (on GPUs: no CUDA graphs, and each step is waited for: to find out which one fails), and for tests of
// launchers HEADSWEEP_TRAINER_DIE_AT, HEADSWEEP_TRAINER_HANG_AT, HEADSWEEP_TRAINER_FAULT_ATTEMPT
// (trainer/fault_injection.h) and HEADSWEEP_CRASH_AT (cluster/base/file_system.cc).
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cluster/base/errors.h"
#include "cluster/base/log.h"
#include "kernels/backend.h"
#include "kernels/cpu/allocator.h"
#include "results/summary_json.h"
#include "trainer/agent_channel.h"
#include "trainer/build_info.h"
#include "trainer/control_protocol.h"
#include "trainer/fault_injection.h"
#include "trainer/reporters.h"
#include "trainer/stage.h"
#include "trainer/stage_setup.h"

namespace headsweep {
namespace {

namespace po = boost::program_options;

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may set it");

// How long a process whose launcher is gone may take to checkpoint, before it ends itself: no orphan stays
// for ever.
constexpr unsigned kOrphanSeconds = 120;
pid_t parent = 0;  // the launcher; 0 by hand

extern "C" void OnSignal(int) {
  stop_requested = true;
  if (parent != 0 && ::getppid() != parent) ::alarm(kOrphanSeconds);
}

void HandleSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) ::sigaction(signal, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // a peer that is gone is noticed by write()
}

// The kernel sends SIGTERM when the launcher dies, however it dies.
void FollowTheLauncher() {
  parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
}

struct Options {
  std::string config, workspace, device, fence;
  int attempt = 0, control_fd = -1, threads = 0;
};

// Nothing when a question (--help, --version, --probe) was answered.
std::optional<Options> ParseOptions(int argc, char** argv) {
  Options options;
  po::options_description visible("Options");
  auto option = visible.add_options();
  option("workspace", po::value(&options.workspace)->default_value("./headsweep-runs"),
         "folder of trials and data");
  option("attempt", po::value(&options.attempt)->default_value(0, "next free"), "number of this attempt");
  option("threads", po::value(&options.threads)->default_value(0, "run.threads of CONFIG"), "CPU threads");
  option("device", po::value(&options.device)->default_value("", "run.device of CONFIG"), "cpu, cuda or cuda-on-host");
  option("fence", po::value(&options.fence)->default_value("", "none"),
         "directory that this attempt seals through, of a launcher that shares the sweep (launcher/LEASES.md)");
  option("control-fd", po::value(&options.control_fd)->default_value(-1, "none"),
         "descriptor of a launcher's channel");
  option("probe", "print what GPUs there are, or why there are none, as JSON (cluster/base/gpu_report.h)");
  option("help,h", "print this");
  option("version", "print version and commit");
  po::options_description all;
  all.add(visible).add_options()("config", po::value(&options.config));
  po::positional_options_description positional;
  positional.add("config", 1);
  try {
    po::variables_map values;
    po::store(po::command_line_parser(argc, argv).options(all).positional(positional).run(), values);
    if (values.count("help") > 0) {
      std::cout << "headsweep-trainer CONFIG.toml [options]: runs one stage.\n" << visible;
      return std::nullopt;
    }
    if (values.count("version") > 0) {
      std::cout << "headsweep-trainer " << BuildVersion() << " (" << BuildCommit() << ")\n";
      return std::nullopt;
    }
    if (values.count("probe") > 0) {
      std::cout << ToJson(ProbeGpus()) << "\n";
      return std::nullopt;
    }
    po::notify(values);
  } catch (const po::error& error) {
    throw ConfigError(fmt::format("{}; see headsweep-trainer --help", error.what()));
  }
  if (options.config.empty()) throw ConfigError("no configuration file given; see headsweep-trainer --help");
  if (options.attempt < 0 || options.threads < 0) throw ConfigError("--attempt and --threads count from 1");
  return options;
}

std::unique_ptr<Reporter> MakeReporter(AgentChannel* channel, const Clock& clock, const std::string& stage,
                                       int attempt, const World& world) {
  if (channel != nullptr) return std::make_unique<AgentReporter>(*channel, clock, stage, attempt);
  if (world.rank == 0) return std::make_unique<TerminalReporter>(clock);
  return std::make_unique<NullReporter>();
}

std::string LogName(const StageConfig& config, int attempt, const World& world) {
  const std::string name = fmt::format("trainer {}/{}", config.id.substr(0, 8), attempt);
  return world.world_size == 1 ? name : fmt::format("{} rank {}", name, world.rank);
}

// Rank 0 picks the number of the attempt, the others follow.
TrialDirectories AgreeOnDirectories(const Options& options, const StageConfig& config,
                                    Collective& collective) {
  FileSystem& files = FileSystem::Real();
  TrialDirectories mine;
  if (collective.rank() == 0) mine = MakeTrialDirectories(options.workspace, config, options.attempt, files);
  const int attempt = std::atoi(collective.AllGather(std::to_string(mine.attempt)).front().c_str());
  return collective.rank() == 0 ? mine : MakeTrialDirectories(options.workspace, config, attempt, files);
}

StageOutcome RunStageOf(const Options& options, AgentChannel* channel) {
  FileSystem& files = FileSystem::Real();
  const World world = WorldFromEnvironment();
  StageConfig config = LoadStageConfig(options.config, files);
  if (options.threads > 0) config.run.threads = options.threads;
  if (!options.device.empty()) config.run.device = options.device;
  if (config.train.batch < world.world_size)
    throw ConfigError(fmt::format("train.batch = {} cannot be shared out to WORLD_SIZE={} processes",
                                  config.train.batch, world.world_size));
  config.run.devices = world.world_size;
  const char* run_ahead = std::getenv("HEADSWEEP_RUN_AHEAD");
  const auto backend = MakeBackend({.device = config.run.device,
                                    .threads = config.run.threads,
                                    .precision = config.run.precision,
                                    .run_ahead = run_ahead == nullptr || std::string(run_ahead) != "0"});
  const Meeting meeting = MeetPeers(world, config.run, *backend, channel);
  const TrialDirectories trial = AgreeOnDirectories(options, config, *meeting.collective);
  StartLog(LogName(config, trial.attempt, world));
  LogInfo("headsweep-trainer {} ({}), stage {}, attempt {}", BuildVersion(), BuildCommit(), config.id,
          trial.attempt);
  // A launcher holds it already.
  const auto lock = channel == nullptr && world.rank == 0 ? LockTrial(trial) : nullptr;

  const SystemClock clock;
  const auto output = MakeReporter(channel, clock, config.id, trial.attempt, world);
  FaultyReporter reporter(*output, FaultsFromEnvironment(trial.attempt, world.rank));
  reporter.Progress("load", 0, 0, 0, 0);
  const PreparedCorpus corpus = OpenOrPrepareCorpus(options.workspace, config.task, files, reporter);
  LogInfo("{}", backend->description());
  const StageOutcome outcome = RunStage({.config = config,
                                         .trials_root = trial.trials_root,
                                         .directory = trial.directory,
                                         .attempt_directory = trial.attempt_directory,
                                         .attempt = trial.attempt,
                                         .corpus = corpus,
                                         .backend = *backend,
                                         .collective = *meeting.collective,
                                         .files = files,
                                         .reporter = reporter,
                                         .stop = stop_requested,
                                         .fence = options.fence});
  LogInfo("{}{}{} ({})", outcome.outcome, outcome.summary.summary_line.empty() ? "" : ": ",
          outcome.summary.summary_line, trial.directory);
  return outcome;
}

// How the process ends: what the agent is told, and the exit status.
struct Ending {
  int exit_code = kExitDone;
  nlohmann::json done;
};

Ending Failed(int exit_code, const char* cause, const std::string& message) {
  LogError("{}", message);
  return {exit_code,
          {{"outcome", control::kFailed}, {"cause", cause}, {"message", message}, {"summary", nullptr}}};
}

// The one place where exceptions end.
Ending RunGuarded(const Options& options, AgentChannel* channel) {
  try {
    const StageOutcome outcome = RunStageOf(options, channel);
    const bool stopped = outcome.outcome == control::kStopped;
    return {stopped ? kExitResumable : kExitDone,
            {{"outcome", outcome.outcome},
             {"cause", ""},
             {"message", outcome.summary.summary_line},
             {"summary", stopped ? nlohmann::json() : ToJson(outcome.summary)}}};
  } catch (const ConfigError& error) {
    return Failed(kExitUsage, control::kCauseConfiguration, error.what());
  } catch (const Unsupported& error) {
    return Failed(kExitUsage, control::kCauseConfiguration, error.what());
  } catch (const IoError& error) {
    return Failed(control::kExitInputOutput, control::kCauseInputOutput, error.what());
  } catch (const CommError& error) {
    return Failed(control::kExitPeer, control::kCausePeer, error.what());
  } catch (const DeviceError& error) {
    return Failed(control::kExitDevice, control::kCauseDevice, error.what());
  } catch (const std::bad_alloc& error) {
    const std::string what = error.what();  // of OutOfMemory: what was needed, and what would fit
    return Failed(control::kExitOutOfMemory, control::kCauseOutOfMemory,
                  what == "std::bad_alloc" ? "out of memory: try a smaller train.micro_batch" : what);
  } catch (const std::exception& error) {
    return Failed(kExitFailed, control::kCauseError, error.what());
  }
}

int Main(int argc, char** argv) {
  TuneAllocator();
  HandleSignals();
  std::optional<Options> options;
  std::optional<AgentChannel> channel;
  try {
    StartLog("trainer");
    options = ParseOptions(argc, argv);
    if (!options) return kExitDone;
    if (options->control_fd >= 0) {
      FollowTheLauncher();
      channel.emplace(options->control_fd, stop_requested);
    }
  } catch (const Error& error) {
    LogError("{}", error.what());
    return kExitUsage;
  }
  Ending ending = RunGuarded(*options, channel ? &*channel : nullptr);
  ending.done[control::kType] = control::kDone;
  if (channel) channel->Send(ending.done);
  // Libraries may crash in their exit handlers after a failure (HDF5 1.10 does after a full disk); all that
  // counts is said and sealed, so leave without them.
  std::fflush(nullptr);
  ::_exit(ending.exit_code);
}

}  // namespace
}  // namespace headsweep

int main(int argc, char** argv) { return headsweep::Main(argc, argv); }
