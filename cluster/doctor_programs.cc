#include <unistd.h>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "cluster/base/run_program.h"
#include "cluster/doctor_checks.h"

namespace headsweep {
namespace {

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Finding CheckMpi(const DoctorContext& context) {
  const std::string mpirun = FindProgram("mpirun");
  if (mpirun.empty())
    return {"", FindingLevel::kNote,
            "no mpirun on PATH: sweeps run on this machine alone (headsweep run works without it)",
            "apt-get install openmpi-bin, or load the cluster's MPI module"};
  const ProgramResult result =
      RunProgram({mpirun, "--version"}, context.options.program_seconds, /*merge_errors=*/true);
  const std::string line = FirstLine(result.output);
  if (result.exit_code != 0)
    return {"", FindingLevel::kProblem,
            fmt::format("{} --version ends with code {}: {}", mpirun, result.exit_code, line),
            "reinstall Open MPI, or run without mpirun"};
  if (line.find("Open MPI") == std::string::npos)
    return {"", FindingLevel::kNote, fmt::format("{}: {}; only Open MPI is tested", mpirun, line),
            "build headsweep with the mpicxx that belongs to this mpirun"};
  return {"", FindingLevel::kOk, fmt::format("{} ({})", line, mpirun), ""};
}

Finding CheckRoot(const DoctorContext& context) {
  if (::geteuid() != 0) return {"", FindingLevel::kOk, "not running as root", ""};
  if (FindProgram("mpirun").empty())
    return {"", FindingLevel::kOk, "running as root, which matters to mpirun alone", ""};
  const bool allowed = context.Environment("OMPI_ALLOW_RUN_AS_ROOT") == "1" &&
                       context.Environment("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == "1";
  if (allowed) return {"", FindingLevel::kOk, "running as root, and Open MPI is told to allow it", ""};
  return {"", FindingLevel::kNote, "running as root: Open MPI's mpirun refuses to start",
          "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or use an ordinary user"};
}

Finding CheckSlurm(const DoctorContext& context) {
  std::string found, missing;
  for (const char* name : {"sbatch", "srun", "squeue", "scontrol", "scancel"}) {
    std::string& list = FindProgram(name).empty() ? missing : found;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  const std::string job = context.Environment("SLURM_JOB_ID");
  const std::string inside = job.empty() ? ""
                                         : fmt::format("; inside job {} ({} nodes)", job,
                                                       context.Environment("SLURM_JOB_NUM_NODES"));
  if (found.empty())
    return {"", FindingLevel::kNote, "no Slurm commands on PATH: nothing can be submitted from here" + inside,
            ""};
  if (!missing.empty())
    return {"", FindingLevel::kNote, fmt::format("{} on PATH, but not {}{}", found, missing, inside),
            "load the cluster's Slurm module: submitting and watching need all of them"};
  return {"", FindingLevel::kOk, found + " on PATH" + inside, ""};
}

Finding CheckHdf5Tools(const DoctorContext&) {
  const std::string h5dump = FindProgram("h5dump");
  if (h5dump.empty())
    return {"", FindingLevel::kNote, "no h5dump on PATH; only needed to look into results by hand",
            "apt-get install hdf5-tools"};
  return {"", FindingLevel::kOk, h5dump, ""};
}

Finding CheckVega(const DoctorContext& context) {
  // Debian's libjs-vega comes as one script a module; other systems and vega's own releases have them joined.
  const FileSystem& files = FileSystem::Real();
  for (const char* directory : {"/usr/share/javascript/vega", "/usr/share/nodejs/vega/build"})
    for (const char* script : {"vega.min.js", "vega-view.min.js"})
      if (files.Exists(context.options.sources.root + directory + "/" + script))
        return {"", FindingLevel::kOk, fmt::format("Vega is in {}", directory), ""};
  return {"", FindingLevel::kNote, "no Vega in /usr/share/javascript/vega: headsweep report cannot draw",
          "apt-get install libjs-vega"};
}

Finding CheckKingJames(const DoctorContext& context) {
  const std::string folder = context.Environment("HEADSWEEP_CORPORA");
  if (!folder.empty() && FileSystem::Real().Exists(JoinPath(folder, "lm-kjv/kjv.txt")))
    return {"", FindingLevel::kOk, JoinPath(folder, "lm-kjv/kjv.txt"), ""};
  const std::string bible = FindProgram("bible");
  if (!bible.empty()) return {"", FindingLevel::kOk, "from the program " + bible, ""};
  return {"", FindingLevel::kNote, "task.corpus = \"kjv\" is not available (no program `bible` on PATH)",
          "apt-get install bible-kjv bible-kjv-text, or use a text file as corpus"};
}

}  // namespace headsweep
