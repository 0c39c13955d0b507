#include "launcher/hang_report.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace headsweep {
namespace {

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string DescribeThreads(pid_t pid) {
  std::string report = fmt::format("threads of process {}:\n", pid);
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    const std::string stat = FirstLine(thread.path() / "stat");
    const std::size_t close = stat.rfind(')');
    if (close == std::string::npos) continue;
    std::istringstream fields(stat.substr(close + 1));
    std::string field, state;
    long user_ticks = 0, system_ticks = 0;
    for (int index = 3; index <= 15 && fields >> field; ++index) {  // proc(5)
      if (index == 3) state = field;
      if (index == 14) user_ticks = std::atol(field.c_str());
      if (index == 15) system_ticks = std::atol(field.c_str());
    }
    report += fmt::format("  {} \"{}\" state {} waits in {} user {} ticks, system {} ticks\n",
                          thread.path().filename().string(), FirstLine(thread.path() / "comm"), state,
                          FirstLine(thread.path() / "wchan"), user_ticks, system_ticks);
  }
  return report;
}

}  // namespace headsweep
