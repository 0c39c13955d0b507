// Short ways to get from sweep text to points in tests.
#pragma once

#include <string>
#include <vector>

#include "cluster/base/errors.h"
#include "sweeps/plan.h"
#include "sweeps/sweep.h"

namespace headsweep::testing {

inline const std::string kTop = "name = \"t\"\n";

// Every complaint about a text, one a line, or "" if there is none.
inline std::string ComplaintsOf(const std::string& text, const std::string& file = "s.toml") {
  try {
    Sweep::Parse(text, file);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// The points that are not excluded, as they are written.
inline std::vector<std::string> PointsOf(const std::string& text) {
  const Sweep sweep = Sweep::Parse(text, "s.toml");
  std::vector<std::string> points;
  for (std::uint64_t i = 0; i < sweep.point_count(); ++i) {
    if (sweep.PointAt(i)) points.push_back(sweep.DescribePoint(i));
  }
  return points;
}

inline Plan PlanOf(const std::string& text) {
  return MakePlan(Sweep::Parse(text, "s.toml"), [](const TaskConfig& task) { return "data-" + task.corpus; });
}

}  // namespace headsweep::testing
