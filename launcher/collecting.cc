#include "launcher/collecting.h"

#include <algorithm>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

AxisValue HeadsColumn(const std::vector<int>& heads) {
  if (!heads.empty() && std::all_of(heads.begin(), heads.end(), [&](int h) { return h == heads.front(); }))
    return std::int64_t{heads.front()};
  return fmt::format("[{}]", fmt::join(heads, ", "));
}

}  // namespace

std::map<std::string, AxisValue> ConfigColumns(const StageConfig& config) {
  const auto integer = [](auto value) { return AxisValue(static_cast<std::int64_t>(value)); };
  std::map<std::string, AxisValue> columns = {{"task", config.task.kind},
                                              {"corpus", config.task.corpus},
                                              {"vocabulary", integer(config.task.vocabulary)},
                                              {"length", integer(config.task.length)},
                                              {"packing", config.task.packing},
                                              {"layers", integer(config.model.layers)},
                                              {"embed", integer(config.model.embed)},
                                              {"heads", HeadsColumn(config.model.heads)},
                                              {"head_size", integer(config.model.head_size)},
                                              {"feed_forward", integer(config.model.feed_forward)},
                                              {"norm", config.model.norm},
                                              {"activation", config.model.activation},
                                              {"positions", config.model.positions},
                                              {"tied", integer(config.model.tied)},
                                              {"dropout", config.model.dropout},
                                              {"steps", integer(config.train.steps)},
                                              {"batch", integer(config.train.batch)},
                                              {"learning_rate", config.train.learning_rate},
                                              {"schedule", config.train.schedule},
                                              {"warmup_steps", integer(config.train.warmup_steps)},
                                              {"weight_decay", config.train.weight_decay},
                                              {"label_smoothing", config.train.label_smoothing},
                                              {"seed", integer(config.seed)}};
  if (config.kind == StageKind::kPrune) {
    columns["order"] = config.prune.order;
    columns["order_seed"] = integer(config.prune.seed);
    columns["prune_step"] = config.prune.step;
    columns["per"] = config.prune.per;
    columns["normalize"] = config.prune.normalize;
    columns["keep"] = integer(config.prune.keep);
  }
  return columns;
}

namespace {

CollectStage StageOf(const SweepState& state, const Workspace& workspace, const FileSystem& files, const PlanStage& stage) {
  const StageConfig config = state.planned.plan.Config(stage);
  const StageStatus& status = state.core.status(StageId(config.id));
  const AttemptHistory* attempt = state.LatestAttempt(config.id);
  const std::string result = workspace.TrialResult(config.id);
  CollectStage collected;
  collected.id = config.id;
  collected.kind = config.kind == StageKind::kTrain ? "train" : "prune";
  collected.parent = config.parent;
  collected.state = state.StateOf(config.id);
  if (collected.state == "failed" && attempt != nullptr)
    collected.reason = fmt::format("{}: {}", attempt->cause, attempt->message);
  if (collected.state == "skipped" || collected.state == "early-stopped") collected.reason = status.message;
  if (files.Exists(result)) collected.result_path = result;
  // What it had reached: the file of its last attempt, which was closed in order but not sealed.
  if (collected.state == "early-stopped" && collected.result_path.empty()) {
    const std::vector<int> attempts = workspace.Attempts(files, config.id);
    if (!attempts.empty() && files.Exists(workspace.AttemptMetrics(config.id, attempts.back())))
      collected.result_path = workspace.AttemptMetrics(config.id, attempts.back());
  }
  collected.config_json = CanonicalJson(config);
  collected.columns = ConfigColumns(config);
  collected.points = state.planned.plan.Points(stage);
  return collected;
}

}  // namespace

CollectSource MakeCollectSource(const SweepState& state, const Workspace& workspace, const FileSystem& files) {
  const Plan& plan = state.planned.plan;
  CollectSource source;
  source.sweep_name = plan.name;
  source.sweep_toml = state.planned.sweep.text();
  for (const PlanAxis& axis : plan.axes)
    source.axes.push_back({.name = axis.name, .key = axis.key, .values = axis.values});
  source.for_each_stage = [&](const auto& visit) {
    for (const PlanStage& stage : state.planned.plan.stages) visit(StageOf(state, workspace, files, stage));
  };
  source.for_each_attempt = [&](const auto& visit) {
    for (const AttemptHistory& attempt : state.attempts)
      visit({.stage_id = state.planned.IdAt(attempt.stage),
             .attempt = attempt.attempt,
             .host = std::string(attempt.host),
             .job = std::string(attempt.job),
             .slot = std::string(attempt.slots),
             .outcome = std::string(attempt.outcome),
             .cause = std::string(attempt.cause),
             .message = std::string(attempt.message),
             .job_restart = attempt.job_restart,
             .started_at = attempt.started_at,
             .finished_at = attempt.ended_at});
  };
  return source;
}

}  // namespace headsweep
