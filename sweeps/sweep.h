// Sweep: a sweep file, checked, with its points computed on demand. LANGUAGE.md is the reference of the
// language. Points are numbered: first the product of the axes (mixed radix, the last axis fastest), then
// those of [[include]]. Nothing is expanded in advance, so a grid of 2^30 points costs no more than its axes.
// Not thread-safe: expressions and the resolver keep state between calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sweeps/resolve.h"
#include "sweeps/settings.h"
#include "sweeps/stage_config.h"

namespace headsweep {

// One dimension: a key of [grid], or the keys of one [[zip]], which move together.
struct SweepAxis {
  std::string name;                        // "heads"; unique within the sweep
  Position at;                             // of the key, or of the [[zip]]
  std::vector<int> keys;                   // schema indices
  std::vector<std::vector<Setting>> rows;  // (values, keys); no two rows are written the same
  int label_key =
      0;  // position in keys of the key that labels the rows (all its values differ); -1: all keys together
  std::size_t size() const { return rows.size(); }
};

struct ExcludeRule {
  std::shared_ptr<const Expression> when;
  Position at;
};

// [[include]]: a small product of its own; keys that it does not name have their value outside [grid] and
// [[zip]].
struct IncludeBlock {
  Position at;
  std::vector<SweepAxis> axes;
  std::uint64_t points = 1;
};

struct PruneOrders {
  std::vector<std::string> orders;
  std::vector<std::uint64_t> random_seeds;  // of order "random"
  std::size_t stages_per_trial() const;
};

class Sweep {
 public:
  // Throws ConfigError with every complaint: file:line:column. Small grids (up to kCheckedWhole points) are
  // checked point by point, of larger ones each value of each axis and a sample of points; the rest when they
  // are asked for.
  static Sweep Load(const std::string& path);
  static Sweep Parse(const std::string& text, const std::string& file);
  static constexpr std::uint64_t kCheckedWhole = 20'000;
  static constexpr std::uint64_t kMostEnumerated = 1 << 22;  // combinations tried to count exclusions

  const std::string& name() const;
  const std::string& file() const;
  const std::string& text() const;
  const std::vector<SweepAxis>& axes() const;
  const std::vector<ExcludeRule>& excludes() const;
  const std::optional<PruneOrders>& prune() const;  // nullopt: no [prune]
  const std::vector<Diagnostic>& warnings() const;

  std::uint64_t grid_count() const;     // product of the axes' sizes, before exclusion
  std::uint64_t include_count() const;  // points of [[include]]
  std::uint64_t point_count() const { return grid_count() + include_count(); }

  // Grid points that no rule excludes. Only the axes that a rule depends on are enumerated; nullopt: these
  // alone have more than kMostEnumerated combinations, so the number is not known (at most grid_count()).
  std::optional<std::uint64_t> CountNotExcluded() const;
  // Grid points that one rule excludes by itself, and up to `examples` of them.
  struct Exclusion {
    std::uint64_t count = 0;
    std::vector<std::uint64_t> examples;  // point numbers
  };
  std::optional<Exclusion> Explain(std::size_t rule, std::size_t examples) const;

  bool IsInclude(std::uint64_t index) const { return index >= grid_count(); }
  std::vector<int> AxisIndices(std::uint64_t index) const;  // of a grid point, one an axis
  SettingTable SettingsAt(std::uint64_t index) const;       // what is written for each key there
  std::optional<StageConfig> PointAt(
      std::uint64_t index) const;                        // a train stage without identity; nullopt: excluded
  std::string DescribePoint(std::uint64_t index) const;  // "heads = 4, head_size = embed / heads, seed = 1"

  struct Data;  // sweep_data.h

 private:
  explicit Sweep(std::shared_ptr<const Data> data);
  std::shared_ptr<const Data> data_;
};

}  // namespace headsweep
