#include "sweeps/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "cluster/base/file_system.h"
#include "sweeps/sweep_data.h"

namespace headsweep {
namespace {

constexpr int kSampledPoints = 2000;

SettingTable PointSettings(const Sweep::Data& data, std::uint64_t index) {
  SettingTable settings = data.base;
  if (index < data.grid_count) {
    PutRows(data.axes, MixedRadix(data.axes, index), settings);
    return settings;
  }
  index -= data.grid_count;
  for (const IncludeBlock& block : data.includes) {
    if (index < block.points) {
      PutRows(block.axes, MixedRadix(block.axes, index), settings);
      return settings;
    }
    index -= block.points;
  }
  HEADSWEEP_CHECK(false, "point out of range");
}

void CheckPoint(const Sweep::Data& data, std::uint64_t index, Resolver& resolver) {
  resolver.SetAll(PointSettings(data, index));
  if (index < data.grid_count && IsExcluded(data, resolver)) return;
  StageConfig config;
  resolver.Resolve(config);
}

// Every value of every axis once, the others at their first; then a sample that is the same in every run.
void CheckLargeGrid(const Sweep::Data& data, Resolver& resolver) {
  std::uint64_t stride = data.grid_count;
  for (const SweepAxis& axis : data.axes) {
    stride /= axis.size();
    const std::uint64_t checked = std::min<std::uint64_t>(axis.size(), Sweep::kCheckedWhole);
    for (std::uint64_t i = 0; i < checked; ++i) CheckPoint(data, i * stride, resolver);
  }
  std::mt19937_64 random(20);
  for (int i = 0; i < kSampledPoints; ++i) CheckPoint(data, random() % data.grid_count, resolver);
}

}  // namespace

void PutRows(const std::vector<SweepAxis>& axes, const std::vector<int>& indices, SettingTable& settings) {
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const auto& row = axes[a].rows[static_cast<std::size_t>(indices[a])];
    for (std::size_t k = 0; k < row.size(); ++k)
      settings[static_cast<std::size_t>(axes[a].keys[k])] = &row[k];
  }
}

std::vector<int> MixedRadix(const std::vector<SweepAxis>& axes, std::uint64_t index) {
  std::vector<int> indices(axes.size());
  for (std::size_t a = axes.size(); a-- > 0;) {
    indices[a] = static_cast<int>(index % axes[a].size());
    index /= axes[a].size();
  }
  return indices;
}

void CheckPoints(const Sweep::Data& data, Complaints& complaints) {
  Resolver resolver(data.base, complaints);
  if (data.grid_count > Sweep::kCheckedWhole) {
    CheckLargeGrid(data, resolver);
  } else {
    for (std::uint64_t i = 0; i < data.grid_count; ++i) CheckPoint(data, i, resolver);
  }
  const std::uint64_t included = std::min(data.include_count, Sweep::kCheckedWhole);
  for (std::uint64_t i = 0; i < included; ++i) CheckPoint(data, data.grid_count + i, resolver);
  if (data.excludes.empty() || data.include_count > 0) return;
  bool failed = false;
  const auto left = CountNotExcluded(data, complaints, &failed);
  if (left == 0 && !failed) {
    complaints.Add(data.excludes.back().at,
                   fmt::format("the [[exclude]] rules leave none of the {} points", data.grid_count));
  }
}

void MakeCorpusAbsolute(const std::string& sweep_file, StageConfig& config) {
  if (config.task.corpus.find('/') == std::string::npos) return;
  const auto directory = std::filesystem::absolute(sweep_file).parent_path();
  config.task.corpus = (directory / config.task.corpus).lexically_normal().string();
}

std::size_t PruneOrders::stages_per_trial() const {
  std::size_t count = 0;
  for (const std::string& order : orders) count += order == "random" ? random_seeds.size() : 1;
  return count;
}

Sweep::Sweep(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

Sweep Sweep::Load(const std::string& path) {
  std::string text;
  try {
    text = FileSystem::Real().ReadFile(path);
  } catch (const IoError& error) {
    throw ConfigError(error.what());  // a wrong path on the command line
  }
  return Parse(text, path);
}

Sweep Sweep::Parse(const std::string& text, const std::string& file) {
  auto data = std::make_shared<Data>();
  data->file = file;
  data->text = text;
  Complaints complaints(file);
  ReadSweep(text, *data, complaints);
  CheckPoints(*data, complaints);
  complaints.ThrowIfAny();
  return Sweep(std::move(data));
}

const std::string& Sweep::name() const { return data_->name; }
const std::string& Sweep::file() const { return data_->file; }
const std::string& Sweep::text() const { return data_->text; }
const std::vector<SweepAxis>& Sweep::axes() const { return data_->axes; }
const std::vector<ExcludeRule>& Sweep::excludes() const { return data_->excludes; }
const std::optional<PruneOrders>& Sweep::prune() const { return data_->prune; }
const std::vector<Diagnostic>& Sweep::warnings() const { return data_->warnings; }
std::uint64_t Sweep::grid_count() const { return data_->grid_count; }
std::uint64_t Sweep::include_count() const { return data_->include_count; }

std::optional<std::uint64_t> Sweep::CountNotExcluded() const {
  Complaints complaints(data_->file);
  bool failed = false;
  const auto left = headsweep::CountNotExcluded(*data_, complaints, &failed);
  complaints.ThrowIfAny();
  return left;
}

std::optional<Sweep::Exclusion> Sweep::Explain(std::size_t rule, std::size_t examples) const {
  Complaints complaints(data_->file);
  auto exclusion = ExplainRule(*data_, rule, examples, complaints);
  complaints.ThrowIfAny();
  return exclusion;
}

std::vector<int> Sweep::AxisIndices(std::uint64_t index) const {
  HEADSWEEP_CHECK(index < data_->grid_count, "point {} is not of the grid", index);
  return MixedRadix(data_->axes, index);
}

SettingTable Sweep::SettingsAt(std::uint64_t index) const { return PointSettings(*data_, index); }

std::optional<StageConfig> Sweep::PointAt(std::uint64_t index) const {
  Complaints complaints(data_->file);
  Resolver resolver(PointSettings(*data_, index), complaints);
  const bool excluded = !IsInclude(index) && IsExcluded(*data_, resolver);
  StageConfig config;
  if (!excluded) resolver.Resolve(config);
  complaints.ThrowIfAny();
  if (excluded) return std::nullopt;
  MakeCorpusAbsolute(data_->file, config);
  return config;
}

std::string Sweep::DescribePoint(std::uint64_t index) const {
  const SettingTable settings = PointSettings(*data_, index);
  std::string text;
  const auto add = [&](int key) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", ShortName(Key(key)),
                        Label(*settings[static_cast<std::size_t>(key)]));
  };
  for (const SweepAxis& axis : data_->axes) {
    for (const int key : axis.keys) add(key);
  }
  if (IsInclude(index)) {  // keys of the include that are no axis
    for (int key = 0; key < KeyCount(); ++key) {
      const bool is_axis = std::any_of(data_->axes.begin(), data_->axes.end(), [&](const SweepAxis& axis) {
        return std::find(axis.keys.begin(), axis.keys.end(), key) != axis.keys.end();
      });
      const auto k = static_cast<std::size_t>(key);
      if (!is_axis && settings[k] != data_->base[k]) add(key);
    }
  }
  return text.empty() ? "the only point" : text;
}

}  // namespace headsweep
