#include "sweeps/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cluster/base/errors.h"
#include "sweeps/document.h"

namespace headsweep {
namespace {

constexpr Range Between(double low, double high) { return {low, high, false, false}; }
constexpr Range BelowOne() { return {0, 1, false, true}; }
constexpr Range Above(double low, double high) { return {low, high, true, false}; }

constexpr double kMostSteps = 1e9;
// Seeds are 63-bit: TOML integers are signed.
constexpr Range kSeeds = {0, 9223372036854775808.0, false, true};

#define HEADSWEEP_FIELD(member) [](StageConfig& config) -> FieldPointer { return &config.member; }

std::vector<KeySpec> MakeTable() {
  using enum KeyType;
  using enum KeyUse;
  return {
      {"task.kind",
       kText,
       "language-model",
       {},
       {"language-model"},
       kIdentity,
       "what is learnt",
       HEADSWEEP_FIELD(task.kind)},
      {"task.corpus",
       kText,
       "kjv",
       {},
       {},
       kDataName,
       "a known corpus, or the path of a UTF-8 text with one sentence a line",
       HEADSWEEP_FIELD(task.corpus)},
      {"task.fingerprint",
       kText,
       "",
       {},
       {},
       kInternal,
       "hash of the prepared data",
       HEADSWEEP_FIELD(task.fingerprint)},
      {"task.vocabulary",
       kInteger,
       "4000",
       Between(16, 1e6),
       {},
       kIdentity,
       "sub-word pieces asked for (V)",
       HEADSWEEP_FIELD(task.vocabulary)},
      {"task.length",
       kInteger,
       "128",
       Between(2, 65536),
       {},
       kIdentity,
       "tokens of one example (T)",
       HEADSWEEP_FIELD(task.length)},
      {"task.packing",
       kText,
       "stream",
       {},
       {"stream", "sentence"},
       kIdentity,
       "stream: sentences joined; sentence: one padded sentence an example",
       HEADSWEEP_FIELD(task.packing)},

      {"model.layers",
       kInteger,
       "2",
       Between(1, 1024),
       {},
       kIdentity,
       "layers (L)",
       HEADSWEEP_FIELD(model.layers)},
      {"model.embed",
       kInteger,
       "128",
       Between(1, 65536),
       {},
       kIdentity,
       "model width (C)",
       HEADSWEEP_FIELD(model.embed)},
      {"model.heads",
       kHeads,
       "4",
       Between(0, 4096),
       {},
       kIdentity,
       "attention heads of every layer (H): one number, or a list with one a layer",
       HEADSWEEP_FIELD(model.heads)},
      {"model.head_size",
       kInteger,
       "embed / heads",
       Between(1, 512),
       {},
       kIdentity,
       "width of one head (D); free of embed and heads",
       HEADSWEEP_FIELD(model.head_size)},
      {"model.feed_forward",
       kInteger,
       "4 * embed",
       Between(1, 1 << 20),
       {},
       kIdentity,
       "width of the feed-forward layer (F)",
       HEADSWEEP_FIELD(model.feed_forward)},
      {"model.norm",
       kText,
       "pre",
       {},
       {"pre", "post"},
       kIdentity,
       "layer norm before or after each sub-layer",
       HEADSWEEP_FIELD(model.norm)},
      {"model.activation",
       kText,
       "gelu",
       {},
       {"gelu", "relu"},
       kIdentity,
       "of the feed-forward layer",
       HEADSWEEP_FIELD(model.activation)},
      {"model.positions",
       kText,
       "learned",
       {},
       {"learned", "sinusoidal"},
       kIdentity,
       "position vectors",
       HEADSWEEP_FIELD(model.positions)},
      {"model.tied",
       kBoolean,
       "true",
       {},
       {},
       kIdentity,
       "output projection shares the token embedding",
       HEADSWEEP_FIELD(model.tied)},
      {"model.dropout",
       kNumber,
       "0",
       BelowOne(),
       {},
       kIdentity,
       "on embeddings, attention probabilities and sub-layer outputs",
       HEADSWEEP_FIELD(model.dropout)},

      {"train.steps",
       kInteger,
       "400",
       Between(1, kMostSteps),
       {},
       kIdentity,
       "optimiser steps",
       HEADSWEEP_FIELD(train.steps)},
      {"train.batch",
       kInteger,
       "16",
       Between(1, 1 << 24),
       {},
       kIdentity,
       "examples of one optimiser step, over all processes",
       HEADSWEEP_FIELD(train.batch)},
      {"train.micro_batch",
       kInteger,
       "0",
       Between(0, 1 << 24),
       {},
       kExecution,
       "examples of one forward pass; 0 = batch. Memory, not mathematics",
       HEADSWEEP_FIELD(train.micro_batch)},
      {"train.learning_rate",
       kNumber,
       "0.001",
       Above(0, 1000),
       {},
       kIdentity,
       "the highest rate of the schedule",
       HEADSWEEP_FIELD(train.learning_rate)},
      {"train.schedule",
       kText,
       "cosine",
       {},
       {"linear", "cosine", "inverse-sqrt"},
       kIdentity,
       "of the learning rate, after the warm-up",
       HEADSWEEP_FIELD(train.schedule)},
      {"train.warmup_steps",
       kInteger,
       "floor(steps / 10)",
       Between(0, kMostSteps),
       {},
       kIdentity,
       "steps of linear warm-up",
       HEADSWEEP_FIELD(train.warmup_steps)},
      {"train.final_learning_rate",
       kNumber,
       "0.1",
       Between(0, 1),
       {},
       kIdentity,
       "last rate of linear and cosine, as a fraction of the highest",
       HEADSWEEP_FIELD(train.final_learning_rate)},
      {"train.weight_decay",
       kNumber,
       "0.01",
       Between(0, 100),
       {},
       kIdentity,
       "decoupled (AdamW), on matrices only",
       HEADSWEEP_FIELD(train.weight_decay)},
      {"train.beta1",
       kNumber,
       "0.9",
       BelowOne(),
       {},
       kIdentity,
       "Adam's decay of the first moment",
       HEADSWEEP_FIELD(train.beta1)},
      {"train.beta2",
       kNumber,
       "0.98",
       BelowOne(),
       {},
       kIdentity,
       "Adam's decay of the second moment",
       HEADSWEEP_FIELD(train.beta2)},
      {"train.epsilon",
       kNumber,
       "1e-8",
       Above(0, 1),
       {},
       kIdentity,
       "Adam's epsilon",
       HEADSWEEP_FIELD(train.epsilon)},
      {"train.clip_norm",
       kNumber,
       "1",
       Between(0, 1e9),
       {},
       kIdentity,
       "largest gradient norm; 0 = no clipping",
       HEADSWEEP_FIELD(train.clip_norm)},
      {"train.label_smoothing",
       kNumber,
       "0",
       BelowOne(),
       {},
       kIdentity,
       "share of the target spread over all pieces",
       HEADSWEEP_FIELD(train.label_smoothing)},
      {"train.evaluate_every",
       kInteger,
       "100",
       Between(1, kMostSteps),
       {},
       kIdentity,
       "steps between evaluations; the last step is always evaluated",
       HEADSWEEP_FIELD(train.evaluate_every)},
      {"train.evaluate_examples",
       kInteger,
       "0",
       Between(0, kMostSteps),
       {},
       kIdentity,
       "validation examples of one evaluation; 0 = all",
       HEADSWEEP_FIELD(train.evaluate_examples)},
      {"train.checkpoint_every",
       kInteger,
       "100",
       Between(1, kMostSteps),
       {},
       kExecution,
       "steps between checkpoints; the last step is always saved",
       HEADSWEEP_FIELD(train.checkpoint_every)},

      {"seed",
       kInteger,
       "1",
       kSeeds,
       {},
       kIdentity,
       "of initialisation, data order and dropout",
       HEADSWEEP_FIELD(seed)},

      {"prune.order",
       kText,
       "",
       {},
       {"importance", "importance-rescored", "ablation", "random", "reversed", "magnitude"},
       kPruning,
       "which heads go first; in a sweep a list of orders",
       HEADSWEEP_FIELD(prune.order)},
      {"prune.step",
       kNumber,
       "0.1",
       Above(0, 1),
       {},
       kPruning,
       "fraction of all heads removed between two measurements",
       HEADSWEEP_FIELD(prune.step)},
      {"prune.per",
       kText,
       "example",
       {},
       {"example", "token"},
       kPruning,
       "over what the absolute value in the importance is taken",
       HEADSWEEP_FIELD(prune.per)},
      {"prune.normalize",
       kText,
       "layer",
       {},
       {"layer", "none"},
       kPruning,
       "layer: scores divided by the l2 norm of their layer",
       HEADSWEEP_FIELD(prune.normalize)},
      {"prune.score_examples",
       kInteger,
       "256",
       Between(1, kMostSteps),
       {},
       kPruning,
       "validation examples that score the heads",
       HEADSWEEP_FIELD(prune.score_examples)},
      {"prune.evaluate_examples",
       kInteger,
       "0",
       Between(0, kMostSteps),
       {},
       kPruning,
       "test examples of each point of the curve; 0 = all",
       HEADSWEEP_FIELD(prune.evaluate_examples)},
      {"prune.keep",
       kInteger,
       "0",
       Between(0, 4096),
       {},
       kPruning,
       "at least so many heads stay in every layer",
       HEADSWEEP_FIELD(prune.keep)},
      {"prune.seed",
       kInteger,
       "0",
       kSeeds,
       {},
       kPruning,
       "of order random; 0 for the others; in a sweep: prune.seeds",
       HEADSWEEP_FIELD(prune.seed)},

      {"run.devices",
       kInteger,
       "1",
       Between(1, 4096),
       {},
       kExecution,
       "processes of one trial, one device each, started together",
       HEADSWEEP_FIELD(run.devices)},
      {"run.retries",
       kInteger,
       "2",
       Between(0, 1000),
       {},
       kExecution,
       "attempts beyond the first that a trial's own failures may cost",
       HEADSWEEP_FIELD(run.retries)},
      {"run.threads",
       kInteger,
       "1",
       Between(1, 4096),
       {},
       kExecution,
       "CPU threads of one process",
       HEADSWEEP_FIELD(run.threads)},
      {"run.device",
       kText,
       "cpu",
       {},
       {"cpu", "cuda"},
       kExecution,
       "where the mathematics runs",
       HEADSWEEP_FIELD(run.device)},
  };
}

#undef HEADSWEEP_FIELD

const std::vector<KeySpec>& Table() {
  static const std::vector<KeySpec> table = MakeTable();
  return table;
}

std::string_view LastPart(std::string_view dotted) {
  const std::size_t dot = dotted.rfind('.');
  return dot == std::string_view::npos ? dotted : dotted.substr(dot + 1);
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours cost 1.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::span<const KeySpec> AllKeys() { return Table(); }

int FindKey(std::string_view dotted) {
  const auto& table = Table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].name == dotted) return static_cast<int>(i);
  }
  return -1;
}

int FindKeyByAnyName(std::string_view name, std::vector<std::string>* candidates) {
  if (const int exact = FindKey(name); exact >= 0) return exact;
  const auto& table = Table();
  std::vector<int> all, settable;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (LastPart(table[i].name) != name || table[i].use == KeyUse::kInternal) continue;
    all.push_back(static_cast<int>(i));
    if (table[i].may_be_axis()) settable.push_back(static_cast<int>(i));
  }
  if (all.size() == 1) return all.front();
  if (settable.size() == 1) return settable.front();
  if (candidates != nullptr) {
    for (const int i : all) candidates->push_back(Key(i).name);
  }
  return -1;
}

std::string ShortName(const KeySpec& key) { return std::string(LastPart(key.name)); }

std::string DescribeRange(const KeySpec& key) {
  if (!key.choices.empty()) return fmt::format("one of: {}", fmt::join(key.choices, ", "));
  if (key.type == KeyType::kBoolean) return "true or false";
  if (!key.is_numeric()) return "";
  const Range& range = key.range;
  const std::string low = fmt::format("{}{}", range.above_low ? "above " : "", FormatNumber(range.low));
  if (range.high >= kMostSteps) return range.above_low ? low : "at least " + low;
  return fmt::format("{} to {}{}", low, range.below_high ? "below " : "", FormatNumber(range.high));
}

std::string Nearest(std::string_view word, std::span<const std::string> known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    if (candidate.size() > word.size() + best_distance || word.size() > candidate.size() + best_distance)
      continue;
    const std::size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string> KeyNames() {
  std::vector<std::string> names;
  for (const KeySpec& key : Table()) {
    if (key.use != KeyUse::kInternal) names.push_back(key.name);
  }
  const std::size_t dotted = names.size();
  for (std::size_t i = 0; i < dotted; ++i) {
    const std::string last(LastPart(names[i]));
    if (FindKeyByAnyName(last) >= 0) names.push_back(last);
  }
  return names;
}

Value GetField(const KeySpec& key, const StageConfig& config) {
  const FieldPointer field = key.field(const_cast<StageConfig&>(config));  // only read below
  if (auto* const* p = std::get_if<int*>(&field)) return static_cast<std::int64_t>(**p);
  if (auto* const* p = std::get_if<std::uint64_t*>(&field)) return static_cast<std::int64_t>(**p);
  if (auto* const* p = std::get_if<double*>(&field)) return **p;
  if (auto* const* p = std::get_if<bool*>(&field)) return **p;
  if (auto* const* p = std::get_if<std::string*>(&field)) return **p;
  const std::vector<int>& heads = **std::get_if<std::vector<int>*>(&field);
  return std::vector<std::int64_t>(heads.begin(), heads.end());
}

void SetField(const KeySpec& key, const Value& value, StageConfig& config) {
  const FieldPointer field = key.field(config);
  if (auto* const* p = std::get_if<int*>(&field)) {
    **p = static_cast<int>(std::get<std::int64_t>(value));
  } else if (auto* const* u = std::get_if<std::uint64_t*>(&field)) {
    **u = static_cast<std::uint64_t>(std::get<std::int64_t>(value));
  } else if (auto* const* d = std::get_if<double*>(&field)) {
    **d = std::get<double>(value);
  } else if (auto* const* b = std::get_if<bool*>(&field)) {
    **b = std::get<bool>(value);
  } else if (auto* const* s = std::get_if<std::string*>(&field)) {
    **s = std::get<std::string>(value);
  } else {
    const auto& heads = std::get<std::vector<std::int64_t>>(value);
    auto& to = **std::get_if<std::vector<int>*>(&field);
    to.assign(heads.begin(), heads.end());
  }
}

std::string FormatNumber(double number) {
  number += 0.0;  // -0 becomes 0
  if (number == std::floor(number) && std::abs(number) < 1e15) {
    return fmt::format("{}", static_cast<std::int64_t>(number));
  }
  return fmt::format("{}", number);
}

std::string FormatValue(const Value& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&value)) return FormatNumber(*d);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* s = std::get_if<std::string>(&value)) return QuoteToml(*s);
  const auto& heads = std::get<std::vector<std::int64_t>>(value);
  if (!heads.empty() && std::all_of(heads.begin(), heads.end(), [&](auto h) { return h == heads.front(); })) {
    return fmt::format("{}", heads.front());
  }
  return fmt::format("[{}]", fmt::join(heads, ", "));
}

}  // namespace headsweep
