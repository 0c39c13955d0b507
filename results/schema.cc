#include "results/schema.h"

#include <type_traits>

namespace headsweep {
namespace {

constexpr bool kTiming = true;

template <class Row, class Value, class Owner>
Field<Row> F(const char* name, Value Owner::*member, const char* unit, const char* help,
             bool timing = false) {
  ColumnType type = ColumnType::kInt;
  if constexpr (std::is_same_v<Value, double>) type = ColumnType::kReal;
  if constexpr (std::is_same_v<Value, std::uint64_t>) type = ColumnType::kUnsigned;
  if constexpr (std::is_same_v<Value, std::string>) type = ColumnType::kText;
  return {Column{name, type, unit, help, timing}, static_cast<Value Row::*>(member)};
}

// A column that files of earlier versions do not have.
template <class Row>
Field<Row> Later(Field<Row> field) {
  field.column.later = true;
  return field;
}

// The batch job of an attempt.
template <class Row>
Field<Row> Job() {
  return Later(F<Row>("job", &Row::job, "", "batch job, as 123, or 123_4 of a job array; empty: none, or not known"));
}
template <class Row>
Field<Row> JobRestart() {
  return Later(F<Row>("job_restart", &Row::job_restart, "1", "how often that job had been requeued before"));
}

// The columns of StageSummary, which a stage file's /summary and results.h5's /stages and /trials share.
template <class Row>
std::vector<Field<Row>> SummaryFields() {
  using S = StageSummary;
  return {
      F<Row>("outcome", &S::outcome, "",
             "finished, or diverged: the loss became NaN or infinite, which is a result"),
      F<Row>("digest", &S::digest, "", "hash of every value that must repeat bit by bit; empty: not known"),
      F<Row>("weights_checksum", &S::weights_checksum, "1", "xxHash3 of the trained weights"),
      F<Row>("parameters", &S::parameters, "1", "trainable numbers of the model; 0: not known"),
      F<Row>("flops_per_step", &S::flops_per_step, "FLOP", "floating-point operations of one optimiser step"),
      F<Row>("valid_nll", &S::valid_nll, "nat/piece",
             "negative log-likelihood on the validation split, last evaluation"),
      F<Row>("valid_perplexity_per_word", &S::valid_perplexity, "1",
             "perplexity per word on the validation split"),
      F<Row>("test_nll", &S::test_nll, "nat/piece",
             "negative log-likelihood on the test split, last evaluation"),
      F<Row>("test_perplexity_per_word", &S::test_perplexity, "1", "perplexity per word on the test split"),
      F<Row>("train_seconds", &S::train_seconds, "s", "time spent in optimiser steps, over all attempts",
             kTiming),
      F<Row>("peak_memory_bytes", &S::peak_memory_bytes, "B", "largest memory of the process, on its device (a GPU, or the machine); 0: not known",
             kTiming),
      F<Row>("summary_line", &S::summary_line, "", "the stage in one line, for a person"),
  };
}

}  // namespace

const TableSchema<Provenance>& ProvenanceSchema() {
  using R = Provenance;
  static const TableSchema<R> schema{
      "provenance",
      "what produced a stage's results",
      {F<R>("stage_id", &R::stage_id, "",
            "hash of the resolved configuration, the data and the numerics version"),
       F<R>("kind", &R::kind, "", "train or prune"),
       F<R>("parent", &R::parent, "", "the train stage that a prune stage starts from"),
       F<R>("config_toml", &R::config_toml, "",
            "the resolved configuration, complete; a trainer runs it again as it is"),
       F<R>("config_json", &R::config_json, "", "the part of it that makes up the identity, canonical JSON"),
       F<R>("version", &R::version, "", "version of headsweep"),
       F<R>("git_commit", &R::git_commit, "", "commit that headsweep was built from"),
       F<R>("backend", &R::backend, "", "cpu or cuda, with the precision"),
       F<R>("host", &R::host, "", "name of the machine"), Job<R>(), JobRestart<R>(),
       F<R>("device", &R::device, "", "model of the processor or accelerator"),
       F<R>("data_fingerprint", &R::data_fingerprint, "", "hash of the prepared corpus"),
       F<R>("attempt", &R::attempt, "1", "which attempt finished, from 1"),
       F<R>("threads", &R::threads, "1", "processor threads of one process"),
       F<R>("started_at", &R::started_at, "s since 1970-01-01 UTC", "start of that attempt", kTiming)}};
  return schema;
}

const TableSchema<StageSummary>& SummarySchema() {
  static const TableSchema<StageSummary> schema{"summary", "the stage's results in one row",
                                                SummaryFields<StageSummary>()};
  return schema;
}

const TableSchema<StepRow>& StepSchema() {
  using R = StepRow;
  static const TableSchema<R> schema{
      "steps",
      "one row an optimiser step",
      {F<R>("step", &R::step, "1", "counts from 1"),
       F<R>("loss", &R::loss, "nat/piece",
            "training loss, mean over the targets of the effective batch, with label smoothing"),
       F<R>("learning_rate", &R::learning_rate, "1", "of this step"),
       F<R>("gradient_norm", &R::gradient_norm, "1", "l2 norm of all gradients before clipping"),
       F<R>("targets", &R::targets, "piece", "target tokens in the effective batch"),
       F<R>("seconds", &R::seconds, "s", "duration of the step", kTiming),
       F<R>("tokens_per_second", &R::tokens_per_second, "piece/s", "targets / seconds", kTiming)}};
  return schema;
}

const TableSchema<EvaluationRow>& EvaluationSchema() {
  using R = EvaluationRow;
  static const TableSchema<R> schema{
      "evaluations",
      "one row an evaluation of the whole model on a split",
      {F<R>("step", &R::step, "1", "optimiser steps done before"),
       F<R>("split", &R::split, "", "valid or test"),
       F<R>("nll", &R::nll, "nat/piece", "mean negative log-likelihood of a piece"),
       F<R>("perplexity_per_piece", &R::perplexity_per_piece, "1", "exp(nll)"),
       F<R>("perplexity_per_word", &R::perplexity_per_word, "1",
            "exp(total negative log-likelihood / (words + sentences)): independent of the sub-word "
            "vocabulary"),
       F<R>("pieces", &R::pieces, "piece", "targets evaluated"),
       F<R>("seconds", &R::seconds, "s", "duration of the evaluation", kTiming)}};
  return schema;
}

const TableSchema<ImportanceRow>& ImportanceSchema() {
  using R = ImportanceRow;
  static const TableSchema<R> schema{
      "importance",
      "importance of each head (Michel, Levy and Neubig 2019, equation 2), one row a head and a step",
      {F<R>("step", &R::step, "1", "optimiser steps done before"),
       F<R>("layer", &R::layer, "1", "counts from 0"),
       F<R>("attention", &R::attention, "", "self, cross or encoder"),
       F<R>("head", &R::head, "1", "index in the trained model, from 0"),
       F<R>("per_example", &R::per_example, "nat", "mean over examples of |d loss / d gate|"),
       F<R>("per_token", &R::per_token, "nat", "mean over tokens of |the token's part of d loss / d gate|"),
       F<R>("normalized", &R::normalized, "1",
            "the score that orders use: per_example or per_token, divided by its layer's l2 norm if asked "
            "for"),
       F<R>("magnitude", &R::magnitude, "1", "l2 norm of the head's weights")}};
  return schema;
}

const TableSchema<PruningRow>& PruningSchema() {
  using R = PruningRow;
  static const TableSchema<R> schema{
      "pruning",
      "pruning curves: quality after removing heads in an order, without retraining",
      {F<R>("order", &R::order, "", "how heads were ordered: importance, random, …"),
       F<R>("order_seed", &R::order_seed, "1", "of the order random; 0 for the others"),
       F<R>("fraction", &R::fraction, "1", "share of all heads asked to be removed"),
       F<R>("heads_removed", &R::heads_removed, "1", "heads removed"),
       F<R>("heads_left", &R::heads_left, "1", "heads left"),
       F<R>("nll", &R::nll, "nat/piece", "negative log-likelihood on the test split"),
       F<R>("perplexity_per_piece", &R::perplexity_per_piece, "1", "exp(nll)"),
       F<R>("perplexity_per_word", &R::perplexity_per_word, "1", "as in evaluations"),
       F<R>("loss_increase", &R::loss_increase, "nat/piece", "nll minus that of the unpruned model"),
       F<R>("seconds", &R::seconds, "s", "duration of the evaluation with the heads really cut out",
            kTiming)}};
  return schema;
}

const TableSchema<AblationRow>& AblationSchema() {
  using R = AblationRow;
  static const TableSchema<R> schema{
      "ablation",
      "each head switched off alone",
      {F<R>("layer", &R::layer, "1", "counts from 0"),
       F<R>("attention", &R::attention, "", "self, cross or encoder"),
       F<R>("head", &R::head, "1", "index in the trained model, from 0"),
       F<R>("nll", &R::nll, "nat/piece", "negative log-likelihood without this head"),
       F<R>("loss_increase", &R::loss_increase, "nat/piece", "nll minus that of the whole model")}};
  return schema;
}

const TableSchema<RemovalRow>& RemovalSchema() {
  using R = RemovalRow;
  static const TableSchema<R> schema{
      "removal",
      "the orders themselves: which head was removed when",
      {F<R>("order", &R::order, "", "as in pruning"),
       F<R>("order_seed", &R::order_seed, "1", "as in pruning"),
       F<R>("position", &R::position, "1", "0: the first to be removed"),
       F<R>("layer", &R::layer, "1", "counts from 0"),
       F<R>("head", &R::head, "1", "index in the trained model, from 0"),
       F<R>("score", &R::score, "1", "what the order sorts by; its meaning depends on the order")}};
  return schema;
}

const TableSchema<SweepRow>& SweepSchema() {
  using R = SweepRow;
  static const TableSchema<R> schema{
      "sweep",
      "the sweep, one row",
      {F<R>("name", &R::name, "", "name of the sweep"),
       F<R>("toml", &R::toml, "", "the sweep file as it was written"),
       F<R>("partial", &R::partial, "", "empty, or why these results are not complete")}};
  return schema;
}

const TableSchema<AxisRow>& AxisSchema() {
  using R = AxisRow;
  static const TableSchema<R> schema{
      "axes",
      "the axes of the grid, one row a value",
      {F<R>("axis", &R::axis, "", "name of the dimension in /grid"),
       F<R>("key", &R::key, "", "key in the sweep file"),
       F<R>("position", &R::position, "1", "index along the dimension, from 0"),
       F<R>("label", &R::label, "", "the value as it was written"),
       F<R>("number", &R::number, "1", "the value, NaN if it is a text")}};
  return schema;
}

const TableSchema<PointRow>& PointSchema() {
  using R = PointRow;
  static const TableSchema<R> schema{
      "points",
      "where each trial lies in the grid: one row a point and an axis; a trial that several points resolve "
      "to has several",
      {F<R>("trial", &R::trial, "", "the train stage"),
       F<R>("point", &R::point, "1", "number of the point, from 0"),
       F<R>("axis", &R::axis, "", "name of the dimension"),
       F<R>("position", &R::position, "1", "index along the dimension, from 0")}};
  return schema;
}

const TableSchema<StageRow>& StageSchema() {
  using R = StageRow;
  static const TableSchema<R> schema = [] {
    TableSchema<R> stages{
        "stages",
        "every stage of the sweep, whatever became of it; measured columns are NaN where there is no result",
        {F<R>("stage", &R::stage, "", "identifier"), F<R>("kind", &R::kind, "", "train or prune"),
         F<R>("parent", &R::parent, "", "the train stage that a prune stage starts from"),
         F<R>("state", &R::state, "", "waiting, ready, running, finished, diverged, early-stopped, failed or skipped"),
         F<R>("reason", &R::reason, "", "why it failed"),
         F<R>("label", &R::label, "", "of a prune stage: its order, as in /grid")}};
    for (Field<R>& field : SummaryFields<R>()) stages.fields.push_back(std::move(field));
    stages.fields.push_back(
        F<R>("config_json", &R::config_json, "", "resolved configuration, canonical JSON"));
    return stages;
  }();
  return schema;
}

const TableSchema<ProblemRow>& ProblemSchema() {
  using R = ProblemRow;
  static const TableSchema<R> schema{
      "problems",
      "files that could not be used; their stages are missing from the other tables",
      {F<R>("path", &R::path, "", "the file"), F<R>("reason", &R::reason, "", "what is wrong with it")}};
  return schema;
}

const TableSchema<AttemptRecord>& AttemptSchema() {
  using R = AttemptRecord;
  static const TableSchema<R> schema{
      "attempts",
      "every process start of every stage",
      {F<R>("stage", &R::stage_id, "", "the stage"),
       F<R>("attempt", &R::attempt, "1", "counts from 1 within a stage"),
       F<R>("host", &R::host, "", "name of the machine"), Job<R>(), JobRestart<R>(),
       F<R>("slot", &R::slot, "", "the device or group of threads"),
       F<R>("outcome", &R::outcome, "", "finished, diverged, stopped or failed; empty: not known"),
       F<R>("cause", &R::cause, "", "of a failure"), F<R>("message", &R::message, "", "of a failure"),
       F<R>("started_at", &R::started_at, "s since 1970-01-01 UTC", "0: not known", kTiming),
       F<R>("finished_at", &R::finished_at, "s since 1970-01-01 UTC", "0: not known", kTiming)}};
  return schema;
}

std::vector<Column> LeadingColumns() {
  return {Column{"trial", ColumnType::kId, "", "the train stage"},
          Column{"stage", ColumnType::kId, "", "the stage that measured the row"}};
}

}  // namespace headsweep
