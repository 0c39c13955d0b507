#include <optional>

#include "cluster/base/errors.h"
#include "cluster/base/run_program.h"
#include "cluster/doctor_checks.h"
#include "cluster/gpus.h"

namespace headsweep {
namespace {

// What can be seen without CUDA.
std::string SeenByTheSystem(const GpuState& gpus) {
  if (!gpus.names.empty())
    return fmt::format("nvidia-smi lists {} GPU{}: {}", gpus.names.size(), gpus.names.size() == 1 ? "" : "s",
                       fmt::join(gpus.names, "; "));
  if (!gpus.smi_failure.empty()) return fmt::format("nvidia-smi lists no GPU ({})", gpus.smi_failure);
  if (!gpus.device_files.empty())
    return fmt::format("device files {} but no nvidia-smi on PATH", fmt::join(gpus.device_files, ", "));
  return "no NVIDIA GPU seen (no /dev/nvidia*, no nvidia-smi)";
}

// Which variable chooses among them: "; CUDA_VISIBLE_DEVICES=0,1".
std::string ChosenBy(const VisibleGpus& visible) {
  std::string text;
  if (!visible.variable.empty())
    text += fmt::format("; {}={}{}", visible.variable, visible.value, visible.none() ? " hides all" : "");
  if (!visible.warning.empty()) text += fmt::format(": {}", visible.warning);
  return text;
}

// What the trainer says; or why it says nothing.
std::optional<GpuReport> Probe(const DoctorContext& context, const VisibleGpus& visible,
                               std::string& failure) {
  const std::string& trainer = context.options.trainer;
  try {
    const ProgramResult result = RunProgram({trainer, "--probe"}, context.options.program_seconds,
                                            /*merge_errors=*/true, GpuEnvironment(visible));
    if (auto report = FindGpuReport(result.output)) return report;
    failure = fmt::format("{} --probe ended with code {}: {}", trainer, result.exit_code,
                          result.output.substr(0, result.output.find('\n')));
  } catch (const Error& error) {
    failure = error.what();
  }
  return std::nullopt;
}

}  // namespace

Finding CheckGpus(const DoctorContext& context) {
  const GpuState& gpus = context.machine.gpus;
  const VisibleGpus visible = FindVisibleGpus([&](const char* name) {
    const auto& environment = context.options.sources.environment;
    return environment ? environment(name) : std::getenv(name);
  });
  const std::string seen = SeenByTheSystem(gpus) + ChosenBy(visible);
  if (context.options.trainer.empty()) return {"", FindingLevel::kOk, seen, ""};

  std::string failure;
  const std::optional<GpuReport> report = Probe(context, visible, failure);
  if (!report)
    return {"", FindingLevel::kNote, fmt::format("the GPUs cannot be asked for: {}; {}", failure, seen),
            "build the target headsweep-trainer; if it hangs or crashes, see whether nvidia-smi works"};
  if (!report->cuda_build) {
    const bool idle = !gpus.names.empty() || !gpus.device_files.empty();
    return {"", idle ? FindingLevel::kNote : FindingLevel::kOk,
            "this build has no CUDA backend, trials run on CPUs; " + seen,
            idle && report->problem ? report->problem->remedy : ""};
  }
  const std::string found = DescribeGpus(*report) + ChosenBy(visible);
  if (report->problem)
    return {"", FindingLevel::kNote,
            fmt::format("run.device = \"cuda\" would fail here: {}; {}", report->problem->message,
                        report->devices.empty() ? seen : found),
            report->problem->remedy};
  return {"", visible.warning.empty() ? FindingLevel::kOk : FindingLevel::kNote, found,
          visible.warning.empty() ? "" : fmt::format("correct {}", visible.variable)};
}

}  // namespace headsweep
