#include "cluster/base/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "tests/cluster/environment.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;
using testing::ScopedVariable;
using testing::TempDir;

TEST(RunProgram, ReturnsOutputAndExitCode) {
  const ProgramResult result = RunProgram({"sh", "-c", "echo out; echo err >&2; exit 3"}, 30);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(RunProgram({"sh", "-c", "echo out; echo err >&2"}, 30, /*merge_errors=*/true).output,
            "out\nerr\n");
}

TEST(RunProgram, StandardInputIsEmpty) { EXPECT_EQ(RunProgram({"cat"}, 30).output, ""); }

TEST(RunProgram, TakesMoreOutputThanAPipeHolds) {
  EXPECT_EQ(RunProgram({"sh", "-c", "head -c 1000000 /dev/zero"}, 30).output.size(), 1000000u);
}

TEST(RunProgram, ArgumentsAreNotInterpreted) {
  EXPECT_EQ(RunProgram({"printf", "%s|", "a b", "$HOME", "*"}, 30).output, "a b|$HOME|*|");
}

TEST(RunProgram, ASignalIsAnExitCodeAbove128) {
  EXPECT_EQ(RunProgram({"sh", "-c", "kill -9 $$"}, 30).exit_code, 128 + SIGKILL);
}

TEST(RunProgram, AProgramThatDoesNotEndIsKilledAndNamed) {
  const TempDir dir;
  try {
    RunProgram({"sh", "-c", "echo $$ > " + dir / "pid" + "; exec sleep 1000"}, 0.3);
    FAIL();
  } catch (const CommError& error) {
    EXPECT_THAT(error.peer(), HasSubstr("/sh"));
    EXPECT_GE(error.elapsed_seconds(), 0.3);
  }
  // It is reaped, so its number is free again (unless it never came as far as writing it).
  FileSystem& files = FileSystem::Real();
  const std::string text = files.Exists(dir / "pid") ? files.ReadFile(dir / "pid") : "";
  if (text.ends_with('\n')) {
    EXPECT_NE(::kill(std::stoi(text), 0), 0);
    EXPECT_EQ(errno, ESRCH);
  }
}

TEST(RunProgram, APrintingProgramThatDoesNotEndIsKilledToo) {
  EXPECT_THROW(RunProgram({"yes"}, 0.05), CommError);
}

TEST(RunProgram, AMissingProgramIsAnIoError) {
  EXPECT_THROW(RunProgram({"no-such-program-of-headsweep"}, 1), IoError);
  EXPECT_THROW(RunProgram({"/nowhere/program"}, 1), IoError);
}

TEST(FindProgram, TakesTheFirstExecutableOnPath) {
  const TempDir dir;
  FileSystem& files = FileSystem::Real();
  for (const char* sub : {"a", "b", "c"}) files.CreateDirectories(dir / sub);
  files.CreateDirectories(dir / "a/tool");        // a directory is no program
  files.WriteFile(dir / "b/tool", "no program");  // nor is a file without the right to run it
  files.WriteFile(dir / "c/tool", "#!/bin/sh\n");
  ASSERT_EQ(::chmod((dir / "c/tool").c_str(), 0755), 0);
  const std::string path = dir / "a:" + dir / "b:" + dir / "c";
  const ScopedVariable variable("PATH", path.c_str());
  EXPECT_EQ(FindProgram("tool"), dir / "c/tool");
  EXPECT_EQ(FindProgram("other"), "");
  EXPECT_EQ(FindProgram(dir / "c/tool"), dir / "c/tool");
  EXPECT_EQ(FindProgram(dir / "b/tool"), "");
}

}  // namespace
}  // namespace headsweep
