// cluster/gpu_check.sh with programs that only pretend: what it runs, when it gives up, and how it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "cluster/base/file_system.h"
#include "cluster/base/gpu_report.h"
#include "cluster/base/run_program.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class GpuCheck : public ::testing::Test {
 protected:
  GpuCheck() {
    GpuReport report;
    report.cuda_build = true;
    report.devices.emplace_back();
    report.devices.back().name = "Pretended GPU";
    Program("headsweep-trainer", "printf '%s\\n' '" + ToJson(report) + "'");
    Program("headsweep-bench", "echo \"speeds of $1\"");
    Program("tests/kernels_test", "echo '[  PASSED  ] 7 tests.'");
    Program("tests/trainer_test", "echo '[  PASSED  ] 2 tests.'");
    Program("compute-sanitizer", "echo \"========= ERROR SUMMARY: 0 errors ($2)\"");
  }
  void Program(const std::string& name, const std::string& body) {
    const std::string path = build_ / name;
    FileSystem::Real().CreateDirectories(ParentPath(path));
    FileSystem::Real().WriteFile(path, "#!/bin/sh\n" + body + "\n");
    ::chmod(path.c_str(), 0755);
  }
  ProgramResult Run(std::vector<std::string> options = {}) {
    std::vector<std::string> command = {std::string(HEADSWEEP_SOURCE_DIR) + "/cluster/gpu_check.sh", "--out",
                                        build_ / "out"};
    command.insert(command.end(), options.begin(), options.end());
    const char* path = std::getenv("PATH");
    return RunProgram(command, 60, /*merge_errors=*/true,
                      {{"HEADSWEEP_GPU_CHECK_BUILD", build_.path()},
                       {"PATH", build_.path() + ":" + (path != nullptr ? path : "/usr/bin:/bin")}});
  }

  testing::TempDir build_;
};

TEST_F(GpuCheck, EverythingRunsAndTheTableComesLast) {
  const ProgramResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const std::size_t table = result.output.find("GPU: Pretended GPU");
  ASSERT_NE(table, std::string::npos) << result.output;
  const std::string rows = result.output.substr(table);
  for (const char* name :
       {"ops", "training", "nccl", "memcheck", "racecheck", "bench-ops", "bench-attention", "bench-step"})
    EXPECT_THAT(rows, ContainsRegex(std::string(name) + " +ok"));
  EXPECT_THAT(rows, HasSubstr("PASSED ] 7 tests."));
  EXPECT_THAT(result.output, HasSubstr("speeds of attention"));
  EXPECT_THAT(FileSystem::Real().ReadFile(build_ / "out/memcheck.log"), HasSubstr("0 errors"));
  EXPECT_THAT(Run({"--no-bench"}).output, Not(HasSubstr("bench-ops")));
}

TEST_F(GpuCheck, WithoutAGpuItSaysWhyAndRunsNothing) {
  GpuReport report;
  report.cuda_build = true;
  report.problem = GpuProblem{"no-driver", "there is no driver", "install one"};
  Program("headsweep-trainer", "printf '%s\\n' '" + ToJson(report) + "'");
  Program("tests/kernels_test", "touch " + build_ / "ran");
  const ProgramResult result = Run();
  EXPECT_EQ(result.exit_code, 3) << result.output;
  EXPECT_THAT(result.output, HasSubstr("no usable GPU: there is no driver; install one"));
  EXPECT_FALSE(FileSystem::Real().Exists(build_ / "ran"));
}

TEST_F(GpuCheck, AFailureIsARowAndTheExitCodeAndTheRestStillRuns) {
  Program("tests/kernels_test", "echo '[  FAILED  ] 1 test, listed below:'; exit 1");
  const ProgramResult result = Run();
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, ContainsRegex("ops +FAILED.*code 1: .*1 test, listed"));
  EXPECT_THAT(result.output, ContainsRegex("bench-step +ok"));
}

TEST_F(GpuCheck, ASuiteThatRanNothingProvesNothing) {
  Program("tests/trainer_test", "echo '[==========] Running 0 tests from 0 test suites.'");
  const ProgramResult result = Run({"--no-bench"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, ContainsRegex("training +FAILED.*no test ran"));
}

TEST_F(GpuCheck, WhatTheMachineHasNotIsSkippedAndSaysWhy) {
  Program("tests/trainer_test",
          "case $* in *Nccl*) printf '%s\\n' 'nccl_test.cc:1: Skipped' 'NCCL is not found' '[  SKIPPED ] 2 tests.';; "
          "*) echo '[  PASSED  ] 2 tests.';; esac");
  const ProgramResult result = Run({"--no-bench"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, ContainsRegex("nccl +skipped +[0-9]+ +NCCL is not found"));
  EXPECT_THAT(result.output, ContainsRegex("training +ok"));
}

TEST_F(GpuCheck, WhatTakesTooLongIsEndedAndWhatHasNoTimeLeftIsSaid) {
  Program("tests/kernels_test", "exec sleep 100");
  const ProgramResult result = Run({"--seconds", "10"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, ContainsRegex("ops +FAILED.*not done after [0-9]+ s"));
  EXPECT_THAT(result.output, ContainsRegex("training +NOT RUN"));
}

TEST_F(GpuCheck, WrongUsageIsSaid) {
  EXPECT_EQ(Run({"--bogus"}).exit_code, 2);
  EXPECT_EQ(Run({"--bundle"}).exit_code, 2);
  EXPECT_EQ(Run({"--help"}).exit_code, 0);
}

}  // namespace
}  // namespace headsweep
