#include "cluster/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace headsweep {
namespace {

constexpr int kMostGpus = 4096;  // of a range: beyond any node

std::string_view Trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::vector<std::string_view> Split(std::string_view list) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto comma = list.find(',');
    parts.push_back(Trim(list.substr(0, comma)));
    if (comma == std::string_view::npos) return parts;
    list.remove_prefix(comma + 1);
  }
}

// The number that text begins with, as strtol reads it; nullopt where there is none, or a negative one.
std::optional<int> LeadingNumber(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  return number;
}

// The entry as CUDA understands it in a list of this kind; "" if it is invalid and ends the list.
std::string ReadEntry(std::string_view entry, std::string_view kind) {
  if (!kind.empty()) return entry.starts_with(kind) && entry.size() > kind.size() ? std::string(entry) : "";
  const std::optional<int> number = LeadingNumber(entry);
  return number ? std::to_string(*number) : "";
}

// "0-3,6" and "[0-3]" as "0,1,2,3,6"; anything else is left as it is.
std::string ExpandRanges(std::string_view list) {
  if (list.starts_with('[') && list.ends_with(']')) list = list.substr(1, list.size() - 2);
  std::vector<std::string> expanded;
  for (const std::string_view part : Split(list)) {
    const auto dash = part.find('-', 1);
    const int first = LeadingNumber(part).value_or(-1);
    const int last = dash == std::string_view::npos ? -1 : LeadingNumber(part.substr(dash + 1)).value_or(-1);
    if (first < 0 || last < first || last - first >= kMostGpus) {
      expanded.emplace_back(part);
      continue;
    }
    for (int i = first; i <= last; ++i) expanded.push_back(std::to_string(i));
  }
  return fmt::format("{}", fmt::join(expanded, ","));
}

}  // namespace

VisibleGpus ParseVisibleGpus(std::string_view value) {
  VisibleGpus visible;
  visible.all = false;
  visible.value = value;
  const std::string_view list = Trim(value);
  if (list.empty()) return visible;
  std::string_view kind;
  for (const std::string_view prefix : {"GPU-", "MIG-"})
    if (list.starts_with(prefix)) kind = prefix;
  for (const std::string_view part : Split(list)) {
    std::string entry = ReadEntry(part, kind);
    if (entry.empty()) {
      // "-1" and "NoDevFiles" are how one says "no more".
      if (part != "-1" && part != "NoDevFiles")
        visible.warning = fmt::format("\"{}\" names no GPU, and CUDA looks at nothing from there on", part);
      break;
    }
    if (std::find(visible.entries.begin(), visible.entries.end(), entry) != visible.entries.end()) {
      visible.warning = fmt::format("\"{}\" comes twice, which makes CUDA hide every GPU", part);
      visible.entries.clear();
      break;
    }
    visible.entries.push_back(std::move(entry));
  }
  return visible;
}

VisibleGpus FindVisibleGpus(const EnvironmentLookup& environment) {
  struct Source {
    const char* variable;
    bool of_slurm;
  };
  constexpr Source kSources[] = {{"CUDA_VISIBLE_DEVICES", false},
                                 {"SLURM_STEP_GPUS", true},
                                 {"SLURM_JOB_GPUS", true},
                                 {"GPU_DEVICE_ORDINAL", false}};
  for (const Source& source : kSources) {
    const char* value = environment(source.variable);
    if (value == nullptr || (source.of_slurm && Trim(value).empty())) continue;
    VisibleGpus visible = ParseVisibleGpus(source.of_slurm ? ExpandRanges(Trim(value)) : value);
    visible.variable = source.variable;
    visible.value = value;
    return visible;
  }
  return {};
}

std::vector<std::pair<std::string, std::string>> GpuEnvironment(const VisibleGpus& visible) {
  if (visible.all || visible.variable == "CUDA_VISIBLE_DEVICES") return {};
  return {{"CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(visible.entries, ","))}};
}

std::vector<std::string> GpuEntries(const VisibleGpus& visible, const GpuReport& report) {
  std::vector<std::string> entries;
  for (const GpuDevice& device : report.devices) {
    const std::size_t index = static_cast<std::size_t>(device.index);
    if (visible.all) {
      entries.push_back(std::to_string(device.index));
    } else if (index < visible.entries.size()) {
      entries.push_back(visible.entries[index]);
    }
  }
  return entries;
}

std::vector<std::string> ShareOfAgent(const std::vector<std::string>& entries, int rank_on_host,
                                      int ranks_on_host, int gpus_on_node) {
  const std::size_t seen = entries.size();
  const std::size_t ranks = static_cast<std::size_t>(std::max(1, ranks_on_host));
  const std::size_t rank = static_cast<std::size_t>(std::clamp(rank_on_host, 0, static_cast<int>(ranks) - 1));
  const std::size_t there = std::max(seen, static_cast<std::size_t>(std::max(0, gpus_on_node)));
  if (seen == 0) return {};
  // So many agents see the same GPUs; with --gpu-bind, neighbours do.
  const std::size_t sharing = std::max<std::size_t>(1, seen * ranks / there);
  const std::size_t position = rank % sharing;
  const auto begin = entries.begin();
  return {begin + static_cast<std::ptrdiff_t>(seen * position / sharing),
          begin + static_cast<std::ptrdiff_t>(seen * (position + 1) / sharing)};
}

std::string DescribeGpus(const GpuReport& report) {
  if (report.devices.empty()) return "no GPU";
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  std::string text = fmt::format("{} GPU{}: ", report.devices.size(), report.devices.size() == 1 ? "" : "s");
  for (const GpuDevice& device : report.devices)
    text += fmt::format("{}{} ({:.1f} of {:.1f} GiB free, compute capability {}{})",
                        &device == report.devices.data() ? "" : ", ", device.name,
                        static_cast<double>(device.free_bytes) / kGiB,
                        static_cast<double>(device.memory_bytes) / kGiB, device.compute_capability,
                        device.mig ? ", MIG instance" : "");
  return text + fmt::format("; driver for CUDA {}, built with {}", report.driver, report.runtime);
}

}  // namespace headsweep
