#include "trainer/stage_setup.h"

#include "cluster/base/errors.h"
#include "cluster/base/log.h"

#ifdef HEADSWEEP_WITH_NCCL
#include "trainer/collective_nccl.h"
#endif

namespace headsweep {
namespace {

constexpr double kLockSeconds = 1;  // the holder of a trial's lock keeps it for as long as the trial runs

CorpusRequest RequestOf(const TaskConfig& task) {
  return {.corpus = task.corpus, .vocabulary = task.vocabulary};
}

// NCCL between GPUs, Gloo where a backend's memory is the process's own.
std::unique_ptr<Collective> MakeCollective(const CollectiveOptions& options, Backend& backend,
                                           Rendezvous& rendezvous) {
  if (backend.CardStream() == nullptr) return MakeGlooCollective(options, rendezvous);
#ifdef HEADSWEEP_WITH_NCCL
  return MakeNcclCollective(options, rendezvous, backend.CardStream());
#else
  throw Unsupported(
      fmt::format("WORLD_SIZE={}: this build has no NCCL to exchange gradients of GPUs with; install "
                  "libnccl-dev and build again, or set run.devices = 1",
                  options.world_size));
#endif
}

std::string AttemptDirectory(const std::string& directory, int attempt) {
  return JoinPath(directory, fmt::format("attempt-{}", attempt));
}

}  // namespace

StageConfig LoadStageConfig(const std::string& path, const FileSystem& files) {
  if (!files.Exists(path))
    throw ConfigError(fmt::format("{} does not exist: give a stage's config.toml", path));
  StageConfig config = ParseStageConfig(files.ReadFile(path), path);
  if (config.task.fingerprint.empty()) config.task.fingerprint = CorpusFingerprint(RequestOf(config.task));
  const std::string id = ComputeStageId(config);
  if (!config.id.empty() && config.id != id) {
    throw ConfigError(
        fmt::format("{} says it is stage {}, but its content is that of stage {}: remove its line \"id\", or "
                    "undo the change",
                    path, config.id, id));
  }
  config.id = id;
  return config;
}

TrialDirectories MakeTrialDirectories(const std::string& workspace, const StageConfig& config, int attempt,
                                      FileSystem& files) {
  TrialDirectories trial;
  trial.trials_root = JoinPath(workspace, "trials");
  trial.directory = JoinPath(trial.trials_root, config.id);
  trial.attempt = attempt > 0 ? attempt : 1;
  while (attempt == 0 && files.Exists(AttemptDirectory(trial.directory, trial.attempt))) ++trial.attempt;
  trial.attempt_directory = AttemptDirectory(trial.directory, trial.attempt);
  files.CreateDirectories(trial.attempt_directory);
  const std::string config_file = JoinPath(trial.directory, "config.toml");
  if (!files.Exists(config_file)) WriteFileDurably(files, config_file, FormatStageConfig(config));
  return trial;
}

PreparedCorpus OpenOrPrepareCorpus(const std::string& workspace, const TaskConfig& task, FileSystem& files,
                                   Reporter& reporter) {
  const std::string data_root = JoinPath(workspace, "data");
  const std::string directory = JoinPath(data_root, task.fingerprint);
  if (files.Exists(directory)) return OpenPreparedCorpus(directory, files);
  const CorpusRequest request = RequestOf(task);
  if (const std::string here = CorpusFingerprint(request); here != task.fingerprint) {
    throw ConfigError(
        fmt::format("corpus {} on this machine has fingerprint {}, but this stage is about {}, which is not "
                    "prepared in {}: the text or its preparation has changed",
                    task.corpus, here, task.fingerprint, data_root));
  }
  LogInfo("preparing corpus {} in {}", task.corpus, directory);
  return PrepareCorpus(request, data_root, files, [&](const std::string& phase) {
    LogInfo("{}", phase);
    reporter.Progress("load", 0, 0, 0, 0);
  });
}

Meeting MeetPeers(const World& world, const RunConfig& run, Backend& backend, AgentChannel* channel) {
  Meeting meeting;
  if (world.world_size == 1) {
    meeting.collective = MakeSingleProcessCollective();
    return meeting;
  }
  const double timeout = CollectiveTimeoutFromEnvironment();
  meeting.rendezvous =
      channel != nullptr ? MakeChannelRendezvous(*channel) : RendezvousFromEnvironment(world, timeout);
  meeting.collective = MakeCollective({.rank = world.rank,
                                       .world_size = world.world_size,
                                       .timeout_seconds = timeout,
                                       .wire = run.wire == "bfloat16" ? Wire::kBfloat16 : Wire::kFloat32,
                                       .settle = [&backend] { backend.Synchronize(); }},
                                      backend, *meeting.rendezvous);
  LogInfo("{}", meeting.collective->description());
  return meeting;
}

std::unique_ptr<FileLock> LockTrial(const TrialDirectories& trial) {
  return std::make_unique<FileLock>(
      JoinPath(trial.directory, "running.lock"), kLockSeconds,
      [](const std::string& holder) { LogInfo("{} works on this trial", holder); });
}

}  // namespace headsweep
