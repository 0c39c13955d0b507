#include "cluster/slurm/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace headsweep {
namespace {

constexpr std::string_view kMark = "headsweep|";

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view Trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// The fields of one of our lines, at most `most`: the last one keeps what separators it holds. Empty: not one of ours.
std::vector<std::string> Fields(std::string_view line, std::size_t most) {
  std::vector<std::string> fields;
  if (!line.starts_with(kMark)) return fields;
  line.remove_prefix(kMark.size());
  while (fields.size() + 1 < most) {
    const std::size_t end = line.find('|');
    if (end == std::string_view::npos) break;
    fields.emplace_back(Trim(line.substr(0, end)));
    line.remove_prefix(end + 1);
  }
  fields.emplace_back(Trim(line));
  return fields;
}

std::optional<long> Number(std::string_view text) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::string KnownOrEmpty(const std::string& text) {
  return text == "N/A" || text == "(null)" || text == "Unknown" ? "" : text;
}

}  // namespace

const char* ToString(JobPhase phase) {
  switch (phase) {
    case JobPhase::kPending:
      return "pending";
    case JobPhase::kRunning:
      return "running";
    case JobPhase::kEnding:
      return "ending";
    case JobPhase::kOver:
      return "over";
  }
  return "over";
}

JobPhase PhaseOf(std::string_view state) {
  for (const char* pending : {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
    if (state == pending) return JobPhase::kPending;
  for (const char* ending : {"COMPLETING", "STAGE_OUT", "SIGNALING"})
    if (state == ending) return JobPhase::kEnding;
  for (const char* over : {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE",
                           "OUT_OF_MEMORY", "PREEMPTED", "REVOKED"})
    if (state == over) return JobPhase::kOver;
  return JobPhase::kRunning;
}

std::vector<SlurmJob> ParseJobs(std::string_view output) {
  std::vector<SlurmJob> jobs;
  for (const std::string_view line : Lines(output)) {
    const std::vector<std::string> fields = Fields(line, 7);
    if (fields.size() != 7) continue;
    SlurmJob job;
    job.id = fields[0];
    job.state = fields[1];
    job.reason = fields[2];
    job.nodes = KnownOrEmpty(fields[3]);
    job.seconds_left = ParseDuration(fields[4]);
    job.start = KnownOrEmpty(fields[5]);
    job.comment = KnownOrEmpty(fields[6]);
    job.phase = PhaseOf(job.state);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

std::vector<SlurmPartition> ParsePartitions(std::string_view output) {
  std::vector<SlurmPartition> partitions;
  for (const std::string_view line : Lines(output)) {
    const std::vector<std::string> fields = Fields(line, 6);
    if (fields.size() != 6) continue;
    SlurmPartition partition;
    partition.name = fields[0];
    partition.is_default = partition.name.ends_with('*');
    if (partition.is_default) partition.name.pop_back();
    partition.is_up = fields[1] == "up";
    // "allocated/idle/other/total"
    std::string_view counts = fields[2];
    std::vector<int> numbers;
    while (!counts.empty()) {
      const std::size_t end = std::min(counts.find('/'), counts.size());
      numbers.push_back(static_cast<int>(Number(counts.substr(0, end)).value_or(0)));
      counts.remove_prefix(std::min(end + 1, counts.size()));
    }
    if (numbers.size() == 4) partition.idle_nodes = numbers[1], partition.nodes = numbers[3];
    // "64+" where nodes differ: at least so many
    std::string_view cpus = fields[3];
    if (cpus.ends_with('+')) cpus.remove_suffix(1);
    partition.cpus_per_node = static_cast<int>(Number(cpus).value_or(0));
    partition.gpus = fields[4].find("gpu") == std::string::npos ? "" : fields[4];
    partition.time_limit = fields[5];
    const auto known = std::find_if(partitions.begin(), partitions.end(),
                                    [&](const auto& other) { return other.name == partition.name; });
    if (known == partitions.end()) {
      partitions.push_back(std::move(partition));
      continue;
    }
    known->nodes += partition.nodes;
    known->idle_nodes += partition.idle_nodes;
    known->cpus_per_node = std::min(known->cpus_per_node, partition.cpus_per_node);
    if (known->gpus.empty()) known->gpus = partition.gpus;
  }
  return partitions;
}

std::map<std::string, std::string> ParseConfig(std::string_view output) {
  std::map<std::string, std::string> config;
  for (const std::string_view line : Lines(output)) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    config.emplace(Trim(line.substr(0, equals)), Trim(line.substr(equals + 1)));
  }
  return config;
}

std::optional<std::string> ParseSubmitted(std::string_view output) {
  std::optional<std::string> id;
  for (std::string_view line : Lines(output)) {
    line = Trim(line);
    const std::string_view number = line.substr(0, line.find(';'));
    if (line.find(' ') == std::string_view::npos && Number(number)) id = std::string(number);
  }
  return id;
}

std::optional<double> ParseDuration(std::string_view text) {
  double days = 0;
  const std::size_t dash = text.find('-');
  const bool has_days = dash != std::string_view::npos;
  if (has_days) {
    const auto number = Number(text.substr(0, dash));
    if (!number) return std::nullopt;
    days = static_cast<double>(*number);
    text.remove_prefix(dash + 1);
  }
  std::vector<double> parts;
  while (true) {
    const std::size_t end = std::min(text.find(':'), text.size());
    const auto number = Number(text.substr(0, end));
    if (!number) return std::nullopt;
    parts.push_back(static_cast<double>(*number));
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
  }
  if (parts.size() > 3) return std::nullopt;
  if (has_days) {  // hours[:minutes[:seconds]]
    parts.resize(3, 0);
  } else if (parts.size() == 1) {  // minutes
    parts = {0, parts[0], 0};
  } else if (parts.size() == 2) {  // minutes:seconds
    parts.insert(parts.begin(), 0);
  }
  return ((days * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2];
}

std::string FormatSlurmTime(double seconds) {
  const long whole = std::lround(std::max(0.0, seconds));
  const std::string clock = fmt::format("{:02}:{:02}:{:02}", whole / 3600 % 24, whole / 60 % 60, whole % 60);
  return whole < 86400 ? clock : fmt::format("{}-{}", whole / 86400, clock);
}

std::string Complaint(std::string_view output) {
  std::string complaint;
  for (const std::string_view line : Lines(output)) {
    if (line.starts_with(kMark) || Trim(line).empty()) continue;
    complaint += (complaint.empty() ? "" : "; ") + std::string(Trim(line));
  }
  return complaint;
}

}  // namespace headsweep
