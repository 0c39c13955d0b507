#include <algorithm>

#include "cluster/base/errors.h"
#include "cluster/doctor_checks.h"

namespace headsweep {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// Chosen: a small trial (2 layers of 128, batch of 16 x 128) takes about 0.3 GiB.
constexpr double kLittleMemoryGiB = 1;

bool Has(const ProcessorInfo& processor, const std::string& flag) {
  return std::binary_search(processor.flags.begin(), processor.flags.end(), flag);
}

}  // namespace

Finding CheckCores(const DoctorContext& context) {
  const Topology& machine = context.machine;
  const std::string model =
      machine.processor.model.empty() ? "processor of unknown model" : machine.processor.model;
  if (machine.cores.empty())
    return {"", FindingLevel::kProblem, fmt::format("{}: no core is usable by this process", model),
            "look at the affinity mask (taskset -p $$) and the job's CPU set"};
  std::string text = fmt::format("{}: {} of {} cores usable ({} of {} hardware threads), {} NUMA node{}",
                                 model, machine.cores.size(), machine.machine_cores, machine.usable_threads(),
                                 machine.machine_threads, machine.numa_nodes.size(),
                                 machine.numa_nodes.size() == 1 ? "" : "s");
  if (machine.limits.cpus) text += fmt::format(", CPU quota {:.2f}", *machine.limits.cpus);
  text += fmt::format("; {} process{} at full speed", machine.worker_slots(),
                      machine.worker_slots() == 1 ? "" : "es");
  if (machine.limits.cpus && *machine.limits.cpus < 0.99)
    return {"", FindingLevel::kNote, text,
            "the control group grants less than one CPU: expect long steps, raise its quota"};
  return {"", FindingLevel::kOk, text, ""};
}

Finding CheckInstructionSet(const DoctorContext& context) {
  const ProcessorInfo& processor = context.machine.processor;
  if (processor.flags.empty())
    return {"", FindingLevel::kNote, "not known (/proc/cpuinfo lists no flags)", ""};
  std::string text;
  FindingLevel level = FindingLevel::kOk;
  if (Has(processor, "avx512f")) {
    text = "AVX-512";
    if (Has(processor, "avx512_vnni")) text += ", VNNI";
    if (Has(processor, "avx512_bf16")) text += ", BF16";
    if (Has(processor, "amx_tile")) text += ", AMX";
    text += ": full speed of the CPU backend";
  } else if (Has(processor, "avx2") && Has(processor, "fma")) {
    text = "AVX2 without AVX-512: about half the speed per core of an AVX-512 machine";
  } else if (Has(processor, "asimd")) {
    text = "ARM with NEON: everything works, the CPU backend is tuned for x86";
  } else {
    text = "neither AVX2 nor AVX-512: matrix products run several times slower";
    level = FindingLevel::kNote;
  }
#ifdef HEADSWEEP_KERNELS_NEED_AVX512
  if (!Has(processor, "avx512f"))
    return {"", FindingLevel::kProblem,
            "this build uses AVX-512 and the processor has none: trials would die by SIGILL (" + text + ")",
            "build on this machine, or configure with -DHEADSWEEP_NATIVE=OFF"};
#endif
#ifdef HEADSWEEP_KERNELS_NEED_AVX2
  if (!Has(processor, "avx2"))
    return {"", FindingLevel::kProblem,
            "this build uses AVX2 and the processor has none: trials would die by SIGILL (" + text + ")",
            "build on this machine, or configure with -DHEADSWEEP_NATIVE=OFF"};
#endif
  return {"", level, text, ""};
}

Finding CheckMemory(const DoctorContext& context) {
  const Topology& machine = context.machine;
  if (machine.memory.total_bytes == 0)
    return {"", FindingLevel::kNote, "not known (/proc/meminfo cannot be read)", ""};
  const double available = static_cast<double>(machine.memory.available_bytes) / kGiB;
  std::string text = fmt::format("{:.1f} GiB available of {:.1f} GiB", available,
                                 static_cast<double>(machine.memory.total_bytes) / kGiB);
  if (machine.limits.memory_bytes)
    text += fmt::format(", control group limit {:.1f} GiB",
                        static_cast<double>(*machine.limits.memory_bytes) / kGiB);
  if (!(available >= kLittleMemoryGiB))
    return {"", FindingLevel::kNote, text + ": enough for small models only",
            "lower train.micro_batch, run fewer trials at once, or ask the job for more memory"};
  return {"", FindingLevel::kOk, text, ""};
}

Finding CheckHugePages(const DoctorContext& context) {
  const std::string& setting = context.machine.huge_pages;
  if (setting == "always" || setting == "madvise")
    return {"", FindingLevel::kOk, fmt::format("transparent huge pages: {} (trainers ask for them)", setting),
            ""};
  if (setting == "never")
    return {"", FindingLevel::kNote,
            "transparent huge pages are off: first touch of memory is many times slower",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"};
  return {"", FindingLevel::kNote,
          "transparent huge pages: not known on this kernel; everything works without", ""};
}

}  // namespace headsweep
