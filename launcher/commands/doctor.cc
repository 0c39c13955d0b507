#include "cluster/doctor.h"

#include <boost/program_options/value_semantic.hpp>

#include <iostream>

#include "cluster/base/errors.h"
#include "cluster/doctor_cluster.h"
#include "launcher/commands/command.h"
#include "launcher/commands/submit_options.h"
#include "launcher/mpi_check.h"
#include "launcher/process.h"
#include "launcher/workspace.h"

namespace headsweep {
namespace {

std::vector<Finding> LookHere(const Arguments& arguments) {
  DoctorOptions options;
  options.workspace = arguments.Text("workspace");
  options.trainer = TrainerPath();
  return Diagnose(options);
}

std::vector<Finding> LookAtCluster(const Arguments& arguments) {
  ClusterDoctorOptions options;
  options.workspace = Workspace(arguments.Text("workspace")).root();
  options.program = ProgramPath();
  options.nodes = arguments.Number("nodes");
  if (options.nodes < 0) throw ConfigError("--nodes: give a number from 0");
  const JobRequest site = SiteDefaults();
  options.mpi = site.mpi;
  const std::string partition = arguments.Text("partition").empty() ? site.partition : arguments.Text("partition");
  if (!partition.empty()) options.srun.push_back("--partition=" + partition);
  if (!site.account.empty()) options.srun.push_back("--account=" + site.account);
  return DiagnoseCluster(Slurm(), options);
}

}  // namespace

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
          "  headsweep doctor --cluster --nodes 2 --workspace /scratch/runs     # what Slurm offers, and how its nodes see "
          "the workspace\n"
          "  srun -N 1 headsweep doctor --json --workspace /scratch/runs\n",
      .run = [](const Arguments& arguments) -> int {
        if (!arguments.Text("look-from-node").empty()) {
          std::cout << FormatNodeLook(LookFromNode(arguments.Text("look-from-node"), arguments.Text("token")));
          return kExitDone;
        }
        if (arguments.Has("look-by-mpi")) {
          const MpiLook look = LookByMpi();
          std::cout << FormatMpiLook(look);
          return look.problem.empty() ? kExitDone : kExitFailed;
        }
        const std::vector<Finding> findings = arguments.Has("cluster") ? LookAtCluster(arguments) : LookHere(arguments);
        std::cout << (arguments.Has("json") ? FindingsToJson(findings) + "\n" : FormatFindings(findings));
        return HasProblem(findings) ? kExitFailed : kExitDone;
      }};
  AddWorkspaceOption(command);
  command.options.add_options()("json", boost::program_options::bool_switch(), "for programs")(
      "cluster", boost::program_options::bool_switch(), "look at the Slurm cluster instead")(
      "nodes", boost::program_options::value<int>()->default_value(0)->value_name("N"),
      "with --cluster: look from N nodes, and let them talk by MPI, in two job steps of a few seconds")(
      "partition", boost::program_options::value<std::string>()->default_value("")->value_name("NAME"),
      "of these nodes")("look-from-node", boost::program_options::value<std::string>()->default_value("")->value_name("DIR"),
                        "what such a node runs")(
      "token", boost::program_options::value<std::string>()->default_value("")->value_name("TEXT"), "what it must read")(
      "look-by-mpi", boost::program_options::bool_switch(), "what they run as one MPI program");
  return command;
}

}  // namespace headsweep
