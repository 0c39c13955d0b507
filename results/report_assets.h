// The report's style sheet, scripts and chart specifications (results/report/), compiled in.
#pragma once

#include <string_view>

namespace headsweep::report {

// name: as in results/report/, "page.css", "charts/quality.json". Names that are not there end the process.
std::string_view Asset(std::string_view name);

}  // namespace headsweep::report
