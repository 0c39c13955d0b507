#include "cluster/doctor.h"

#include <boost/program_options/value_semantic.hpp>

#include <iostream>

#include "cluster/base/errors.h"
#include "launcher/commands/command.h"
#include "launcher/process.h"

namespace headsweep {

SubCommand MakeDoctorCommand() {
  SubCommand command{
      .name = "doctor",
      .summary = "says what this machine offers, what is missing, and the remedy",
      .details =
          "Exit code 1 if a run would fail here. --json prints {\"findings\": [{subject, level, text, "
          "remedy}],\n"
          "\"problems\": n, \"notes\": n}; level: ok, note or problem.\n\n"
          "examples\n"
          "  headsweep doctor\n"
          "  srun -N 1 headsweep doctor --json --workspace /scratch/runs\n",
      .run = [](const Arguments& arguments) -> int {
        DoctorOptions options;
        options.workspace = arguments.Text("workspace");
        options.trainer = TrainerPath();
        const std::vector<Finding> findings = Diagnose(options);
        std::cout << (arguments.Has("json") ? FindingsToJson(findings) + "\n" : FormatFindings(findings));
        return HasProblem(findings) ? kExitFailed : kExitDone;
      }};
  AddWorkspaceOption(command);
  command.options.add_options()("json", boost::program_options::bool_switch(), "for programs");
  return command;
}

}  // namespace headsweep
