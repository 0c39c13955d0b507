#include "launcher/nearest.h"

#include <algorithm>

namespace headsweep {
namespace {

// Optimal string alignment distance, three rows of the usual table.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string NearestName(std::string_view typed, const std::vector<std::string>& candidates) {
  std::string nearest;
  std::size_t smallest = 0;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = EditDistance(typed, candidate);
    const std::size_t far = std::max<std::size_t>(2, std::max(typed.size(), candidate.size()) / 3);
    if (distance > far || distance >= candidate.size()) continue;
    if (nearest.empty() || distance < smallest) {
      nearest = candidate;
      smallest = distance;
    }
  }
  return nearest;
}

}  // namespace headsweep
