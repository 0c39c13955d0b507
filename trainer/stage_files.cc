#include "trainer/stage_files.h"

#include <unistd.h>

#include <cstdlib>

#include "cluster/base/batch_job.h"
#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/log.h"
#include "trainer/build_info.h"

namespace headsweep {
namespace {

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace

std::string ResultPath(const StageContext& context) { return JoinPath(context.directory, "result.h5"); }
std::string CheckpointRoot(const StageContext& context) { return JoinPath(context.directory, "checkpoint"); }

Provenance MakeProvenance(const StageContext& context) {
  Provenance provenance;
  provenance.stage_id = context.config.id;
  provenance.kind = context.config.kind == StageKind::kTrain ? "train" : "prune";
  provenance.parent = context.config.parent;
  provenance.config_toml = FormatStageConfig(context.config);
  provenance.config_json = CanonicalJson(context.config);
  provenance.version = BuildVersion();
  provenance.git_commit = BuildCommit();
  provenance.backend = context.backend.description();
  provenance.host = HostName();
  const BatchJob job = ThisBatchJob();
  provenance.job = job.id;
  provenance.job_restart = job.restart;
  provenance.device = context.config.run.device;
  provenance.data_fingerprint = context.corpus.fingerprint;
  provenance.attempt = context.attempt;
  provenance.threads = context.config.run.threads;
  provenance.started_at = SystemClock().Wall();
  return provenance;
}

void SealResult(const StageContext& context, const Provenance& provenance, const StageTables& tables,
                const StageSummary& summary) {
  const std::string path = ResultPath(context);
  constexpr std::string_view kTemporary = "result.h5.tmp-";
  for (const std::string& name : context.files.List(context.directory)) {  // of attempts that died here
    if (!name.starts_with(kTemporary) || std::atoi(name.c_str() + kTemporary.size()) > context.attempt) continue;
    context.files.Remove(JoinPath(context.directory, name));
  }
  const std::string temporary = fmt::format("{}.tmp-{}", path, context.attempt);
  WriteStageFile(temporary, provenance, tables, summary);
  SealInPlace(context.files, temporary, path, context.fence);
}

std::optional<StageSummary> ReadResult(const StageContext& context) {
  const std::string path = ResultPath(context);
  if (!context.files.Exists(path)) return std::nullopt;
  try {
    StageFile file = ReadStageFile(path);
    if (file.provenance.stage_id != context.config.id) {
      throw ConfigError(fmt::format("{} belongs to stage {}, not to stage {}: it is not replaced", path,
                                    file.provenance.stage_id, context.config.id));
    }
    return file.summary;
  } catch (const IoError& error) {
    LogWarning("{}; moved aside, the stage runs again", error.what());
    context.files.Rename(path, path + ".damaged");
    return std::nullopt;
  }
}

}  // namespace headsweep
