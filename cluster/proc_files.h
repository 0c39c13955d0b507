// What Linux tells about processor, memory and control groups, read from /proc and /sys. Plain parsing; root
// is put before every path, so that tests can show another machine. What is not there is "not known", never
// an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headsweep {

struct ProcessorInfo {
  std::string model;               // "" = not known
  std::vector<std::string> flags;  // as /proc/cpuinfo spells them ("avx2", "avx512f", "asimd", …), sorted
};
ProcessorInfo ReadProcessor(const std::string& root);

struct MemoryInfo {
  std::int64_t total_bytes = 0;      // 0 = not known
  std::int64_t available_bytes = 0;  // what a process can still take without swapping
};
MemoryInfo ReadMemory(const std::string& root);

// Limits of this process's control groups, the tightest of its group and all groups above it (version 1 and
// 2).
struct GroupLimits {
  std::optional<double> cpus;  // CPU seconds a second
  std::optional<std::int64_t> memory_bytes;
  std::int64_t memory_used_bytes = 0;  // by the group that has the memory limit
};
GroupLimits ReadGroupLimits(const std::string& root);

// The word in brackets of transparent_hugepage/enabled: "always", "madvise" or "never"; "" = not known.
std::string ReadHugePages(const std::string& root);

}  // namespace headsweep
