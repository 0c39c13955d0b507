#include "launcher/commands/status_json.h"

#include "cluster/base/json.h"

namespace headsweep {
namespace {

nlohmann::json StageJson(const SweepState& state, const std::optional<LiveView>& live,
                         const PlanStage& stage) {
  const std::string id = state.planned.plan.Id(stage);
  const StageStatus& status = state.core.status(StageId(id));
  const AttemptHistory* attempt = state.LatestAttempt(id);
  const LiveTrial* now = live && state.IsRunning(id) ? live->Find(id, attempt->attempt) : nullptr;
  const nlohmann::json summary = ParseJson(status.summary);
  nlohmann::json json = {{"id", id},
                         {"kind", stage.parent < 0 ? "train" : "prune"},
                         {"parent", stage.parent < 0 ? "" : state.planned.IdAt(static_cast<std::size_t>(stage.parent))},
                         {"description", state.planned.Describe(id)},
                         {"state", state.StateOf(id)},
                         {"attempts", status.attempt.value()},
                         {"summary", summary.is_object() ? summary : nlohmann::json()}};
  if (attempt != nullptr) {
    json["latest_attempt"] = AttemptJson(*attempt);
  }
  if (now != nullptr) {
    json["progress"] = {{"phase", now->phase},
                        {"step", now->step},
                        {"steps", now->steps},
                        {"loss", now->loss},
                        {"tokens_per_second", now->tokens_per_second}};
  }
  return json;
}

nlohmann::json LauncherJson(const KnownLauncher& launcher) {
  return {{"host", launcher.process.host},
          {"pid", launcher.process.pid},
          {"job", launcher.process.job},
          {"since", launcher.process.since},
          {"joined", launcher.joined},
          {"silent_for", launcher.silent_for ? nlohmann::json(*launcher.silent_for) : nlohmann::json()}};
}

}  // namespace

static nlohmann::json SubmissionJson(const SubmissionView& view) {
  const auto& [submission, known] = view;
  nlohmann::json json = {{"number", submission.number},
                         {"job", submission.record.job},
                         {"directory", submission.directory},
                         {"life", ToString(known.life)},
                         {"problem", known.problem},
                         {"cancelled_by", submission.cancelled_by},
                         {"jobs", nlohmann::json::array()}};
  for (const SlurmJob& job : known.jobs)
    json["jobs"].push_back({{"id", job.id},
                            {"state", job.state},
                            {"phase", ToString(job.phase)},
                            {"reason", job.reason},
                            {"nodes", job.nodes},
                            {"start", job.start},
                            {"seconds_left", job.seconds_left ? nlohmann::json(*job.seconds_left) : nlohmann::json()}});
  return json;
}

nlohmann::json StatusJson(const SweepState& state, const Workspace& workspace,
                          const std::vector<SubmissionView>& submissions) {
  const std::map<std::string, int> counts = state.Counts();
  const std::optional<LiveView> live = ReadLive(FileSystem::Real(), state);
  nlohmann::json json = {{"sweep", state.name},
                         {"workspace", workspace.root()},
                         {"state", WordOf(state, submissions)},
                         {"counts", counts},
                         {"launcher", nullptr},
                         {"launchers", nlohmann::json::array()},
                         {"results", workspace.Results(state.name)},
                         {"report", workspace.Report(state.name)},
                         {"submissions", nlohmann::json::array()},
                         {"stages", nlohmann::json::array()}};
  for (const SubmissionView& view : submissions) json["submissions"].push_back(SubmissionJson(view));
  for (const KnownLauncher* launcher : state.Living()) json["launchers"].push_back(LauncherJson(*launcher));
  if (!json["launchers"].empty()) json["launcher"] = json["launchers"].front();
  if (live) {
    json["live"] = {
        {"time", live->time},
        {"fraction", live->fraction},
        {"seconds_left", live->seconds_left ? nlohmann::json(*live->seconds_left) : nlohmann::json()},
        {"slots", live->slots},
        {"busy_slots", live->busy_slots},
        {"paused", live->paused},
        {"short_of_memory", live->short_of_memory}};
  }
  for (const PlanStage& stage : state.planned.plan.stages)
    json["stages"].push_back(StageJson(state, live, stage));
  return json;
}

nlohmann::json AttemptJson(const AttemptHistory& attempt) {
  return {{"attempt", attempt.attempt},   {"host", attempt.host},
          {"job", attempt.job},           {"job_restart", attempt.job_restart},
          {"slots", attempt.slots},       {"started_at", attempt.started_at},
          {"ended_at", attempt.ended_at}, {"checkpoint_step", attempt.checkpoint_step},
          {"outcome", attempt.outcome},   {"cause", attempt.cause},
          {"message", attempt.message},   {"charged", attempt.charged}};
}

}  // namespace headsweep
