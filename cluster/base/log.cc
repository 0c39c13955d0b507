#include "cluster/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

LogLevel LevelFromEnvironment(LogLevel fallback) {
  const char* text = std::getenv("HEADSWEEP_LOG");
  if (text == nullptr || *text == '\0') return fallback;
  const std::string name = text;
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  throw ConfigError(fmt::format("HEADSWEEP_LOG={}: expected debug, info, warning or error", name));
}

}  // namespace

void StartLog(const std::string& label, LogLevel level, const std::string& file) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file, /*truncate=*/false);
  }
  auto logger = std::make_shared<spdlog::logger>("headsweep", sink);
  logger->set_level(ToSpdlog(LevelFromEnvironment(level)));
  logger->set_pattern(fmt::format("%Y-%m-%dT%H:%M:%S.%e %^%l%$ [{}] %v", label));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
}

void Log(LogLevel level, const std::string& message) { spdlog::log(ToSpdlog(level), "{}", message); }

}  // namespace headsweep
