// Why a GPU cannot be used: each answer of the CUDA runtime gets the problem and the remedy that belong to
// it.
#include "kernels/device_problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/base/errors.h"
#include "kernels/backend.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;

CudaFacts Facts(int error, int driver, int devices = 0) {
  CudaFacts facts;
  facts.error = error;
  facts.error_text = "text of the runtime";
  facts.driver_version = driver;
  facts.runtime_version = 13000;
  facts.devices = devices;
  return facts;
}

TEST(DeviceProblems, DevicesAreNoProblem) { EXPECT_FALSE(ExplainCuda(Facts(0, 13000, 2))); }

TEST(DeviceProblems, NoDriverAndAnOldDriverAreToldApart) {
  const auto none = ExplainCuda(Facts(35, 0));
  EXPECT_EQ(none->code, gpu_problem::kNoDriver);
  EXPECT_THAT(none->message, HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(none->remedy, HasSubstr("CUDA 13.0"));
  CudaFacts container = Facts(35, 0);
  container.device_files = true;
  EXPECT_THAT(ExplainCuda(container)->message, HasSubstr("there is an NVIDIA GPU"));
  EXPECT_THAT(ExplainCuda(container)->remedy, HasSubstr("--gpus all"));
  EXPECT_EQ(ExplainCuda(Facts(100, 0))->code, gpu_problem::kNoDriver);

  const auto old = ExplainCuda(Facts(35, 12040));
  EXPECT_EQ(old->code, gpu_problem::kOldDriver);
  EXPECT_THAT(old->message, HasSubstr("CUDA 12.4"));
  EXPECT_THAT(old->message, HasSubstr("CUDA 13.0"));
  EXPECT_THAT(old->remedy, HasSubstr("12.4 or earlier"));
}

TEST(DeviceProblems, HiddenDevicesAreToldFromMissingOnes) {
  EXPECT_EQ(ExplainCuda(Facts(100, 13000))->code, gpu_problem::kNoDevice);
  for (const int error : {0, 100}) {
    CudaFacts hidden = Facts(error, 13000);
    hidden.visible = "7";
    EXPECT_EQ(ExplainCuda(hidden)->code, gpu_problem::kHidden);
    EXPECT_THAT(ExplainCuda(hidden)->message, HasSubstr("CUDA_VISIBLE_DEVICES=\"7\""));
  }
}

TEST(DeviceProblems, OtherAnswersKeepTheRuntimesWords) {
  EXPECT_EQ(ExplainCuda(Facts(46, 13000))->code, gpu_problem::kBusy);
  for (const int error : {3, 802, 803, 804})
    EXPECT_EQ(ExplainCuda(Facts(error, 13000))->code, gpu_problem::kNotReady) << error;
  const auto unknown = ExplainCuda(Facts(999, 13000));
  EXPECT_EQ(unknown->code, gpu_problem::kFailed);
  EXPECT_THAT(unknown->message, HasSubstr("text of the runtime"));
  EXPECT_THAT(unknown->message, HasSubstr("999"));
  for (const int error : {3, 34, 35, 46, 100, 802, 803, 804, 999}) {
    const auto problem = ExplainCuda(Facts(error, 13000));
    ASSERT_TRUE(problem) << error;
    EXPECT_FALSE(problem->remedy.empty()) << error;
  }
}

TEST(DeviceProblems, CodeRunsOnItsMajorVersionAndPtxOnAllLaterOnes) {
  struct Case {
    const char* built;
    int major, minor;
    bool runs;
  };
  const Case cases[] = {{"80-real", 8, 0, true},
                        {"80-real", 8, 6, true},
                        {"80-real", 7, 5, false},
                        {"86-real", 8, 0, false},
                        {"80-real", 9, 0, false},
                        {"80", 9, 0, true},
                        {"80", 12, 0, true},
                        {"80", 7, 5, false},
                        {"80-virtual", 8, 0, true},
                        {"80-virtual", 7, 5, false},
                        {"90a-real", 9, 0, true},
                        {"90a", 10, 0, false},
                        {"100-real", 10, 3, true},
                        {"100-real", 12, 0, false},
                        {"80-real,90-real,100", 9, 0, true},
                        {"80-real,90-real,100", 12, 0, true},
                        {"80-real,90-real,100-real", 12, 0, false},
                        {"80-real,90-real,100", 7, 0, false}};
  for (const Case& c : cases) {
    const auto problem = ExplainArchitecture(c.built, c.major, c.minor, "Some GPU");
    EXPECT_EQ(!problem, c.runs) << c.built << " on " << c.major << "." << c.minor;
    if (!problem) continue;
    EXPECT_EQ(problem->code, gpu_problem::kArchitecture);
    EXPECT_THAT(problem->message, HasSubstr(c.built));
    EXPECT_THAT(problem->remedy,
                HasSubstr("HEADSWEEP_CUDA_ARCHITECTURES=" + std::to_string(10 * c.major + c.minor)));
  }
}

TEST(DeviceProblems, AProcessTakesTheOnlyDeviceOrThatOfItsNumber) {
  EXPECT_EQ(DeviceOfProcess(nullptr, 8), 0);
  EXPECT_EQ(DeviceOfProcess("", 8), 0);
  EXPECT_EQ(DeviceOfProcess("3", 8), 3);
  EXPECT_EQ(DeviceOfProcess("3", 1), 0) << "the launcher has hidden the others";
  for (const char* wrong : {"8", "-1", "x", "1x"}) EXPECT_THROW(DeviceOfProcess(wrong, 8), ConfigError) << wrong;
}

TEST(DeviceProblems, VersionsReadAsPeopleWriteThem) {
  EXPECT_EQ(CudaVersionText(12080), "12.8");
  EXPECT_EQ(CudaVersionText(13000), "13.0");
  EXPECT_EQ(CudaVersionText(0), "");
}

TEST(ProbeGpus, AnswersInEveryBuild) {
  const GpuReport report = ProbeGpus();
  if (report.devices.empty()) {
    ASSERT_TRUE(report.problem) << "no device, and no reason";
    EXPECT_FALSE(report.problem->remedy.empty());
  }
  EXPECT_EQ(report.cuda_build, !report.runtime.empty());
  if (!report.cuda_build) {
    EXPECT_EQ(report.problem->code, gpu_problem::kNotBuilt);
  }
}

}  // namespace
}  // namespace headsweep
