// From settings (what is written, or a default) to values: expressions are evaluated in the order of their
// dependence, each key once. Then the checks that concern several keys. One Resolver serves many points:
// SetAll or Set, then Get or Resolve.
#pragma once

#include <vector>

#include "sweeps/settings.h"

namespace headsweep {

using SettingTable = std::vector<const Setting*>;  // one a key, schema order; must outlive the resolver

// All defaults.
SettingTable DefaultSettings();

// Not thread-safe. Complaints carry the position of the setting to blame; those about points of a grid are
// merged.
class Resolver {
 public:
  explicit Resolver(SettingTable settings, Complaints& complaints);

  void Set(int key, const Setting* setting) {
    settings_[static_cast<std::size_t>(key)] = setting;
    Forget();
  }
  void SetAll(const SettingTable& settings) {
    settings_ = settings;
    Forget();
  }

  // The value of one key at this point, or nullptr (then somebody complained). Valid until the next Set.
  const Value* Get(int key);

  // The value of an expression that belongs to no key (a condition); nullopt: complained.
  std::optional<double> Evaluate(const Expression& expression, Position at, const char* what);

  // All keys and the checks between them; false: complained. Leaves kind, id, parent and prune.order/seed as
  // they are set.
  bool Resolve(StageConfig& config);

  // Where to point at for a key: its own setting, or for a default the latest of the keys that it depends on.
  Position Blame(int key) const;

 private:
  enum class State : unsigned char { kUnknown, kRunning, kKnown, kFailed };
  void Forget();
  void EvaluateKey(int key, const Expression& expression);
  std::string Values(const Expression& expression);  // "embed = 128, heads = 3"
  bool Known(std::initializer_list<const char*> keys);
  bool ExpandHeads(StageConfig& config);
  bool CheckTogether(const StageConfig& config);
  void Complain(std::initializer_list<const char*> keys, std::string message);

  SettingTable settings_;
  Complaints& complaints_;
  std::vector<State> states_;
  std::vector<Value> computed_;  // of expressions
  std::vector<int> running_;     // keys under evaluation, outermost first
};

}  // namespace headsweep
