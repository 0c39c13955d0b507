#include "cluster/slurm/job_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "cluster/base/run_program.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

JobPlace Place() {
  return {"my sweep", "/ws/sweeps/my sweep/jobs/1", "headsweep-01", "/opt/headsweep", {"run", "/ws/sweep.toml"}};
}

std::string ComplaintAbout(const JobRequest& request) {
  try {
    CheckJobRequest(request);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(JobScript, SaysEverythingThatWasAskedFor) {
  JobRequest request;
  request.nodes = "2-4";
  request.gpus_per_node = 8;
  request.cpus_per_node = 16;
  request.time = "04:00:00";
  request.partition = "gpu";
  request.account = "lab";
  request.qos = "high";
  request.constraint = "a100|h100";
  request.array = 5;
  request.setup = {"module load openmpi"};
  request.sbatch = {"--mail-type=FAIL", "--mail-user", "a b@c"};
  const std::string script = FormatJobScript(request, Place(), 120);
  for (const char* line :
       {"--job-name=headsweep-my_sweep\n", "--comment=headsweep-01\n", "--nodes=2-4\n", "--gpus-per-node=8\n",
        "--cpus-per-task=16\n", "--time=04:00:00\n", "--partition=gpu\n", "--account=lab\n", "--qos=high\n",
        "--constraint='a100|h100'\n", "--array=0-4\n", "--signal=USR2@180", "--requeue\n", "--no-kill",
        "--open-mode=append\n", "--output=slurm-%A_%a.txt\n", "--mail-type=FAIL --mail-user 'a b@c'\n"})
    EXPECT_THAT(script, HasSubstr(std::string("#SBATCH ") + line));
  EXPECT_THAT(script, HasSubstr("\nmodule load openmpi\n"));
  EXPECT_THAT(script, HasSubstr("srun --mpi=pmix --no-kill --kill-on-bad-exit=0 --ntasks-per-node=1"));
  EXPECT_THAT(script, Not(HasSubstr("--exclusive")));
}

TEST(JobScript, WithoutCpusItTakesWholeNodes) {
  EXPECT_THAT(FormatJobScript({}, Place(), 120), HasSubstr("#SBATCH --exclusive\n"));
}

TEST(JobScript, TheSignalLeavesTimeForACheckpointAndAShortJobMostOfItsOwn) {
  EXPECT_EQ(LeadSeconds(0, 120), 180);
  EXPECT_EQ(LeadSeconds(4 * 3600, 120), 180);
  EXPECT_EQ(LeadSeconds(4 * 3600, 600), 660);
  EXPECT_EQ(LeadSeconds(60, 120), 20);
  JobRequest request;
  request.time = "1";
  EXPECT_THAT(FormatJobScript(request, Place(), 120), HasSubstr("export HEADSWEEP_STOP_GRACE=13\n"));
  request.time = "60";
  EXPECT_THAT(FormatJobScript(request, Place(), 120), Not(HasSubstr("HEADSWEEP_STOP_GRACE")));
}

TEST(JobScript, EverythingThatIsWrongIsSaidAtOnce) {
  JobRequest request;
  request.nodes = "0";
  request.time = "soon";
  request.partition = "a\nb";
  request.gpus_per_node = -1;
  request.sbatch = {"--output=x", "--array", "3"};
  try {
    CheckJobRequest(request);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostics().size(), 6u) << error.what();
  }
  request = {};
  request.sbatch = {"second.toml"};
  EXPECT_THAT(ComplaintAbout(request), HasSubstr("one sweep at a time"));
  request.sbatch = {"-Nfoo"};
  EXPECT_THAT(ComplaintAbout(request), HasSubstr("use --nodes"));
  request.sbatch = {"--nodelist=n1", "--mem=0", "--no-requeue"};
  EXPECT_EQ(ComplaintAbout(request), "");
}

// The body of the script in a real bash: "headsweep" there prints its words.
TEST(JobScript, NoValueIsReadByTheShell) {
  const testing::TempDir temp;
  const std::string canary = temp / "canary";
  const std::string touch = "touch " + canary;
  const std::string hostile = "$(" + touch + ")`" + touch + "`\";" + touch + ";'" + touch + "\n" + touch + "\n";
  JobPlace place = Place();
  place.sweep = hostile;
  place.program = temp / "head $(touch canary2) 'sweep";
  // Not a path that Slurm can take: the script opens its output itself.
  const std::string hostile_directory = temp / "a\n'$(touch b)' \\ %j";
  place.directory = hostile_directory;
  place.agent = {"run", hostile, "--workspace=" + hostile, "-x"};
  JobRequest request;
  request.partition = "$(" + touch + ")`" + touch + "`\"'";
  request.sbatch = {"--mail-user=';" + touch + ";'"};
  CheckJobRequest(request);
  FileSystem& files = FileSystem::Real();
  files.WriteFile(place.program, "#!/bin/bash\nprintf '%s\\0' \"$@\"\n");
  RunProgram({"chmod", "+x", place.program}, 10);
  files.CreateDirectories(hostile_directory);
  files.WriteFile(temp / "job.sh", FormatJobScript(request, place, 120));
  RunProgram({"bash", temp / "job.sh"}, 10, /*merge_errors=*/true, {{"SLURM_JOB_ID", "7"}});
  std::string expected;
  for (const std::string& word :
       {std::string("batch"), "--submission=" + hostile_directory, std::string("--max-requeues=100"), std::string("--"),
        std::string("srun"), std::string("--mpi=pmix"), std::string("--no-kill"), std::string("--kill-on-bad-exit=0"),
        std::string("--ntasks-per-node=1"), std::string("--cpu-bind=none"), place.program, std::string("run"), hostile,
        "--workspace=" + hostile, std::string("-x")})
    expected += word + '\0';
  EXPECT_EQ(files.ReadFile(hostile_directory + "/slurm-7.txt"), expected);
  EXPECT_FALSE(files.Exists(canary)) << "a value was run";
}

}  // namespace
}  // namespace headsweep
