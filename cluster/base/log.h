// The log: one line per message on stderr (or a file), stamped with time, level and the process's own label.
// spdlog stays behind this header. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <string>

namespace headsweep {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Call once at the start of main. label: e.g. "coordinator", "agent 2", "trainer 3fa0…/1". file: "" = stderr.
// HEADSWEEP_LOG=debug|info|warning|error overrides the level.
void StartLog(const std::string& label, LogLevel level = LogLevel::kInfo, const std::string& file = "");

void Log(LogLevel level, const std::string& message);

template <class... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace headsweep
