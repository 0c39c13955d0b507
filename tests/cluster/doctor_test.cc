#include "cluster/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>

#include "cluster/base/errors.h"
#include "cluster/base/gpu_report.h"
#include "tests/cluster/fake_machine.h"

namespace headsweep {
namespace {

using testing::FakeMachine;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A machine on which everything is as it should be.
void MakeHealthy(FakeMachine& fake) {
  fake.File("/proc/cpuinfo", "model name : Model X\nflags : avx2 avx512f avx512_bf16 fma\n");
  fake.File("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
  fake.File("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  fake.File("/usr/share/javascript/vega/vega-view.min.js", "");
  fake.Program("mpirun", "echo 'mpirun (Open MPI) 4.1.4'");
  for (const char* name : {"h5dump", "bible", "sbatch", "srun", "squeue", "scontrol", "scancel"})
    fake.Program(name, "");
  fake.Set("OMPI_ALLOW_RUN_AS_ROOT", "1");
  fake.Set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
}

class Doctor : public ::testing::Test {
 protected:
  void SetUp() override { MakeHealthy(fake_); }
  std::vector<Finding> Run() {
    DoctorOptions options;
    options.workspace = workspace_.empty() ? fake_ / "runs" : workspace_;
    options.trainer = trainer_;
    options.sources = fake_.Sources();
    options.program_seconds = 10;
    return Diagnose(options);
  }
  Finding Find(const std::string& subject) {
    for (const Finding& finding : Run())
      if (finding.subject == subject) return finding;
    ADD_FAILURE() << "no finding about " << subject;
    return {};
  }
  FakeMachine fake_;
  std::string workspace_, trainer_;
};

TEST_F(Doctor, AHealthyMachineHasNothingToRepair) {
  std::set<std::string> subjects;
  for (const Finding& finding : Run()) {
    EXPECT_TRUE(subjects.insert(finding.subject).second) << finding.subject << " twice";
    EXPECT_FALSE(finding.text.empty()) << finding.subject;
    if (finding.subject == "workspace" || finding.subject == "free space") continue;  // of the real disk
    EXPECT_EQ(finding.level, FindingLevel::kOk) << finding.subject << ": " << finding.text;
    EXPECT_THAT(finding.remedy, IsEmpty()) << finding.subject;
  }
  EXPECT_EQ(subjects.size(), 13u);
}

TEST_F(Doctor, ABareMachineStillRuns) {
  FakeMachine bare;  // no files, no programs
  DoctorOptions options;
  options.workspace = bare / "runs";
  options.sources = bare.Sources();
  for (const Finding& finding : Diagnose(options)) {
    if (finding.subject == "free space") continue;  // of the real disk
    EXPECT_NE(finding.level, FindingLevel::kProblem) << finding.subject << ": " << finding.text;
  }
}

TEST_F(Doctor, CoresTellQuotaAndAnEmptyMask) {
  EXPECT_THAT(Find("cores").text, HasSubstr("Model X: 4 of 4 cores usable (8 of 8 hardware threads)"));
  fake_.File("/proc/self/cgroup", "0::/\n");
  fake_.File("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_THAT(Find("cores").text, HasSubstr("CPU quota 0.50; 1 process at full speed"));
  EXPECT_EQ(Find("cores").level, FindingLevel::kNote);
  DoctorOptions options;
  options.workspace = fake_ / "runs";
  options.sources = fake_.Sources();
  options.sources.affinity = {100};
  const Finding cores = Diagnose(options).at(0);
  EXPECT_EQ(cores.subject, "cores");
  EXPECT_EQ(cores.level, FindingLevel::kProblem);
}

TEST_F(Doctor, AMachineThatCannotBeReadIsAProblemNotACrash) {
  DoctorOptions options;
  options.workspace = fake_ / "runs";
  options.sources = fake_.Sources("seven dwarves");
  const auto findings = Diagnose(options);
  EXPECT_EQ(findings.at(0).subject, "topology");
  EXPECT_TRUE(HasProblem(findings));
}

TEST_F(Doctor, InstructionSetsAreRatedBySpeed) {
  EXPECT_THAT(Find("instruction set").text, HasSubstr("AVX-512, BF16"));
  fake_.File("/proc/cpuinfo", "flags : avx2 fma\n");
  EXPECT_THAT(Find("instruction set").text, HasSubstr("about half the speed"));
  fake_.File("/proc/cpuinfo", "flags : sse2\n");
  const Finding old = Find("instruction set");
  EXPECT_THAT(old.text, HasSubstr("neither AVX2 nor AVX-512"));
  EXPECT_NE(old.level, FindingLevel::kOk);
}

TEST_F(Doctor, LittleMemoryIsNoted) {
  fake_.File("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 524288 kB\n");
  EXPECT_EQ(Find("memory").level, FindingLevel::kNote);
  EXPECT_THAT(Find("memory").text, HasSubstr("0.5 GiB available of 16.0 GiB"));
  EXPECT_THAT(Find("memory").remedy, HasSubstr("micro_batch"));
}

TEST_F(Doctor, HugePagesOffAreNotedWithTheCommand) {
  fake_.File("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_EQ(Find("huge pages").level, FindingLevel::kNote);
  EXPECT_THAT(Find("huge pages").remedy, HasSubstr("echo madvise"));
}

TEST_F(Doctor, WorkspaceIsTriedAndLeftAsItWas) {
  const Finding finding = Find("workspace");
  EXPECT_NE(finding.level, FindingLevel::kProblem) << finding.text;
  EXPECT_THAT(finding.text, HasSubstr("renamed, locked and mapped"));
  EXPECT_FALSE(FileSystem::Real().Exists(fake_ / "runs")) << "the doctor must not create it";
  for (const std::string& name : FileSystem::Real().List(fake_ / ""))
    EXPECT_THAT(name, Not(HasSubstr("doctor")));
  EXPECT_THAT(Find("free space").text, HasSubstr("GiB free"));
}

TEST_F(Doctor, AWorkspaceThatIsAFileOrNotOursIsAProblem) {
  fake_.File("/file", "");
  workspace_ = fake_.root() + "/file";
  EXPECT_EQ(Find("workspace").level, FindingLevel::kProblem);
  workspace_ = "/proc/self";  // never writable, not even for root
  const Finding finding = Find("workspace");
  EXPECT_EQ(finding.level, FindingLevel::kProblem);
  EXPECT_THAT(finding.text, HasSubstr("/proc/"));
  EXPECT_THAT(finding.remedy, HasSubstr("--workspace"));
}

TEST_F(Doctor, MpiIsAskedForItsVersion) {
  EXPECT_THAT(Find("mpi").text, HasSubstr("mpirun (Open MPI) 4.1.4"));
  fake_.Program("mpirun", "echo 'HYDRA build details:'");
  EXPECT_EQ(Find("mpi").level, FindingLevel::kNote);
  fake_.Program("mpirun", "echo 'libmpi.so not found' >&2; exit 127");
  EXPECT_EQ(Find("mpi").level, FindingLevel::kProblem);
  EXPECT_THAT(Find("mpi").text, HasSubstr("libmpi.so not found"));
}

TEST_F(Doctor, MissingProgramsAreNotesWithThePackage) {
  for (const char* name : {"mpirun", "h5dump", "bible"}) FileSystem::Real().Remove(fake_ / "bin/" + name);
  FileSystem::Real().Remove(fake_.root() + "/usr/share/javascript/vega/vega-view.min.js");
  const std::pair<const char*, const char*> expected[] = {{"mpi", "openmpi-bin"},
                                                          {"hdf5 tools", "hdf5-tools"},
                                                          {"report scripts", "libjs-vega"},
                                                          {"corpus kjv", "bible-kjv bible-kjv-text"}};
  for (const auto& [subject, package] : expected) {
    const Finding finding = Find(subject);
    EXPECT_EQ(finding.level, FindingLevel::kNote) << subject;
    EXPECT_THAT(finding.remedy, HasSubstr(package)) << subject;
  }
}

TEST_F(Doctor, TheKingJamesTextMayAlsoLieInTheCorporaFolder) {
  FileSystem::Real().Remove(fake_ / "bin/bible");
  fake_.File("/corpora/lm-kjv/kjv.txt", "");
  fake_.Set("HEADSWEEP_CORPORA", fake_.root() + "/corpora");
  EXPECT_EQ(Find("corpus kjv").level, FindingLevel::kOk);
}

TEST_F(Doctor, RootNeedsOpenMpisPermission) {
  if (::geteuid() != 0) GTEST_SKIP() << "not running as root";
  EXPECT_EQ(Find("root").level, FindingLevel::kOk);
  fake_.Set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "");
  EXPECT_EQ(Find("root").level, FindingLevel::kNote);
  EXPECT_THAT(Find("root").remedy, HasSubstr("OMPI_ALLOW_RUN_AS_ROOT=1"));
}

TEST_F(Doctor, SlurmIsCompleteHalfOrAbsent) {
  fake_.Set("SLURM_JOB_ID", "77");
  fake_.Set("SLURM_JOB_NUM_NODES", "2");
  EXPECT_THAT(Find("slurm").text, HasSubstr("inside job 77 (2 nodes)"));
  FileSystem::Real().Remove(fake_ / "bin/squeue");
  EXPECT_THAT(Find("slurm").text, HasSubstr("but not squeue"));
  EXPECT_EQ(Find("slurm").level, FindingLevel::kNote);
  for (const char* name : {"sbatch", "srun", "scontrol", "scancel"})
    FileSystem::Real().Remove(fake_ / "bin/" + name);
  EXPECT_THAT(Find("slurm").text, HasSubstr("no Slurm commands"));
}

// What `headsweep-trainer --probe` would say.
std::string Reported(bool cuda_build, int devices, const std::string& problem = "") {
  GpuReport report;
  report.cuda_build = cuda_build;
  for (int i = 0; i < devices; ++i) {
    report.devices.emplace_back();
    report.devices.back().name = "NVIDIA H100";
    report.devices.back().index = i;
  }
  if (!problem.empty()) report.problem = GpuProblem{"code", problem, "remedy of it"};
  return "printf '%s\\n' '" + ToJson(report) + "'";
}

TEST_F(Doctor, GpusWithoutCudaInTheBuildAreSaidToBeIdle) {
  fake_.Program("trainer", Reported(false, 0, "built without"));
  trainer_ = fake_ / "bin/trainer";
  EXPECT_THAT(Find("gpus").text, HasSubstr("no CUDA backend"));
  EXPECT_THAT(Find("gpus").text, HasSubstr("no NVIDIA GPU seen"));
  EXPECT_EQ(Find("gpus").level, FindingLevel::kOk);
  fake_.Program("nvidia-smi", "echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'");
  fake_.Set("CUDA_VISIBLE_DEVICES", "");
  const Finding finding = Find("gpus");
  EXPECT_EQ(finding.level, FindingLevel::kNote);
  EXPECT_EQ(finding.remedy, "remedy of it");
  EXPECT_THAT(finding.text, HasSubstr("1 GPU: GPU 0: NVIDIA H100"));
  EXPECT_THAT(finding.text, HasSubstr("hides all"));
}

TEST_F(Doctor, GpusThatTrainersCanUseAreShown) {
  fake_.Program("trainer",
                "[ \"$1\" = --probe ] && [ \"$CUDA_VISIBLE_DEVICES\" = 2,3 ] && " + Reported(true, 2));
  trainer_ = fake_ / "bin/trainer";
  fake_.Set("SLURM_JOB_GPUS", "2-3");
  const Finding finding = Find("gpus");
  EXPECT_EQ(finding.level, FindingLevel::kOk) << finding.text;
  EXPECT_THAT(finding.text, HasSubstr("2 GPUs: NVIDIA H100"));
  EXPECT_THAT(finding.text, HasSubstr("SLURM_JOB_GPUS=2-3"));
}

TEST_F(Doctor, WhyNoGpuCanBeUsedIsSaidWithTheRemedy) {
  fake_.Program("trainer", Reported(true, 0, "there is no NVIDIA driver"));
  trainer_ = fake_ / "bin/trainer";
  const Finding finding = Find("gpus");
  EXPECT_EQ(finding.level, FindingLevel::kNote) << "CPU sweeps run";
  EXPECT_THAT(finding.text, HasSubstr("would fail here: there is no NVIDIA driver"));
  EXPECT_EQ(finding.remedy, "remedy of it");
}

TEST_F(Doctor, ATrainerThatCannotAnswerIsNotedNotFatal) {
  trainer_ = fake_ / "bin/trainer";
  EXPECT_THAT(Find("gpus").text, HasSubstr("cannot be asked for"));
  fake_.Program("trainer", "echo 'error while loading shared libraries: libcudart.so.12' >&2; exit 127");
  EXPECT_THAT(Find("gpus").text, HasSubstr("ended with code 127: error while loading shared libraries"));
  EXPECT_EQ(Find("gpus").level, FindingLevel::kNote);
}

TEST_F(Doctor, AListOfGpusThatCudaWouldCutShortIsNoted) {
  fake_.Program("trainer", Reported(true, 1));
  trainer_ = fake_ / "bin/trainer";
  fake_.Set("CUDA_VISIBLE_DEVICES", "0,one");
  const Finding finding = Find("gpus");
  EXPECT_EQ(finding.level, FindingLevel::kNote);
  EXPECT_THAT(finding.text, HasSubstr("\"one\" names no GPU"));
  EXPECT_EQ(finding.remedy, "correct CUDA_VISIBLE_DEVICES");
}

const std::vector<Finding> kFindings = {
    {"memory", FindingLevel::kOk, "plenty", ""},
    {"mpi", FindingLevel::kNote, "none", "apt-get install openmpi-bin"},
    {"workspace", FindingLevel::kProblem, "two\nlines \xff", "choose\nanother"}};

TEST(DoctorReport, IsAlignedAndSummedUp) {
  EXPECT_EQ(FormatFindings(kFindings),
            "ok       memory            plenty\n"
            "note     mpi               none\n"
            "                           -> apt-get install openmpi-bin\n"
            "problem  workspace         two\n"
            "                           lines \xff\n"
            "                           -> choose\n"
            "                              another\n"
            "1 problem, 1 note.\n");
  EXPECT_THAT(FormatFindings({kFindings[0]}), HasSubstr("0 problems, 0 notes. Ready to run."));
  EXPECT_TRUE(HasProblem(kFindings));
  EXPECT_FALSE(HasProblem({kFindings[0], kFindings[1]}));
}

TEST(DoctorReport, JsonHoldsTheSameEvenWithBrokenText) {
  const auto json = nlohmann::json::parse(FindingsToJson(kFindings));
  ASSERT_EQ(json["findings"].size(), 3u);
  EXPECT_EQ(json["findings"][1]["level"], "note");
  EXPECT_EQ(json["findings"][1]["remedy"], "apt-get install openmpi-bin");
  EXPECT_EQ(json["problems"], 1);
  EXPECT_EQ(json["notes"], 1);
}

}  // namespace
}  // namespace headsweep
