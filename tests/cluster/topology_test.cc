#include "cluster/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>

#include "cluster/base/errors.h"
#include "tests/cluster/fake_machine.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using testing::FakeMachine;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Topology, ThisMachineHasTheCoresOfTheAffinityMask) {
  const Topology machine = DetectTopology();
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(0, sizeof mask, &mask), 0);
  EXPECT_EQ(machine.usable_threads(), CPU_COUNT(&mask));
  for (const CpuCore& core : machine.cores)
    for (const int thread : core.threads) EXPECT_TRUE(CPU_ISSET(thread, &mask)) << thread;
  EXPECT_LE(static_cast<int>(machine.cores.size()), machine.machine_cores);
  EXPECT_GE(machine.worker_slots(), 1);
  EXPECT_FALSE(machine.host.empty());
  EXPECT_GT(machine.memory.total_bytes, 0);
  EXPECT_GT(machine.memory.available_bytes, 0);
  EXPECT_LE(machine.memory.available_bytes, machine.memory.total_bytes);
}

TEST(Topology, NumaNodesAndHardwareThreadsAreTold) {
  const FakeMachine fake;
  const Topology machine = DetectTopology(fake.Sources("numa:2(memory=1073741824) core:4 pu:2"));
  EXPECT_EQ(machine.machine_threads, 16);
  EXPECT_EQ(machine.machine_cores, 8);
  ASSERT_EQ(machine.cores.size(), 8u);
  EXPECT_THAT(machine.cores[0].threads, ElementsAre(0, 1));
  EXPECT_EQ(machine.cores[3].numa_node, 0);
  EXPECT_EQ(machine.cores[4].numa_node, 1);
  ASSERT_EQ(machine.numa_nodes.size(), 2u);
  EXPECT_EQ(machine.numa_nodes[1].memory_bytes, 1073741824);
  EXPECT_EQ(machine.worker_slots(), 8);
}

TEST(Topology, AffinityTakesThreadsAndWholeCoresAway) {
  const FakeMachine fake;
  TopologySources sources = fake.Sources("numa:2 core:4 pu:2");
  sources.affinity = {3, 8, 9};  // half of core 1, all of core 4
  const Topology machine = DetectTopology(sources);
  ASSERT_EQ(machine.cores.size(), 2u);
  EXPECT_THAT(machine.cores[0].threads, ElementsAre(3));
  EXPECT_THAT(machine.cores[1].threads, ElementsAre(8, 9));
  EXPECT_EQ(machine.cores[1].numa_node, 1);
  EXPECT_EQ(machine.usable_threads(), 3);
  EXPECT_EQ(machine.machine_cores, 8);
}

TEST(Topology, TheQuotaBoundsTheProcessesAtFullSpeed) {
  FakeMachine fake;
  fake.File("/proc/self/cgroup", "0::/job/step\n");
  fake.File("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  fake.File("/sys/fs/cgroup/job/cpu.max", "250000 100000\n");  // a parent's limit counts
  const Topology machine = DetectTopology(fake.Sources());
  ASSERT_TRUE(machine.limits.cpus.has_value());
  EXPECT_NEAR(*machine.limits.cpus, 2.5, 1e-12);
  EXPECT_EQ(machine.cores.size(), 4u);
  EXPECT_EQ(machine.worker_slots(), 2);
  fake.File("/sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(DetectTopology(fake.Sources()).worker_slots(), 1);
}

TEST(Topology, ASyntheticMachineThatMakesNoSenseIsAnError) {
  const FakeMachine fake;
  EXPECT_THROW(DetectTopology(fake.Sources("seven dwarves")), Error);
}

TEST(ProcFiles, ProcessorsOfBothKindsAreRead) {
  FakeMachine fake;
  fake.File("/proc/cpuinfo",
            "processor\t: 0\nmodel name\t: AMD EPYC 9R45\nflags\t\t: fpu avx2 avx512f fma\n\nprocessor\t: "
            "1\nmodel name\t: other\n");
  ProcessorInfo processor = ReadProcessor(fake.root());
  EXPECT_EQ(processor.model, "AMD EPYC 9R45");
  EXPECT_THAT(processor.flags, ElementsAre("avx2", "avx512f", "fma", "fpu"));
  fake.File("/proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");
  processor = ReadProcessor(fake.root());
  EXPECT_EQ(processor.model, "");
  EXPECT_THAT(processor.flags, ElementsAre("asimd", "fp"));
  EXPECT_THAT(ReadProcessor("/nowhere").flags, IsEmpty());
}

TEST(ProcFiles, MemoryIsWhatTheGroupLeaves) {
  FakeMachine fake;
  fake.File("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n");
  EXPECT_EQ(ReadMemory(fake.root()).total_bytes, std::int64_t{16} << 30);
  EXPECT_EQ(ReadMemory(fake.root()).available_bytes, std::int64_t{8} << 30);
  fake.File("/proc/self/cgroup", "0::/job\n");
  fake.File("/sys/fs/cgroup/job/memory.max", "2147483648\n");
  fake.File("/sys/fs/cgroup/job/memory.current", "1073741824\n");
  EXPECT_EQ(ReadMemory(fake.root()).available_bytes, std::int64_t{1} << 30);
  fake.File("/sys/fs/cgroup/job/memory.current", "3073741824\n");
  EXPECT_EQ(ReadMemory(fake.root()).available_bytes, 0);
  fake.File("/sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_EQ(ReadMemory(fake.root()).available_bytes, std::int64_t{8} << 30);
}

TEST(ProcFiles, VersionOneGroupsAreRead) {
  FakeMachine fake;
  fake.File("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/a/b\n2:cpu,cpuacct:/a\n1:cpuset:/\n");
  fake.File("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  fake.File("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(ReadGroupLimits(fake.root()).cpus.has_value());
  fake.File("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "150000\n");
  fake.File("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
            "9223372036854771712\n");  // the kernel's "none"
  fake.File("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000\n");
  fake.File("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "400000\n");
  const GroupLimits limits = ReadGroupLimits(fake.root());
  EXPECT_NEAR(limits.cpus.value(), 1.5, 1e-12);
  EXPECT_EQ(limits.memory_bytes, 1000000);
  EXPECT_EQ(limits.memory_used_bytes, 400000);
}

TEST(ProcFiles, HugePagesAreTheWordInBrackets) {
  FakeMachine fake;
  EXPECT_EQ(ReadHugePages(fake.root()), "");
  fake.File("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  EXPECT_EQ(ReadHugePages(fake.root()), "madvise");
  fake.File("/sys/kernel/mm/transparent_hugepage/enabled", "nonsense\n");
  EXPECT_EQ(ReadHugePages(fake.root()), "");
}

TEST(Gpus, AreSeenByDeviceFilesProgramAndVariables) {
  FakeMachine fake;
  for (const char* name : {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/null"})
    fake.File(name, "");
  fake.Program("nvidia-smi",
               "echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'; echo 'GPU 1: NVIDIA H100 (UUID: GPU-2)'");
  fake.Set("CUDA_VISIBLE_DEVICES", "1");
  fake.Set("SLURM_JOB_GPUS", "0,1");
  const GpuState gpus = DetectTopology(fake.Sources()).gpus;
  EXPECT_THAT(gpus.device_files, ElementsAre("/dev/nvidia0", "/dev/nvidia1"));
  EXPECT_EQ(gpus.names.size(), 2u);
  EXPECT_EQ(gpus.visible_devices, "1");
  EXPECT_THAT(gpus.slurm_variables, ElementsAre("SLURM_JOB_GPUS=0,1"));
}

TEST(Gpus, AProgramThatFailsOrHangsIsTold) {
  FakeMachine fake;
  fake.Program("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9");
  GpuState gpus = DetectTopology(fake.Sources()).gpus;
  EXPECT_THAT(gpus.names, IsEmpty());
  EXPECT_EQ(gpus.smi_failure, "code 9: NVIDIA-SMI has failed");
  fake.Program("nvidia-smi", "while :; do :; done");
  TopologySources sources = fake.Sources();
  sources.program_seconds = 0.1;
  gpus = DetectTopology(sources).gpus;
  EXPECT_THAT(gpus.smi_failure, HasSubstr("time limit"));
}

}  // namespace
}  // namespace headsweep
