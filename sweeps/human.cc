#include <fmt/format.h>

#include <cmath>

#include "sweeps/expansion.h"

namespace headsweep {

std::string HumanBytes(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string HumanSeconds(double seconds) {
  if (!(seconds > 0)) return "?";
  if (seconds < 99.5) return fmt::format("{:.{}f} s", seconds, seconds < 9.95 ? 1 : 0);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 48 * 3600.0) return fmt::format("{:.1f} h", seconds / 3600);
  return HumanCount(static_cast<std::uint64_t>(std::ceil(seconds / 86400))) + " days";
}

std::string HumanCount(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

}  // namespace headsweep
