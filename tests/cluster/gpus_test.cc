// Which GPUs a process sees, by every form of the variables that say it, and which of them each trainer gets.
#include "cluster/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Strings = std::vector<std::string>;

VisibleGpus Find(const std::map<std::string, std::string>& variables) {
  return FindVisibleGpus([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(VisibleGpus, EveryFormOfTheVariableIsReadAsCudaReadsIt) {
  struct Case {
    const char* value;
    Strings entries;
    const char* warning;  // part of it; "" = none
  };
  const Case cases[] = {
      {"", {}, ""},
      {"   ", {}, ""},
      {"NoDevFiles", {}, ""},
      {"-1", {}, ""},
      {"3", {"3"}, ""},
      {"0,2", {"0", "2"}, ""},
      {" 1 , 0 ", {"1", "0"}, ""},
      {"2,-1,0", {"2"}, ""},
      {"0,-5,1", {"0"}, "\"-5\" names no GPU"},
      {"0,,1", {"0"}, "\"\" names no GPU"},
      {"0,1,", {"0", "1"}, "\"\" names no GPU"},
      {"1gpu2,2ampere", {"1", "2"}, ""},
      {"+4", {"4"}, ""},
      {"all", {}, "\"all\" names no GPU"},
      {"0,x,1", {"0"}, "\"x\" names no GPU"},
      {"99999999999999999999", {}, "names no GPU"},
      {"0,1,0", {}, "\"0\" comes twice"},
      {"1,01", {}, "comes twice"},
      {"GPU-8932f937", {"GPU-8932f937"}, ""},
      {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-a0",
       {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-a0"},
       ""},
      {"GPU-a,GPU-a", {}, "comes twice"},
      {"GPU-a,0,GPU-b", {"GPU-a"}, "\"0\" names no GPU"},
      {"0,GPU-a", {"0"}, "\"GPU-a\" names no GPU"},
      {"GPU-", {}, "names no GPU"},
      {"gpu-a", {}, "names no GPU"},
      {"MIG-61a9a1b3-8a5c-5e8b-9a4c-0f1d2e3c4b5a", {"MIG-61a9a1b3-8a5c-5e8b-9a4c-0f1d2e3c4b5a"}, ""},
      {"MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0,MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/2/0",
       {"MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0",
        "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/2/0"},
       ""},
      {"MIG-a,GPU-b", {"MIG-a"}, "\"GPU-b\" names no GPU"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.value);
    const VisibleGpus visible = ParseVisibleGpus(c.value);
    EXPECT_FALSE(visible.all);
    EXPECT_EQ(visible.entries, c.entries);
    EXPECT_EQ(visible.none(), c.entries.empty());
    if (*c.warning == '\0') {
      EXPECT_THAT(visible.warning, IsEmpty());
    } else {
      EXPECT_THAT(visible.warning, HasSubstr(c.warning));
    }
  }
}

TEST(VisibleGpus, CudaVisibleDevicesWinsThenSlurmsStepThenItsJob) {
  EXPECT_TRUE(Find({}).all);
  EXPECT_FALSE(Find({}).none());
  EXPECT_TRUE(Find({{"CUDA_VISIBLE_DEVICES", ""}, {"SLURM_STEP_GPUS", "0,1"}}).none()) << "empty is a choice";
  EXPECT_THAT(
      Find({{"CUDA_VISIBLE_DEVICES", "1"}, {"SLURM_STEP_GPUS", "2"}, {"SLURM_JOB_GPUS", "3"}}).entries,
      ElementsAre("1"));
  const VisibleGpus step = Find({{"SLURM_STEP_GPUS", "2,3"}, {"SLURM_JOB_GPUS", "0-7"}});
  EXPECT_THAT(step.entries, ElementsAre("2", "3"));
  EXPECT_EQ(step.variable, "SLURM_STEP_GPUS");
  EXPECT_EQ(step.value, "2,3");
  EXPECT_THAT(Find({{"SLURM_STEP_GPUS", ""}, {"SLURM_JOB_GPUS", "0-2,6"}}).entries,
              ElementsAre("0", "1", "2", "6"));
  EXPECT_THAT(Find({{"SLURM_JOB_GPUS", "[1-2]"}}).entries, ElementsAre("1", "2"));
  EXPECT_THAT(Find({{"SLURM_JOB_GPUS", "5-3"}}).entries, ElementsAre("5")) << "no range: read as one number";
  EXPECT_THAT(Find({{"SLURM_JOB_GPUS", "0-99999999"}}).entries, ElementsAre("0")) << "nor is this one";
  EXPECT_THAT(Find({{"GPU_DEVICE_ORDINAL", "1,0"}}).entries, ElementsAre("1", "0"));
  EXPECT_THAT(Find({{"SLURM_STEP_GPUS", "1"}, {"GPU_DEVICE_ORDINAL", "0"}}).entries, ElementsAre("1"));
}

TEST(VisibleGpus, WhatSlurmSaysIsHandedToCudaAndItsOwnVariableIsLeftAlone) {
  EXPECT_THAT(GpuEnvironment(Find({})), IsEmpty());
  EXPECT_THAT(GpuEnvironment(Find({{"CUDA_VISIBLE_DEVICES", "3,4"}})), IsEmpty());
  const auto environment = GpuEnvironment(Find({{"SLURM_JOB_GPUS", "2-3"}}));
  ASSERT_EQ(environment.size(), 1u);
  EXPECT_EQ(environment[0].first, "CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(environment[0].second, "2,3");
}

GpuReport Report(const std::vector<int>& indices) {
  GpuReport report;
  for (const int index : indices) {
    GpuDevice device;
    device.index = index;
    report.devices.push_back(device);
  }
  return report;
}

TEST(GpuEntries, NameEachUsableDeviceAsItsListDoes) {
  EXPECT_THAT(GpuEntries(Find({}), Report({0, 1, 2})), ElementsAre("0", "1", "2"));
  EXPECT_THAT(GpuEntries(ParseVisibleGpus("GPU-b,GPU-a"), Report({0, 1})), ElementsAre("GPU-b", "GPU-a"));
  EXPECT_THAT(GpuEntries(ParseVisibleGpus("7,3"), Report({1})), ElementsAre("3"))
      << "the first cannot be used";
  EXPECT_THAT(GpuEntries(ParseVisibleGpus("0,9"), Report({0})), ElementsAre("0")) << "there is no device 9";
  EXPECT_THAT(GpuEntries(ParseVisibleGpus("0"), Report({})), IsEmpty());
}

TEST(ShareOfAgent, AgentsThatSeeTheSameGpusDivideThemAndTheOthersKeepTheirs) {
  const Strings eight = {"0", "1", "2", "3", "4", "5", "6", "7"};
  EXPECT_EQ(ShareOfAgent(eight, 0, 1, 0), eight);
  EXPECT_THAT(ShareOfAgent(eight, 0, 2, 0), ElementsAre("0", "1", "2", "3"));
  EXPECT_THAT(ShareOfAgent(eight, 1, 2, 8), ElementsAre("4", "5", "6", "7"));
  EXPECT_THAT(ShareOfAgent({"0", "1", "2"}, 0, 2, 3), ElementsAre("0"));
  EXPECT_THAT(ShareOfAgent({"0", "1", "2"}, 1, 2, 3), ElementsAre("1", "2"));
  // srun --gpus-per-task=1: each sees its own, under the number 0.
  for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(ShareOfAgent({"0"}, rank, 4, 4), ElementsAre("0"));
  // --gpu-bind=closest: two and two agents see the same two.
  const Strings two = {"0", "1"};
  EXPECT_THAT(ShareOfAgent(two, 0, 4, 4), ElementsAre("0"));
  EXPECT_THAT(ShareOfAgent(two, 1, 4, 4), ElementsAre("1"));
  EXPECT_THAT(ShareOfAgent(two, 2, 4, 4), ElementsAre("0"));
  // More agents than GPUs: each GPU goes to one of them.
  std::size_t given = 0;
  for (int rank = 0; rank < 5; ++rank) given += ShareOfAgent(two, rank, 5, 2).size();
  EXPECT_EQ(given, 2u);
  EXPECT_THAT(ShareOfAgent({}, 0, 2, 8), IsEmpty());
  EXPECT_EQ(ShareOfAgent(eight, 9, 0, -3), eight) << "nonsense counts do not lose GPUs";
}

TEST(GpuReport, SurvivesItsJsonAndIsFoundAmongOtherLines) {
  GpuReport report;
  report.cuda_build = true;
  report.runtime = "13.0";
  report.driver = "12.8";
  GpuDevice device;
  device.index = 1;
  device.name = "NVIDIA A100-SXM4-40GB MIG 1g.5gb";
  device.memory_bytes = 5'000'000'000;
  device.free_bytes = 4'900'000'000;
  device.compute_capability = "8.0";
  device.uuid = "MIG-1";
  device.pci_bus_id = "0000:07:00.0";
  device.mig = true;
  report.devices.push_back(device);
  report.problem = GpuProblem{"code", "what \"it\" is", "what to do"};
  const std::string json = ToJson(report);
  EXPECT_EQ(json.find('\n'), std::string::npos);
  const auto read = FindGpuReport("{\"not\": \"it\"}\n[1]\nwarning\n" + json + "\nbye\n");
  ASSERT_TRUE(read);
  EXPECT_EQ(ToJson(*read), json);
  EXPECT_EQ(read->devices.at(0).memory_bytes, 5'000'000'000);
  EXPECT_EQ(read->problem->remedy, "what to do");
  EXPECT_FALSE(FindGpuReport("Segmentation fault\n{\"cuda_build\": true}\n"));
  report.problem.reset();
  EXPECT_FALSE(FindGpuReport(ToJson(report))->problem);
  EXPECT_EQ(DescribeGpus(report),
            "1 GPU: NVIDIA A100-SXM4-40GB MIG 1g.5gb (4.6 of 4.7 GiB free, compute capability 8.0, MIG "
            "instance); driver for CUDA 12.8, built with 13.0");
  EXPECT_EQ(DescribeGpus({}), "no GPU");
}

}  // namespace
}  // namespace headsweep
