#include "launcher/gpu_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "launcher/process.h"

namespace headsweep {
namespace {

constexpr double kKillTimeout = 10;

std::string TemporaryFile() {
  const char* folder = std::getenv("TMPDIR");
  std::string path =
      std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/headsweep-probe-XXXXXX";
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) throw IoError("create temporary file", path, errno);
  ::close(fd);
  return path;
}

}  // namespace

GpuProbe::GpuProbe(const std::string& trainer, const VisibleGpus& visible, double timeout_seconds, double now)
    : trainer_(trainer), output_(TemporaryFile()), timeout_(timeout_seconds), started_(now) {
  ProcessSpec spec;
  spec.command = {trainer, "--probe"};
  spec.environment = GpuEnvironment(visible);
  spec.log_path = output_;
  try {
    pid_ = Spawn(spec).pid;
  } catch (...) {
    ::unlink(output_.c_str());
    throw;
  }
}

GpuProbe::~GpuProbe() {
  if (pid_ > 0) {
    SignalGroup(pid_, SIGKILL);
    WaitFor(pid_, kKillTimeout);
  }
  ::unlink(output_.c_str());
}

std::optional<GpuReport> GpuProbe::Poll(double now) {
  const std::optional<ExitStatus> status = TryReap(pid_);
  if (!status) {
    if (now < started_ + timeout_) return std::nullopt;
    return Failed(fmt::format("did not end within {:.0f} s", timeout_));
  }
  pid_ = -1;
  const std::string output = FileSystem::Real().ReadFile(output_);
  if (auto report = FindGpuReport(output)) return report;
  return Failed(fmt::format("ended with {}: {}", ToString(*status), output.substr(0, output.find('\n'))));
}

GpuReport GpuProbe::Failed(const std::string& what) const {
  GpuReport report;
  report.problem = GpuProblem{"probe-failed", fmt::format("{} --probe {}", trainer_, what),
                              "see whether nvidia-smi works on that node"};
  return report;
}

}  // namespace headsweep
