// The single checks of `headsweep doctor`. To add one: a function here, a line in the table of doctor.cc, a
// test.
#pragma once

#include <string>

#include "cluster/doctor.h"

namespace headsweep {

struct DoctorContext {
  const DoctorOptions& options;
  const Topology& machine;
  // Environment variable, or "" where it is not set.
  std::string Environment(const char* name) const;
};

// Machine (doctor_machine.cc).
Finding CheckCores(const DoctorContext& context);
Finding CheckInstructionSet(const DoctorContext& context);
Finding CheckMemory(const DoctorContext& context);
Finding CheckHugePages(const DoctorContext& context);

// GPUs (doctor_gpus.cc).
Finding CheckGpus(const DoctorContext& context);

// Workspace (doctor_workspace.cc).
Finding CheckWorkspace(const DoctorContext& context);
Finding CheckFreeSpace(const DoctorContext& context);

// Other programs and packages (doctor_programs.cc).
Finding CheckMpi(const DoctorContext& context);
Finding CheckRoot(const DoctorContext& context);
Finding CheckSlurm(const DoctorContext& context);
Finding CheckHdf5Tools(const DoctorContext& context);
Finding CheckVega(const DoctorContext& context);
Finding CheckKingJames(const DoctorContext& context);

}  // namespace headsweep
