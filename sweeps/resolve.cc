#include "sweeps/resolve.h"

#include <fmt/format.h>

#include <algorithm>

namespace headsweep {
namespace {

constexpr double kWholeSlack = 1e-9;  // an expression's rounding, not a fraction

}  // namespace

SettingTable DefaultSettings() {
  SettingTable table;
  for (int key = 0; key < KeyCount(); ++key) table.push_back(&DefaultSetting(key));
  return table;
}

Resolver::Resolver(SettingTable settings, Complaints& complaints)
    : settings_(std::move(settings)),
      complaints_(complaints),
      states_(settings_.size(), State::kUnknown),
      computed_(settings_.size()) {}

void Resolver::Forget() { std::fill(states_.begin(), states_.end(), State::kUnknown); }

const Value* Resolver::Get(int key) {
  const auto k = static_cast<std::size_t>(key);
  const Expression* expression = settings_[k]->expression();
  if (expression == nullptr) return settings_[k]->literal();
  if (states_[k] == State::kUnknown) {
    states_[k] = State::kRunning;
    running_.push_back(key);
    EvaluateKey(key, *expression);
    running_.pop_back();
  } else if (states_[k] == State::kRunning) {
    std::string chain;
    const auto start = std::find(running_.begin(), running_.end(), key);
    for (auto it = start; it != running_.end(); ++it) chain += Key(*it).name + " -> ";
    complaints_.AddPerPoint(Blame(key), "circle",
                            fmt::format("{}{}: these expressions need each other", chain, Key(key).name));
    return nullptr;
  }
  return states_[k] == State::kKnown ? &computed_[k] : nullptr;
}

std::string Resolver::Values(const Expression& expression) {
  std::string text;
  for (const int key : expression.keys()) {
    const Value* value = Get(key);
    if (value != nullptr)
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", Key(key).name, FormatValue(*value));
  }
  return text.empty() ? text : " with " + text;
}

void Resolver::EvaluateKey(int key, const Expression& expression) {
  const auto k = static_cast<std::size_t>(key);
  states_[k] = State::kRunning;
  const KeySpec& spec = Key(key);
  std::string problem;
  const auto number = expression.Evaluate([this](int needed) { return Get(needed); }, &problem);
  std::optional<Value> value;
  if (number) {
    value = ToNumericValue(spec, *number, kWholeSlack);
    if (!value)
      problem = fmt::format("is {}, not a whole number", FormatNumber(*number));
    else if (std::string range = RangeProblem(spec, *value); !range.empty()) {
      problem = fmt::format("is {}, out of range ({})", FormatNumber(*number), DescribeRange(spec));
      value.reset();
    }
  }
  if (!value && !problem.empty()) {
    complaints_.AddPerPoint(
        Blame(key), spec.name,
        fmt::format("{} = \"{}\" {}{}", spec.name, expression.text(), problem, Values(expression)));
  }
  states_[k] = value ? State::kKnown : State::kFailed;
  if (value) computed_[k] = std::move(*value);
}

std::optional<double> Resolver::Evaluate(const Expression& expression, Position at, const char* what) {
  std::string problem;
  const auto number = expression.Evaluate([this](int needed) { return Get(needed); }, &problem);
  if (!number && !problem.empty()) {
    complaints_.AddPerPoint(
        at, what, fmt::format("{} \"{}\" {}{}", what, expression.text(), problem, Values(expression)));
  }
  return number;
}

Position Resolver::Blame(int key) const {
  // Defaults depend on few keys and never on themselves; a visited list guards against circles among the
  // file's expressions.
  std::vector<int> queue = {key};
  Position blame;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const Setting& setting = *settings_[static_cast<std::size_t>(queue[i])];
    if (setting.at.line > 0) {
      blame = std::max(blame, setting.at);
    } else if (const Expression* expression = setting.expression()) {
      for (const int needed : expression->keys()) {
        if (std::find(queue.begin(), queue.end(), needed) == queue.end()) queue.push_back(needed);
      }
    }
  }
  return blame;
}

void Resolver::Complain(std::initializer_list<const char*> keys, std::string message) {
  Position blame;
  for (const char* key : keys) blame = std::max(blame, Blame(FindKey(key)));
  complaints_.AddPerPoint(blame, *keys.begin(), std::move(message));
}

bool Resolver::Known(std::initializer_list<const char*> keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const char* key) { return Get(FindKey(key)) != nullptr; });
}

bool Resolver::ExpandHeads(StageConfig& config) {
  if (!Known({"model.heads", "model.layers"})) return true;
  auto& heads = config.model.heads;
  const auto layers = static_cast<std::size_t>(config.model.layers);
  if (heads.size() == 1) heads.resize(layers, heads.front());
  if (heads.size() != layers) {
    Complain(
        {"model.heads", "model.layers"},
        fmt::format(
            "model.heads lists {} layers, but model.layers = {}; for an axis of head counts write the list "
            "under [grid]",
            heads.size(), layers));
    return false;
  }
  if (std::all_of(heads.begin(), heads.end(), [](int h) { return h == 0; })) {
    Complain({"model.heads"}, "model.heads: at least one layer must have a head");
    return false;
  }
  return true;
}

bool Resolver::CheckTogether(const StageConfig& config) {
  const TrainConfig& train = config.train;
  bool good = true;
  const auto require = [&](bool holds, std::initializer_list<const char*> keys, auto&& message) {
    if (holds || !Known(keys)) return;
    Complain(keys, message());
    good = false;
  };
  require(train.warmup_steps <= train.steps, {"train.warmup_steps", "train.steps"}, [&] {
    return fmt::format("train.warmup_steps = {} is more than train.steps = {}", train.warmup_steps,
                       train.steps);
  });
  require(train.micro_batch == 0 || train.batch % train.micro_batch == 0,
          {"train.micro_batch", "train.batch"}, [&] {
            return fmt::format("train.batch = {} is no multiple of train.micro_batch = {}", train.batch,
                               train.micro_batch);
          });
  require(config.run.devices <= train.batch, {"run.devices", "train.batch"}, [&] {
    return fmt::format("train.batch = {} cannot be shared out to run.devices = {}", train.batch,
                       config.run.devices);
  });
  require(config.model.positions != "sinusoidal" || config.model.embed % 2 == 0,
          {"model.positions", "model.embed"}, [&] {
            return fmt::format("sinusoidal positions need an even model.embed, not {}", config.model.embed);
          });
  return good;
}

bool Resolver::Resolve(StageConfig& config) {
  bool good = true;
  for (int key = 0; key < KeyCount(); ++key) {
    const Value* value = Get(key);
    if (value == nullptr) {
      good = false;
    } else {
      SetField(Key(key), *value, config);
    }
  }
  good = ExpandHeads(config) && good;
  return CheckTogether(config) && good;
}

}  // namespace headsweep
