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

CollectInput MakeCollectInput(const SweepState& state, const Workspace& workspace, const FileSystem& files) {
  const Plan& plan = state.planned.plan;
  CollectInput input;
  input.sweep_name = plan.name;
  input.sweep_toml = state.planned.sweep.text();
  for (const PlanAxis& axis : plan.axes)
    input.axes.push_back({.name = axis.name, .key = axis.key, .values = axis.values});
  for (const PlanStage& stage : plan.stages) {
    const StageConfig& config = stage.config;
    const StageStatus& status = state.core.status(StageId(config.id));
    const AttemptHistory* attempt = state.LatestAttempt(config.id);
    const std::string result = workspace.TrialResult(config.id);
    CollectStage collected;
    collected.id = config.id;
    collected.kind = config.kind == StageKind::kTrain ? "train" : "prune";
    collected.parent = config.parent;
    collected.state = state.StateOf(config.id);
    if (collected.state == "failed" && attempt != nullptr)
      collected.reason = attempt->cause + ": " + attempt->message;
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
    collected.points = stage.points;
    input.stages.push_back(std::move(collected));
  }
  for (const AttemptHistory& attempt : state.attempts) {
    if (!state.planned.index.contains(attempt.stage)) continue;  // the sweep file no longer has it
    input.attempts.push_back({.stage_id = attempt.stage,
                              .attempt = attempt.attempt,
                              .host = attempt.host,
                              .job = attempt.job,
                              .slot = attempt.slots,
                              .outcome = attempt.outcome,
                              .cause = attempt.cause,
                              .message = attempt.message,
                              .job_restart = attempt.job_restart,
                              .started_at = attempt.started_at,
                              .finished_at = attempt.ended_at});
  }
  return input;
}

}  // namespace headsweep
