#include "cluster/base/errors.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace headsweep {
namespace {

std::string Join(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& d : diagnostics) text += (text.empty() ? "" : "\n") + ToString(d);
  return text;
}

}  // namespace

std::string ToString(const Diagnostic& d) {
  std::string text = d.file;
  if (d.line > 0) text += fmt::format(":{}", d.line);
  if (d.line > 0 && d.column > 0) text += fmt::format(":{}", d.column);
  return text.empty() ? d.message : text + ": " + d.message;
}

ConfigError::ConfigError(std::vector<Diagnostic> diagnostics)
    : Error(Join(diagnostics)), diagnostics_(std::move(diagnostics)) {}

ConfigError::ConfigError(std::string message)
    : Error(message), diagnostics_{Diagnostic{"", 0, 0, message}} {}

IoError::IoError(std::string operation, std::string path, int error_number, std::string hint)
    : Error(fmt::format("{} {}: {}{}{}", operation, path, error_number == 0 ? "" : std::strerror(error_number),
                        error_number == 0 || hint.empty() ? "" : "; ", hint)),
      operation_(std::move(operation)),
      path_(std::move(path)),
      error_number_(error_number) {}

CommError::CommError(std::string peer, std::string operation, double elapsed_seconds, const std::string& reason)
    : Error(fmt::format("{} with {} failed after {:.2f} s: {}", operation, peer, elapsed_seconds, reason)),
      peer_(std::move(peer)),
      operation_(std::move(operation)),
      elapsed_seconds_(elapsed_seconds) {}

DeviceError::DeviceError(std::string call, int code, const std::string& meaning, int device)
    : Error(fmt::format("device {}: {} failed with code {} ({})", device, call, code, meaning)),
      code_(code),
      device_(device) {}

void internal::CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "%s:%d: broken invariant %s: %s\n", file, line, condition, message.c_str());
  std::abort();
}

}  // namespace headsweep
