// submit: a sweep as a Slurm job; batch: what that job runs.
#include "launcher/submission.h"

#include <boost/program_options/value_semantic.hpp>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "launcher/batch.h"
#include "launcher/commands/command.h"
#include "launcher/commands/run_options.h"
#include "launcher/commands/submit_options.h"
#include "launcher/planned_sweep.h"

namespace headsweep {
namespace {

namespace po = boost::program_options;

bool AsksForGpus(const JobRequest& request) {
  if (request.gpus_per_node > 0) return true;
  for (const std::string& word : request.sbatch)
    if (word.starts_with("--gpus") || word.starts_with("--gres") || word.starts_with("-G")) return true;
  return false;
}

// What would fail in the job, found before it waits in the queue. Reads the corpora.
void CheckSweep(Sweep sweep, const JobRequest& request) {
  if (sweep.point_count() > Sweep::kCheckedWhole) return;
  const PlannedSweep planned = PlanSweep(std::move(sweep), FingerprintOfSource());
  const bool gpus = AsksForGpus(request);
  if (planned.device == "cuda" && !gpus)
    throw ConfigError("the sweep has run.device = \"cuda\", but no GPUs are asked for: give --gpus-per-node N");
  if (planned.device != "cuda" && gpus)
    std::cerr << "warning: GPUs are asked for, but the sweep has run.device = \"" << planned.device
              << "\": they would be idle\n";
}

std::vector<std::string> RunWords(const Arguments& arguments) {
  std::vector<std::string> words;
  for (const char* name : {"slots", "threads"}) {
    const int count = arguments.Number(name);
    if (count < 0) throw ConfigError(fmt::format("--{} {}: give a number from 0", name, count));
    if (count > 0) words.push_back(fmt::format("--{}={}", name, count));
  }
  if (arguments.Has("no-report")) words.push_back("--no-report");
  return words;
}

int RunSubmit(const Arguments& arguments) {
  const std::string path = arguments.Positional(0);
  const Workspace workspace(arguments.Text("workspace"));
  SubmitRequest request{JobRequestFrom(arguments, 1), RunWords(arguments)};
  const Sweep sweep = Sweep::Load(AbsolutePath(path));
  CheckSweep(sweep, request.job);
  if (arguments.Has("print")) {
    std::cout << ScriptOf(workspace, sweep, request, workspace.Jobs(sweep.name()) + "/N", "headsweep-TOKEN");
    return kExitDone;
  }
  if (!Slurm::IsHere())
    throw ConfigError("no Slurm commands on PATH (sbatch, squeue, scontrol, scancel): load the cluster's Slurm module, or "
                      "see the script with --print");
  FileSystem& files = FileSystem::Real();
  const Slurm slurm;
  if (!arguments.Has("also")) CheckMaySubmit(files, workspace, sweep.name(), slurm, request);
  const Submission submission = Submit(files, workspace, sweep, slurm, request);
  if (arguments.Has("json")) {
    std::cout << DumpJson(nlohmann::json{{"sweep", sweep.name()},
                                         {"jobs", submission.Ids()},
                                         {"workspace", workspace.root()},
                                         {"directory", submission.directory}})
              << "\n";
    return kExitDone;
  }
  const bool elsewhere = workspace.root() != Workspace("./headsweep-runs").root();
  std::cout << fmt::format("{}: submitted as {}\n  headsweep status {}{}\n  script and output: {}\n", sweep.name(),
                           Describe(submission), sweep.name(), elsewhere ? " --workspace " + workspace.root() : "",
                           submission.directory);
  return kExitDone;
}

}  // namespace

SubCommand MakeSubmitCommand() {
  SubCommand command{
      .name = "submit",
      .arguments = "SWEEP.toml [-- SBATCH OPTIONS]",
      .least = 1,
      .most = 1000,
      .summary = "submits a sweep to Slurm: one agent a node, requeued until it is done",
      .details =
          "Checks the sweep, writes a batch script into the workspace (which every node must see), submits it and "
          "records the job.\nAhead of the time limit everything is checkpointed and the job requeued, until the sweep is "
          "done; a job that comes\nno further three times in a row is not tried again. `status`, `watch`, `logs`, "
          "`cancel` and `resume` work from here.\n\n"
          "Defaults of a site are in ~/.config/headsweep/cluster.toml, as in\n"
          "  partition = \"gpu\"\n  account = \"lab\"\n  setup = [\"module load openmpi\"]\n"
          "  [profile.debug]\n  partition = \"debug\"\n  time = \"10\"\n"
          "Its keys: nodes gpus_per_node cpus_per_node time partition account qos constraint mpi setup sbatch lead "
          "max_requeues.\n\n"
          "examples\n"
          "  headsweep submit heads.toml --nodes 3 --gpus-per-node 4 --time 04:00:00 --workspace /scratch/runs\n"
          "  headsweep submit heads.toml --profile debug --print\n"
          "  headsweep submit heads.toml --nodes 2 -- --mail-type=FAIL --mem=0\n",
      .run = RunSubmit};
  AddWorkspaceOption(command);
  AddSubmitOptions(command);
  command.options.add_options()("slots", po::value<int>()->default_value(0)->value_name("N"),
                                "trials at once on each node; 0: as many as fit")(
      "threads", po::value<int>()->default_value(0)->value_name("N"),
      "CPU threads of one trial; 0: run.threads of the sweep")(
      "no-report", po::bool_switch(), "do not make results.h5 and report.html at the end")(
      "print", po::bool_switch(), "print the batch script, and do nothing")(
      "also", po::bool_switch(), "also when a submission of this sweep may be alive")(
      "json", po::bool_switch(), "for programs: {sweep, jobs: [id], workspace, directory}");
  return command;
}

SubCommand MakeBatchCommand() {
  SubCommand command{.name = "batch",
                     .arguments = "--submission DIR -- COMMAND …",
                     .least = 1,
                     .most = 1000,
                     .summary = "what the batch script of a submission runs",
                     .details = "",
                     .run =
                         [](const Arguments& arguments) {
                           BatchOptions options;
                           options.submission = AbsolutePath(arguments.Text("submission"));
                           options.most_requeues = arguments.Number("max-requeues");
                           options.agents = arguments.positional;
                           return RunBatch(options);
                         },
                     .hidden = true};
  command.options.add_options()("submission", po::value<std::string>()->required()->value_name("DIR"),
                                "the submission's directory")(
      "max-requeues", po::value<int>()->default_value(100)->value_name("N"), "at most");
  return command;
}

}  // namespace headsweep
