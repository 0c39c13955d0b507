// Asks a short-lived child (`headsweep-trainer --probe`) which GPUs this node has, without waiting for it:
// opening eight GPUs can take many seconds, and an agent must go on answering. Used on one thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "cluster/base/gpu_report.h"
#include "cluster/gpus.h"

namespace headsweep {

class GpuProbe {
 public:
  // Starts it, seeing the GPUs that `visible` names. Throws IoError when it cannot be started.
  GpuProbe(const std::string& trainer, const VisibleGpus& visible, double timeout_seconds, double now);
  ~GpuProbe();  // kills it if it still runs
  GpuProbe(const GpuProbe&) = delete;
  GpuProbe& operator=(const GpuProbe&) = delete;

  // nullopt while it works. A child that hangs (it is killed), crashes or says nothing gives a report without
  // devices whose problem says so.
  std::optional<GpuReport> Poll(double now);

 private:
  GpuReport Failed(const std::string& what) const;

  std::string trainer_, output_;  // output_: a file, removed with this object
  double timeout_ = 0, started_ = 0;
  pid_t pid_ = -1;
};

}  // namespace headsweep
