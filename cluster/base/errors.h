// The exceptions of headsweep. Few types, context in fields, one catch boundary per process (the main functions).
// Outcomes that are not errors (a diverged run, a torn journal tail) are values, never exceptions.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace headsweep {

// One complaint about a file a person wrote. line and column count from 1; 0 = not known.
struct Diagnostic {
  std::string file;
  int line = 0;
  int column = 0;
  std::string message;
};

// "file:line:column: message", parts that are not known left out.
std::string ToString(const Diagnostic& diagnostic);

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user's configuration or data is wrong; never retried, exit code 2. Carries every complaint at once.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<Diagnostic> diagnostics);
  explicit ConfigError(std::string message);  // one complaint without a position
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

 private:
  std::vector<Diagnostic> diagnostics_;
};

// A file operation failed. what() reads "operation path: strerror(error_number)[; hint]". error_number 0: the operating
// system is not to blame (a damaged file, say); what() reads "operation path: hint".
class IoError : public Error {
 public:
  IoError(std::string operation, std::string path, int error_number, std::string hint = "");
  const std::string& operation() const { return operation_; }
  const std::string& path() const { return path_; }
  int error_number() const { return error_number_; }

 private:
  std::string operation_;
  std::string path_;
  int error_number_;
};

// A peer failed or fell silent. The communicator it came from is dead afterwards.
class CommError : public Error {
 public:
  CommError(std::string peer, std::string operation, double elapsed_seconds, const std::string& reason);
  const std::string& peer() const { return peer_; }
  const std::string& operation() const { return operation_; }
  double elapsed_seconds() const { return elapsed_seconds_; }

 private:
  std::string peer_;
  std::string operation_;
  double elapsed_seconds_;
};

// An accelerator call failed. Sticky: the process must end.
class DeviceError : public Error {
 public:
  DeviceError(std::string call, int code, const std::string& meaning, int device);
  int code() const { return code_; }
  int device() const { return device_; }

 private:
  int code_;
  int device_;
};

// A feature that is compiled out, or not built for this combination. Names the feature.
class Unsupported : public Error {
 public:
  using Error::Error;
};

namespace internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& message);
}

// A broken invariant: state is not trusted afterwards, so the process prints the place and aborts.
#define HEADSWEEP_CHECK(condition, ...)                                                              \
  do {                                                                                               \
    if (!(condition))                                                                                \
      ::headsweep::internal::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)

// Exit codes of both programs (documented in README.md).
enum ExitCode : int {
  kExitDone = 0,        // everything asked for is done
  kExitFailed = 1,      // some trials failed, or an unexpected error
  kExitUsage = 2,       // wrong usage, configuration or data
  kExitResumable = 75,  // stopped early with everything saved; run again to go on (EX_TEMPFAIL)
};

}  // namespace headsweep
