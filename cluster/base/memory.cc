#include "cluster/base/memory.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>

namespace headsweep {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::optional<std::int64_t> FirstNumber(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (file >> value) return value;  // "max" is not a number: no limit
  return std::nullopt;
}

// A "name: value kB" line of a /proc file, in bytes.
std::optional<std::int64_t> ProcKilobytes(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  std::int64_t value = 0;
  while (file >> word) {
    if (word == name && file >> value) return value * 1024;
  }
  return std::nullopt;
}

std::int64_t RoomInControlGroup(const std::string& limit_file, const std::string& usage_file) {
  const auto limit = FirstNumber(limit_file), usage = FirstNumber(usage_file);
  if (!limit || !usage || *limit <= 0) return kUnlimited;
  return std::max<std::int64_t>(0, *limit - *usage);
}

// The control groups this process is in; inside a container the mount point itself is the group.
std::int64_t RoomInControlGroups() {
  std::int64_t room =
      std::min(RoomInControlGroup("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
               RoomInControlGroup("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                  "/sys/fs/cgroup/memory/memory.usage_in_bytes"));
  std::ifstream groups("/proc/self/cgroup");  // lines "0::/path" (v2) or "5:memory:/path" (v1)
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty()) {
      const std::string group = "/sys/fs/cgroup" + path;
      room = std::min(room, RoomInControlGroup(group + "/memory.max", group + "/memory.current"));
    } else if (controllers.find("memory") != std::string::npos) {
      const std::string group = "/sys/fs/cgroup/memory" + path;
      room = std::min(room,
                      RoomInControlGroup(group + "/memory.limit_in_bytes", group + "/memory.usage_in_bytes"));
    }
  }
  return room;
}

std::int64_t RoomInAddressSpace() {
  struct rlimit limit;
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const auto used = ProcKilobytes("/proc/self/status", "VmSize:");
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(limit.rlim_cur) - used.value_or(0));
}

std::int64_t LimitFromEnvironment() {
  const char* text = std::getenv("HEADSWEEP_MEMORY_LIMIT");
  if (text == nullptr) return kUnlimited;
  const std::string value = text;
  std::int64_t bytes = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), bytes);
  return error == std::errc() && end == value.data() + value.size() && bytes >= 0 ? bytes : kUnlimited;
}

}  // namespace

std::int64_t AvailableMemoryBytes() {
  return std::min({ProcKilobytes("/proc/meminfo", "MemAvailable:").value_or(kUnlimited),
                   RoomInControlGroups(), RoomInAddressSpace(), LimitFromEnvironment()});
}

std::int64_t PeakMemoryBytes() {
  struct rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

std::string FormatBytes(std::int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace headsweep
