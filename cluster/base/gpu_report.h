// What `headsweep-trainer --probe` says about the node's GPUs: made in the trainer (the one program that may
// touch CUDA), read by the launcher's agents and by `headsweep doctor`. One JSON object:
//   {"cuda_build": bool, "runtime": "13.0"|"", "driver": "12.8"|"", "devices": [{"index", "name",
//   "memory_bytes",
//    "free_bytes", "compute_capability", "uuid", "pci_bus_id", "mig"}], "problem": {"code", "message",
//    "remedy"} | null}
// No device is an answer, not an error: then "problem" says why. A device that cannot be used is not listed;
// "problem" names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headsweep {

struct GpuDevice {
  int index = 0;  // as CUDA counts what CUDA_VISIBLE_DEVICES leaves visible
  std::string name;
  std::int64_t memory_bytes = 0, free_bytes = 0;
  std::string compute_capability;  // "9.0"
  std::string uuid;                // "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
  std::string pci_bus_id;          // "0000:07:00.0"
  bool mig = false;                // an instance: a slice of a GPU
};

// Why no device can be used (or why this one cannot), and what to do about it.
struct GpuProblem {
  std::string code;  // kernels/device_problems.h lists them
  std::string message;
  std::string remedy;
};

struct GpuReport {
  bool cuda_build = false;
  std::string runtime,
      driver;  // CUDA versions of the build, and the highest that the driver knows; "" = none
  std::vector<GpuDevice> devices;
  std::optional<GpuProblem> problem;
};

std::string ToJson(const GpuReport& report);  // one line, without its end

// The report among the lines of a probe's output; libraries may have written other lines. nullopt: there is
// none.
std::optional<GpuReport> FindGpuReport(const std::string& output);

}  // namespace headsweep
