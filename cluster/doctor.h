// `headsweep doctor`: looks at the machine and says what will work, what will be slow and what will not work,
// each with a remedy. Looks only: the one thing it writes is a few small files in the workspace's file
// system, removed again. Thread-safe; takes a second at most (several when mpirun or nvidia-smi is slow).
#pragma once

#include <string>
#include <vector>

#include "cluster/topology.h"

namespace headsweep {

enum class FindingLevel {
  kOk,       // as it should be
  kNote,     // works, but slower or with less comfort; or a feature that is not here
  kProblem,  // a run would fail
};

struct Finding {
  std::string subject;  // "memory", "workspace", … unique in a report
  FindingLevel level = FindingLevel::kOk;
  std::string text;
  std::string remedy;  // what to type or change; "" when nothing is to be done
};

struct DoctorOptions {
  std::string workspace = "headsweep-runs";  // need not exist; then its nearest existing parent is tried
  std::string
      trainer;  // headsweep-trainer, asked for the GPUs (--probe); "" = they are not looked at with CUDA
  TopologySources sources;      // programs are looked for on this process's PATH
  double program_seconds = 20;  // deadline for each program that is asked for its version
};

// Every check, in a fixed order. Never throws for what it finds: a check that itself fails is a problem that
// says so.
std::vector<Finding> Diagnose(const DoctorOptions& options);

bool HasProblem(const std::vector<Finding>& findings);

// For people: one block a finding, problems marked, a summary line at the end.
std::string FormatFindings(const std::vector<Finding>& findings);

// For programs: {"findings": [{"subject", "level": "ok"|"note"|"problem", "text", "remedy"}], "problems": n,
// "notes": n}.
std::string FindingsToJson(const std::vector<Finding>& findings);

}  // namespace headsweep
