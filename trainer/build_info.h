// Which program this is: baked in by the build (build_info.cc.in), in a file of its own so that a new commit
// recompiles nothing else.
#pragma once

#include <string>

namespace headsweep {

std::string BuildVersion();  // "0.1.0"
std::string
BuildCommit();  // 40 hex digits, "-dirty" appended when files differed from it, or "unknown" outside git

}  // namespace headsweep
