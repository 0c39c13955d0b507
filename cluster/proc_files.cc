#include "cluster/proc_files.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <sstream>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"

namespace headsweep {
namespace {

std::optional<std::string> ReadIfThere(const std::string& path) {
  try {
    return FileSystem::Real().ReadFile(path);
  } catch (const IoError&) {
    return std::nullopt;  // absent, or not for us: then nothing is known
  }
}

std::optional<std::int64_t> ParseNumber(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> ReadNumber(const std::string& path) {
  const auto text = ReadIfThere(path);
  return text ? ParseNumber(*text) : std::nullopt;
}

// "key : value" -> value, of the first line with that key.
std::string Field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t key_end = line.find_last_not_of(" \t", colon == 0 ? 0 : colon - 1);
    if (line.substr(0, key_end + 1) != key) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// Calls visit(directory) for the group at mount/path and every group above it, mount last. A container often
// shows only its own part of the tree, so directories that are not there are visited too (and found empty).
void ForGroupAndParents(const std::string& mount, std::string path,
                        const std::function<void(const std::string&)>& visit) {
  while (path.size() > 1) {
    visit(mount + path);
    path = ParentPath(path);
  }
  visit(mount);
}

void TakeLower(std::optional<double>& limit, double value) {
  if (value > 0 && (!limit || value < *limit)) limit = value;
}

void TakeMemory(GroupLimits& limits, const std::string& directory, const char* limit_name,
                const char* used_name) {
  constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;  // version 1 writes a number near 2^63 for "none"
  const auto bytes = ReadNumber(JoinPath(directory, limit_name));
  if (!bytes || *bytes <= 0 || *bytes >= kNoLimit || (limits.memory_bytes && *bytes >= *limits.memory_bytes))
    return;
  limits.memory_bytes = *bytes;
  limits.memory_used_bytes = ReadNumber(JoinPath(directory, used_name)).value_or(0);
}

void ReadVersion2(GroupLimits& limits, const std::string& mount, const std::string& path) {
  ForGroupAndParents(mount, path, [&](const std::string& directory) {
    if (const auto text = ReadIfThere(JoinPath(directory, "cpu.max"))) {  // "max 100000" or "200000 100000"
      std::istringstream words(*text);
      double quota = 0, period = 0;
      if (words >> quota >> period && period > 0) TakeLower(limits.cpus, quota / period);
    }
    TakeMemory(limits, directory, "memory.max", "memory.current");
  });
}

void ReadVersion1Cpu(GroupLimits& limits, const std::string& mount, const std::string& path) {
  ForGroupAndParents(mount, path, [&](const std::string& directory) {
    const auto quota = ReadNumber(JoinPath(directory, "cpu.cfs_quota_us"));
    const auto period = ReadNumber(JoinPath(directory, "cpu.cfs_period_us"));
    if (quota && period && *quota > 0 && *period > 0)
      TakeLower(limits.cpus, static_cast<double>(*quota) / static_cast<double>(*period));
  });
}

}  // namespace

ProcessorInfo ReadProcessor(const std::string& root) {
  ProcessorInfo processor;
  const std::string text = ReadIfThere(root + "/proc/cpuinfo").value_or("");
  processor.model = Field(text, "model name");
  const std::string flags = Field(text, "flags");
  std::istringstream words(flags.empty() ? Field(text, "Features") : flags);  // x86, ARM
  for (std::string flag; words >> flag;) processor.flags.push_back(flag);
  std::sort(processor.flags.begin(), processor.flags.end());
  return processor;
}

MemoryInfo ReadMemory(const std::string& root) {
  const std::string text = ReadIfThere(root + "/proc/meminfo").value_or("");
  const auto bytes = [&](const char* key) { return ParseNumber(Field(text, key)).value_or(0) * 1024; };
  MemoryInfo memory{bytes("MemTotal"), bytes("MemAvailable")};
  const GroupLimits limits = ReadGroupLimits(root);
  if (limits.memory_bytes) {
    const std::int64_t left = std::max<std::int64_t>(0, *limits.memory_bytes - limits.memory_used_bytes);
    if (memory.available_bytes == 0 || left < memory.available_bytes) memory.available_bytes = left;
  }
  return memory;
}

GroupLimits ReadGroupLimits(const std::string& root) {
  GroupLimits limits;
  const std::string mount = root + "/sys/fs/cgroup";
  std::istringstream lines(ReadIfThere(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {  // "hierarchy:controllers:path"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    const std::string padded = "," + controllers + ",";
    if (controllers.empty()) ReadVersion2(limits, mount, path);
    if (padded.find(",cpu,") != std::string::npos)
      ReadVersion1Cpu(limits, JoinPath(mount, controllers), path);
    if (padded.find(",memory,") != std::string::npos)
      ForGroupAndParents(JoinPath(mount, controllers), path, [&](const std::string& directory) {
        TakeMemory(limits, directory, "memory.limit_in_bytes", "memory.usage_in_bytes");
      });
  }
  return limits;
}

std::string ReadHugePages(const std::string& root) {
  const std::string text = ReadIfThere(root + "/sys/kernel/mm/transparent_hugepage/enabled").value_or("");
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']', begin == std::string::npos ? 0 : begin);
  return begin == std::string::npos || end == std::string::npos ? ""
                                                                : text.substr(begin + 1, end - begin - 1);
}

}  // namespace headsweep
